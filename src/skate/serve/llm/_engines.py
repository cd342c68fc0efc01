"""Start the engine that a configuration chooses."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.llm import Engine
from skate.serve.llm._config import LLMConfig
from skate.serve.llm._imports import import_object

__all__ = ["ENGINES", "start_engine"]

ENGINES = ("auto", "torch", "vLLM")


def start_engine(config: LLMConfig) -> Engine:
    """Start the engine of a model. It runs in a thread without an event loop.

    Args:
        config: The configuration of the model. `llm_engine` chooses the engine.

    Raises:
        ValueError: If there is no such engine.
        ImportError: If the engine is not installed.
    """
    return _factory(config.llm_engine)(config)


def _factory(choice: str | Callable[..., Any]) -> Callable[[LLMConfig], Engine]:
    if not isinstance(choice, str):
        return choice
    name = choice.lower()
    if name == "auto":
        name = "vllm" if _is_installed("vllm") else "torch"
    if name == "vllm":
        if not _is_installed("vllm"):
            raise ImportError("llm_engine='vLLM' needs vllm: pip install vllm. Or set llm_engine='torch'.")
        raise NotImplementedError("llm_engine='vLLM' is not connected yet: set llm_engine='torch'.")
    if name == "torch":
        if not _is_installed("torch"):
            raise ImportError("llm_engine='torch' needs torch: pip install 'skate[llm]'")
        raise NotImplementedError("llm_engine='torch' is not connected yet.")
    if ":" in choice or "." in choice:
        return import_object("llm_engine", choice)  # type: ignore[no-any-return]  # the user's function
    raise ValueError(
        f"llm_engine={choice!r} is not an engine.{did_you_mean(choice, ENGINES)} Choose one of "
        f"{', '.join(ENGINES)}, or write the import path of a function as 'module:name'."
    )


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
