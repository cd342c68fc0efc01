"""Choosing and loading an engine or a tokenizer, without importing torch or vLLM before they are needed."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from skate._base.suggestions import did_you_mean
from skate.llm._engine.api import Engine, Tokenizer
from skate.llm._engine.model_files import is_gguf, open_model

ENGINES = ("auto", "torch", "vllm")
_log = logging.getLogger("skate.llm")


def load_engine(
    model: str | Path, *, engine: str = "auto", tokenizer: str | Path | None = None, **engine_kwargs: Any
) -> Engine:
    """Load a language model.

    Args:
        model: A folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub.
        engine: "torch" runs the model in this process. "vllm" runs it in processes of vLLM, if that is installed.
            "auto" chooses vLLM if it is installed and there is a GPU, unless the model or an argument needs the torch
            engine. A line in the log says which engine runs, and why.
        tokenizer: A folder with another tokenizer than the model's.
        **engine_kwargs: Arguments of the engine. For vLLM, the fields of its `AsyncEngineArgs`. The torch engine has
            some with the same names: `max_model_len`, `max_num_seqs`, `max_num_batched_tokens`, `block_size`,
            `enable_prefix_caching`, `quantization` ("int4"), `kv_cache_memory_bytes`, `gpu_memory_utilization`,
            `enforce_eager`, `dtype`, `generation_config`, `override_generation_config`; and `device` ("auto", "cpu" or
            "cuda") and `num_threads`.

    Raises:
        FileNotFoundError: If a file of the model is missing.
        ImportError: If a package is not installed.
        ValueError: If the engine does not support the model or an argument.
    """
    choice, reason = choose_engine(model, engine, engine_kwargs)
    loaded = _load(choice, model, engine_kwargs, tokenizer)
    _log.info("%s: %s; chosen because %s", model, loaded.describe(), reason)
    return loaded


def choose_engine(
    model: str | Path, engine: str, engine_kwargs: Mapping[str, Any]
) -> tuple[Literal["torch", "vllm"], str]:
    """Return the engine that runs a model, and the reason.

    Raises:
        ValueError: If there is no such engine.
    """
    match engine.lower():
        case "torch":
            return "torch", "it was asked for"
        case "vllm":
            return "vllm", "it was asked for"
        case "auto":
            reason = _reason_for_torch(model, engine_kwargs)
            return ("torch", reason) if reason else ("vllm", "vLLM is installed and there is a GPU")
    raise ValueError(f"{engine!r} is not an engine.{did_you_mean(engine, ENGINES)}")


def is_vllm_installed() -> bool:
    """Return whether vLLM is installed. It is not imported."""
    spec = importlib.util.find_spec("vllm")
    return spec is not None and spec.origin is not None  # a folder of that name is not a package


def _reason_for_torch(model: str | Path, engine_kwargs: Mapping[str, Any]) -> str | None:
    """Return why the torch engine runs a model, or None if vLLM can."""
    if not is_vllm_installed():
        return "vLLM is not installed"
    if not _has_gpu():
        return "there is no GPU"
    if is_gguf(model):
        return "vLLM does not read GGUF files"
    if engine_kwargs.get("quantization") == "int4":
        return "vLLM has no quantization='int4'"
    if "num_threads" in engine_kwargs:
        return "vLLM has no num_threads"
    return None


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def _load(
    choice: Literal["torch", "vllm"],
    model: str | Path,
    engine_kwargs: Mapping[str, Any],
    tokenizer: str | Path | None,
) -> Engine:
    try:
        if choice == "vllm":
            from skate.llm._engine.vllm_engine import VLLMEngine

            return VLLMEngine.load(model, engine_kwargs, tokenizer=tokenizer)
        from skate.llm._engine.torch_engine import TorchEngine

        return TorchEngine.load(model, engine_kwargs, tokenizer=tokenizer)
    except ModuleNotFoundError as error:
        raise ImportError(f"the {choice} engine needs {error.name}: pip install 'skate[llm]'") from error


def load_tokenizer(model: str | Path) -> Tokenizer:
    """Load the tokenizer of a model, without its weights.

    Args:
        model: A folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub.

    Raises:
        FileNotFoundError: If a file of the model is missing.
        ImportError: If a package is not installed.
        ValueError: If a file is corrupt, or the model is of a kind that is not supported.
    """
    return open_model(model).tokenizer
