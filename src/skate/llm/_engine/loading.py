"""Loading an engine or a tokenizer without importing torch before it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate.llm._engine.api import Tokenizer
    from skate.llm._engine.torch_engine import TorchEngine


def load_engine(
    model: str | Path, *, tokenizer: str | Path | None = None, **engine_kwargs: Any
) -> TorchEngine:
    """Load a language model into this process.

    Args:
        model: A folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub.
        tokenizer: A folder with another tokenizer than the model's.
        **engine_kwargs: Settings with the names of vLLM's engine arguments: `max_model_len`, `max_num_seqs`,
            `max_num_batched_tokens`, `block_size`, `enable_prefix_caching`, `quantization` ("int4"),
            `kv_cache_memory_bytes`; and `num_threads`.

    Raises:
        FileNotFoundError: If a file of the model is missing.
        ImportError: If torch or another package is not installed.
        ValueError: If the engine does not support the model or a setting.
    """
    try:
        from skate.llm._engine.torch_engine import TorchEngine
    except ModuleNotFoundError as error:
        raise ImportError(f"the torch engine needs {error.name}: pip install 'skate[llm]'") from error
    return TorchEngine.load(model, engine_kwargs, tokenizer=tokenizer)


def load_tokenizer(model: str | Path) -> Tokenizer:
    """Load the tokenizer of a model, without its weights.

    Args:
        model: A folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub.

    Raises:
        FileNotFoundError: If a file of the model is missing.
        ImportError: If a package is not installed.
        ValueError: If a file is corrupt, or the model is of a kind that is not supported.
    """
    from skate.llm._engine.model_files import open_model

    return open_model(model).tokenizer
