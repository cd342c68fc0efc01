"""Loading a model: its weights, a KV cache of the right size, and a scheduler."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import psutil
import torch

from skate._base.suggestions import did_you_mean
from skate.llm._engine.api import Tokenizer
from skate.llm._engine.attention import KVCache
from skate.llm._engine.blocks import BlockPool
from skate.llm._engine.decoder import Decoder, MakeLinear
from skate.llm._engine.linear import Int4Linear, TransposedLinear
from skate.llm._engine.model_config import ModelConfig, read_model_config
from skate.llm._engine.runner import Runner
from skate.llm._engine.scheduler import Scheduler
from skate.llm._engine.weights import llama_names

_log = logging.getLogger("skate.llm")
_MEMORY_SHARE = 0.5  # of the free memory, at most, for the KV cache


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchEngineConfig:
    """Settings of the embedded engine. The names are those of vLLM's engine arguments.

    Args:
        max_model_len: The most tokens of a prompt and its output together; None takes the model's own limit.
        max_num_seqs: Most requests that generate at a time; others wait.
        max_num_batched_tokens: Most tokens that one step computes. A longer prompt is computed in several steps.
        block_size: Tokens in a block of the KV cache.
        enable_prefix_caching: Whether prompts share the keys and values of equal prefixes.
        quantization: `"int4"` stores the matrices in 4 bits.
        kv_cache_memory_bytes: Memory for the KV cache; None takes what the other settings need, or half of the free
            memory if that is less.

    Raises:
        ValueError: If a value is outside its range.
    """

    max_model_len: int | None = None
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 256
    block_size: int = 16
    enable_prefix_caching: bool = True
    quantization: Literal["int4"] | None = None
    kv_cache_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.quantization not in (None, "int4"):
            raise ValueError(f"quantization must be 'int4' or None, got {self.quantization!r}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
                f"({self.max_num_seqs}), so that every request can generate a token in each step"
            )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> TorchEngineConfig:
        """Make a configuration from engine arguments.

        Raises:
            ValueError: If an argument is unknown; the message names the nearest.
        """
        known = [each.name for each in fields(cls)]
        for name in kwargs:
            if name not in known:
                raise ValueError(f"the torch engine has no argument {name!r}.{did_you_mean(name, known)}")
        return cls(**kwargs)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run."""

    config: ModelConfig
    tokenizer: Tokenizer
    scheduler: Scheduler
    runner: Runner
    max_model_len: int


def load_model(
    config: Mapping[str, Any],
    tensors: Iterable[tuple[str, torch.Tensor]],
    tokenizer: Tokenizer,
    settings: TorchEngineConfig,
) -> LoadedModel:
    """Load a model onto the CPU.

    Args:
        config: The contents of the model's `config.json`.
        tensors: The tensors of its checkpoint.
        tokenizer: Its tokenizer.
        settings: Settings of the engine.

    Raises:
        ValueError: If the engine does not support the model, or its files do not fit together.
    """
    model_config = read_model_config(config)
    max_model_len, blocks = _size_cache(model_config, settings)
    decoder = Decoder(
        model_config,
        dict(llama_names(model_config.model_type, tensors)),
        make_linear=_make_linear(settings),
        device=torch.device("cpu"),
        dtype=torch.float32,
        max_length=max_model_len,
    )
    cache = KVCache(model_config, blocks, settings.block_size, torch.float32, torch.device("cpu"))
    scheduler = Scheduler(
        BlockPool(blocks, settings.block_size),
        max_sequences=settings.max_num_seqs,
        max_step_tokens=settings.max_num_batched_tokens,
        prefix_caching=settings.enable_prefix_caching,
    )
    return LoadedModel(model_config, tokenizer, scheduler, Runner(decoder, cache), max_model_len)


def _make_linear(settings: TorchEngineConfig) -> MakeLinear:
    if settings.quantization is None:
        return TransposedLinear
    return Int4Linear


def _size_cache(config: ModelConfig, settings: TorchEngineConfig) -> tuple[int, int]:
    """Return the longest sequence, and the number of blocks: what the settings need, if there is memory for it."""
    size = settings.block_size
    longest = settings.max_model_len or config.max_position_embeddings
    if longest > config.max_position_embeddings:
        raise ValueError(
            f"max_model_len is {longest}, but the model was made for at most {config.max_position_embeddings} tokens"
        )
    block_bytes = config.kv_bytes_per_token * size * torch.float32.itemsize
    memory = settings.kv_cache_memory_bytes
    if memory is None:
        memory = int(psutil.virtual_memory().available * _MEMORY_SHARE)
    affordable = memory // block_bytes
    needed = settings.max_num_seqs * -(-longest // size)
    if affordable < 1:
        raise ValueError(f"the KV cache needs at least {block_bytes:,} bytes, and {memory:,} are to be had")
    if affordable * size < longest:
        _log.warning(
            "the context is shortened from %d to %d tokens, because the KV cache of one request would take "
            "%.1f GB and %.1f GB are to be had",
            longest,
            affordable * size,
            config.kv_bytes_per_token * longest * torch.float32.itemsize / 1e9,
            memory / 1e9,
        )
        longest = affordable * size
    return longest, min(needed, affordable)
