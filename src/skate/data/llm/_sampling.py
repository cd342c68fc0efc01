"""Convert the sampling parameters of rows, which have the names of vLLM or SGLang."""

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
# Parameters that the engines do not support, with the values that have no effect.
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
    """Return the engine's sampling parameters for those of a row.

    A parameter that is None is ignored, because all rows of a dataset have the same fields. `max_tokens` defaults to
    16, as in vLLM. `detokenize` is accepted and left out, because it is not a parameter of the engine.

    Args:
        given: The parameters, with vLLM's or SGLang's names.

    Raises:
        ValueError: If a parameter is unknown (the message suggests the closest one), or if a value is invalid or not
            supported by the engines.
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
            raise ValueError(f"sampling_params[{name!r}] is {value!r}, which the engines do not support")
    return SamplingParams(**made)


def _value(name: str, value: Any) -> Any:
    if name == "stop":
        stop = (value,) if isinstance(value, str) else tuple(_iterable(name, value))
        if not all(isinstance(each, str) for each in stop):
            raise _invalid(name, "a string or a list of strings", value)
        return stop
    if name == "stop_token_ids":
        return tuple(_integer(name, each) for each in _iterable(name, value))
    if name == "logit_bias":
        # In a column of dicts, keys are strings, as in JSON, and a field that only other rows have is None.
        pairs = _mapping(name, value).items()
        return {
            _integer(name, int(key) if isinstance(key, str) and key.isdecimal() else key): _number(name, bias)
            for key, bias in pairs
            if bias is not None
        }
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise _invalid(name, "true or false", value)
        return value
    if name == "top_k":
        return max(_integer(name, value), 0)  # -1 considers all tokens, like 0
    return _integer(name, value) if name in _INTEGERS else _number(name, value)


def _structured(name: str, given: Any) -> Grammar | None:
    constraints = {
        key: value for key, value in _mapping(name, given).items() if value is not None and value is not False
    }
    for key in constraints:
        if key not in _GRAMMARS:
            raise ValueError(f"sampling_params[{name!r}] has no key {key!r}.{did_you_mean(key, _GRAMMARS)}")
    if not constraints:
        return None
    if len(constraints) > 1:
        raise ValueError(
            f"sampling_params[{name!r}] has several constraints ({', '.join(constraints)}): keep one of them"
        )
    ((kind, value),) = constraints.items()
    if kind == "json_object":
        return Grammar(kind="json")
    if kind == "json":
        return _json_schema(name, value)
    if kind == "choice":
        choices = [json.dumps(each, ensure_ascii=False) for each in _iterable(name, value)]
        return Grammar(kind="lark", text=f"start: {' | '.join(choices)}\n")
    if not isinstance(value, str):
        raise _invalid(f"{name}.{kind}", "text", value)
    return Grammar(kind="regex" if kind == "regex" else "lark", text=value)


def _json_schema(name: str, schema: Any) -> Grammar:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ValueError(f"sampling_params[{name!r}]: the schema is not valid JSON: {error}") from error
    if not isinstance(schema, Mapping):
        raise _invalid(name, "a JSON schema, which is an object", schema)
    # Without fixed white space, a weak model may generate line breaks forever.
    return Grammar(
        kind="json_schema", text=json.dumps({"x-guidance": {"whitespace_flexible": False}, **schema})
    )


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _invalid(name, "a dict", value)
    return value


def _iterable(name: str, value: Any) -> Iterable[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _invalid(name, "a list", value)
    return value


def _integer(name: str, value: Any) -> int:
    # A column of integers with missing values may have become a column of floats.
    is_integer = isinstance(value, numbers.Integral) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_integer:
        raise _invalid(name, "an integer", value)
    return int(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _invalid(name, "a number", value)
    return float(value)


def _invalid(name: str, must: str, value: Any) -> ValueError:
    return ValueError(f"sampling parameter {name!r} must be {must}, got {value!r}")
