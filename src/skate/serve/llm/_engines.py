"""Start the engine that a configuration chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.llm import Engine, load_engine
from skate.serve.llm._config import LLMConfig
from skate.serve.llm._downloads import download_folder
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
    if choice.lower() in (name.lower() for name in ENGINES):
        return _load_engine
    if ":" in choice or "." in choice:
        return import_object("llm_engine", choice)  # type: ignore[no-any-return]  # the user's function
    raise ValueError(
        f"llm_engine={choice!r} is not an engine.{did_you_mean(choice, ENGINES)} Choose one of "
        f"{', '.join(ENGINES)}, or write the import path of a function as 'module:name'."
    )


def _load_engine(config: LLMConfig) -> Engine:
    loading = config.model_loading_config
    source = loading.model_source or loading.model_id
    path = source if isinstance(source, str) else source.bucket_uri or loading.model_id
    if "://" in path:
        path = str(download_folder(path))
    arguments = dict(config.engine_kwargs)
    arguments.pop("data_parallel_size", None)  # is the number of replicas
    if config.lora_config is not None:
        adapters = config.lora_config.max_num_adapters_per_replica
        most = max(adapters, arguments.get("max_loras", 1))
        arguments = {"enable_lora": True, "max_cpu_loras": most, **arguments}
    return load_engine(path, engine=str(config.llm_engine), tokenizer=loading.tokenizer_source, **arguments)
