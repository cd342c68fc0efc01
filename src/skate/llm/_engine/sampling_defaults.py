"""The sampling parameters that a model's generation_config.json recommends, for requests that do not set them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.llm._engine.api import SamplingParams
from skate.llm._engine.json_files import read_json
from skate.llm._engine.model_files import GENERATION_CONFIG

__all__ = ["check_sampling_settings", "sampling_defaults"]

# The fields of a generation config that are sampling parameters, as in vLLM, and their names here.
_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
    "max_tokens": "max_tokens",  # vLLM's own name
}
_INTEGERS = ("top_k", "max_new_tokens", "max_tokens")


def sampling_defaults(
    of_model: Mapping[str, Any], generation_config: str = "auto", overrides: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Return the sampling parameters of requests that do not set them.

    Args:
        of_model: The model's generation config.
        generation_config: "auto" uses the model's, "vllm" none, and a folder the one in it.
        overrides: Fields that replace those of the generation config.

    Raises:
        FileNotFoundError: If there is no generation config in the folder.
        ValueError: If a value has the wrong type or is outside its range.
    """
    source = GENERATION_CONFIG
    if generation_config == "vllm":
        of_model = {}
    elif generation_config != "auto":
        source = str(Path(generation_config, GENERATION_CONFIG))
        of_model = read_json(Path(source))
    return _parameters(of_model, source) | _parameters(overrides or {}, "override_generation_config")


def check_sampling_settings(generation_config: str, overrides: Mapping[str, Any] | None) -> None:
    """Check the arguments of an engine, before a model is loaded.

    Raises:
        ValueError: If one is invalid.
    """
    if not isinstance(generation_config, str):
        raise ValueError(f"generation_config must be 'auto', 'vllm' or a folder, got {generation_config!r}")
    if overrides is None:
        return
    if not isinstance(overrides, Mapping):
        raise ValueError(f"override_generation_config must be a dict, got {overrides!r}")
    for name in overrides:
        if name not in _FIELDS:
            raise ValueError(
                f"override_generation_config has no field {name!r}.{did_you_mean(name, _FIELDS)}"
            )
    _parameters(overrides, "override_generation_config")


def _parameters(fields: Mapping[str, Any], source: str) -> dict[str, float]:
    """Return the sampling parameters among some fields, under their names here."""
    found = {}
    for name, own in _FIELDS.items():
        value = fields.get(name)
        if value is None:
            continue
        kind, kinds = ("an integer", int) if name in _INTEGERS else ("a number", (int, float))
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"{source}: {name} must be {kind}, got {value!r}")
        found[own] = max(value, 0) if name == "top_k" else value  # vLLM's -1 considers all tokens
    try:
        SamplingParams(**found)  # type: ignore[arg-type]  # types were checked above
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    return found
