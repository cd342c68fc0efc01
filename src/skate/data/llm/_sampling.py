"""Sampling parameters of rows, with the names of vLLM and SGLang."""

from __future__ import annotations

import json
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.llm import Grammar, SamplingParams

__all__ = ["VLLM_MAX_TOKENS", "sampling_params_of"]

VLLM_MAX_TOKENS = 16  # vLLM's default

_ALIASES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
_INTEGERS = ("max_tokens", "min_tokens", "top_k", "seed", "logprobs")
_FLAGS = ("ignore_eos", "skip_special_tokens")
_OWN = tuple(each.name for each in fields(SamplingParams) if each.name != "grammar")
_STRUCTURED = ("structured_outputs", "guided_decoding")
_GRAMMARS = ("json", "json_object", "regex", "choice", "grammar")
_SGLANG_GRAMMARS = {"json_schema": "json", "regex": "regex"}
# Parameters that the engines do not have, with the values that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "prompt_logprobs": (),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "include_stop_str_in_output": (False,),
    "truncate_prompt_tokens": (-1,),
    "logits_processors": ([],),
    "spaces_between_special_tokens": (True,),
    "no_stop_trim": (False,),
}
_KNOWN = (*_OWN, *_ALIASES, *_STRUCTURED, *_SGLANG_GRAMMARS, *_UNSUPPORTED, "detokenize")


def sampling_params_of(given: Mapping[str, Any] | None) -> SamplingParams:
    """Return the engine's parameters for those of a row.

    A parameter that is None counts as not given, because rows of one dataset have the same fields. `max_tokens` is 16
    unless it is given, as in vLLM. `detokenize` is known and left out: it is not the engine's.

    Args:
        given: The parameters, with vLLM's or SGLang's names.

    Raises:
        ValueError: If a parameter is unknown, and the message names the nearest; or if a value is invalid or asks for
            something that the engines do not do.
    """
    made: dict[str, Any] = {"max_tokens": VLLM_MAX_TOKENS}
    for name, value in _mapping("sampling_params", given or {}).items():
        if name not in _KNOWN:
            raise ValueError(f"sampling_params has no parameter {name!r}.{did_you_mean(name, _KNOWN)}")
        if value is None or name == "detokenize":
            continue
        if name in _STRUCTURED:
            made["grammar"] = _structured(name, value)
        elif name in _SGLANG_GRAMMARS:
            made["grammar"] = _structured(name, {_SGLANG_GRAMMARS[name]: value})
        elif name not in _UNSUPPORTED:
            name = _ALIASES.get(name, name)
            made[name] = _value(name, value)
        elif value not in _UNSUPPORTED[name]:
            raise ValueError(f"sampling_params[{name!r}] is {value!r}, which the engines do not do")
    return SamplingParams(**made)


def _value(name: str, value: Any) -> Any:
    if name == "stop":
        stop = (value,) if isinstance(value, str) else tuple(_iterable(name, value))
        if not all(isinstance(each, str) for each in stop):
            raise _wrong(name, "a string or a list of strings", value)
        return stop
    if name == "stop_token_ids":
        return tuple(_integer(name, each) for each in _iterable(name, value))
    if name == "logit_bias":
        # Keys of a column's dicts are strings, as in JSON. A field that another row has is None here.
        pairs = _mapping(name, value).items()
        return {
            _integer(name, int(key) if isinstance(key, str) and key.isdecimal() else key): _number(name, bias)
            for key, bias in pairs
            if bias is not None
        }
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise _wrong(name, "true or false", value)
        return value
    if name == "top_k":
        return max(_integer(name, value), 0)  # -1 considers all tokens, like 0
    return _integer(name, value) if name in _INTEGERS else _number(name, value)


def _structured(name: str, given: Any) -> Grammar | None:
    asked = {
        key: value for key, value in _mapping(name, given).items() if value is not None and value is not False
    }
    for key in asked:
        if key not in _GRAMMARS:
            raise ValueError(f"sampling_params[{name!r}] has no key {key!r}.{did_you_mean(key, _GRAMMARS)}")
    if not asked:
        return None
    if len(asked) > 1:
        raise ValueError(
            f"sampling_params[{name!r}] has several constraints ({', '.join(asked)}): keep one of them"
        )
    ((kind, value),) = asked.items()
    if kind == "json_object":
        return Grammar(kind="json")
    if kind == "json":
        return _json_schema(name, value)
    if kind == "choice":
        choices = [json.dumps(each, ensure_ascii=False) for each in _iterable(name, value)]
        return Grammar(kind="lark", text=f"start: {' | '.join(choices)}\n")
    if not isinstance(value, str):
        raise _wrong(f"{name}.{kind}", "text", value)
    return Grammar(kind="regex" if kind == "regex" else "lark", text=value)


def _json_schema(name: str, schema: Any) -> Grammar:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ValueError(f"sampling_params[{name!r}]: the schema is not valid JSON: {error}") from error
    if not isinstance(schema, Mapping):
        raise _wrong(name, "a JSON schema, which is an object", schema)
    # Without fixed spaces, a weak model may generate line breaks for ever.
    return Grammar(
        kind="json_schema", text=json.dumps({"x-guidance": {"whitespace_flexible": False}, **schema})
    )


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(name, "a dict", value)
    return value


def _iterable(name: str, value: Any) -> Iterable[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _wrong(name, "a list", value)
    return value


def _integer(name: str, value: Any) -> int:
    # A column of integers with missing values may have become one of floats.
    is_integer = isinstance(value, numbers.Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_integer:
        raise _wrong(name, "an integer", value)
    return int(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _wrong(name, "a number", value)
    return float(value)


def _wrong(name: str, must: str, value: Any) -> ValueError:
    return ValueError(f"sampling parameter {name!r} must be {must}, got {value!r}")
