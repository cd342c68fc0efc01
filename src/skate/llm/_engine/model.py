"""Loading a model: its weights, a KV cache of the right size, and a scheduler."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import psutil
import torch

from skate._base.suggestions import did_you_mean
from skate.llm._engine.adapters import Adapter, load_adapter
from skate.llm._engine.attention import KVCache
from skate.llm._engine.blocks import BlockPool
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.linear import TransposedLinear, make_int4_linear
from skate.llm._engine.model_config import ModelConfig, read_model_config
from skate.llm._engine.model_files import ModelFiles
from skate.llm._engine.runner import Runner
from skate.llm._engine.scheduler import Scheduler
from skate.llm._engine.weights import llama_names

_log = logging.getLogger("skate.llm")
_DEVICE, _DTYPE = torch.device("cpu"), torch.float32
# Arguments of vLLM's engine. The first must be 1 here; the others have no effect.
_SINGLE = ("tensor_parallel_size", "pipeline_parallel_size")
_WITHOUT_EFFECT = (
    "data_parallel_size",  # is the number of replicas
    "disable_log_requests",
    "disable_log_stats",
    "distributed_executor_backend",
    "dtype",
    "enable_chunked_prefill",
    "enable_lora",
    "enforce_eager",
    "gpu_memory_utilization",
    "max_cpu_loras",
    "max_lora_rank",
    "max_loras",
    "runner",  # one engine generates and embeds
    "swap_space",
    "trust_remote_code",
)
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
        num_threads: Threads of a step; None takes one for each CPU that the process may use.

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
    num_threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "num_threads"):
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

        Arguments of vLLM that have no meaning for one process on a CPU are left out, if their value asks for nothing
        that the engine does not do.

        Raises:
            ValueError: If an argument is unknown, and the message names the nearest; or if it asks for several GPUs.
        """
        known = [each.name for each in fields(cls)]
        settings = {}
        for name, value in kwargs.items():
            if name in known:
                settings[name] = value
            elif name in _SINGLE and value not in (None, 1):
                raise ValueError(f"the torch engine runs in one process: {name} must be 1, got {value}")
            elif name not in _WITHOUT_EFFECT and name not in _SINGLE:
                raise ValueError(f"the torch engine has no argument {name!r}.{did_you_mean(name, known)}")
        return cls(**settings)


class Model:
    """A model in memory: its weights, its KV cache, and the scheduler of its requests.

    Raises:
        ValueError: If the engine does not support the model, or its files do not fit together.
    """

    def __init__(self, files: ModelFiles, settings: TorchEngineConfig) -> None:
        self.config = read_model_config(files.config)
        self.tokenizer = files.tokenizer
        self.adapters: dict[str, Adapter] = {}
        self.max_model_len, self._blocks = _size_cache(self.config, settings)
        self._files = files
        self.settings = settings
        self.num_threads = settings.num_threads or len(os.sched_getaffinity(0))
        self._decoder: Decoder | None = self.make_decoder(files.tensors())
        self._cache: KVCache | None = self._make_cache()
        self.scheduler = Scheduler(
            BlockPool(self._blocks, settings.block_size),
            max_sequences=settings.max_num_seqs,
            max_step_tokens=settings.max_num_batched_tokens,
            prefix_caching=settings.enable_prefix_caching,
        )

    @property
    def runner(self) -> Runner:
        """Runs steps of the model, which must be loaded."""
        assert self._decoder is not None
        assert self._cache is not None
        return Runner(self._decoder, self._cache)

    def make_decoder(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> Decoder:
        """Lay out weights for the device.

        Raises:
            ValueError: If a tensor is missing or has the wrong shape.
        """
        return Decoder(
            self.config,
            dict(llama_names(self.config.model_type, tensors)),
            make_linear=TransposedLinear if self.settings.quantization is None else make_int4_linear,
            device=_DEVICE,
            dtype=_DTYPE,
            max_length=self.max_model_len,
        )

    def replace_weights(self, decoder: Decoder) -> None:
        """Use other weights from the next step on. Prefixes that the old ones computed are not shared any more."""
        self._decoder = decoder
        self.scheduler.forget_prefixes()

    def add_adapter(self, name: str, folder: Path) -> None:
        """Load a LoRA adapter, or replace the one of the same name for requests that come later."""
        self.adapters[name] = load_adapter(name, folder, self.config, device=_DEVICE, dtype=_DTYPE)

    def unload(self, *, weights: bool, kv_cache: bool) -> None:
        """Free the memory of the weights, the KV cache, or both."""
        if weights:
            self._decoder = None
        if kv_cache:
            self._cache = None
            self.scheduler.forget_prefixes()

    def load(self) -> None:
        """Load what `unload` has freed; weights are read from the model's files."""
        if self._decoder is None:
            self._decoder = self.make_decoder(self._files.tensors())
        if self._cache is None:
            self._cache = self._make_cache()

    def _make_cache(self) -> KVCache:
        return KVCache(self.config, self._blocks, self.settings.block_size, _DTYPE, _DEVICE)


def _size_cache(config: ModelConfig, settings: TorchEngineConfig) -> tuple[int, int]:
    """Return the longest sequence, and the number of blocks: what the settings need, if there is memory for it."""
    size = settings.block_size
    longest = settings.max_model_len or config.max_position_embeddings
    if longest > config.max_position_embeddings:
        raise ValueError(
            f"max_model_len is {longest}, but the model was made for at most {config.max_position_embeddings} tokens"
        )
    block_bytes = config.kv_bytes_per_token * size * _DTYPE.itemsize
    memory = settings.kv_cache_memory_bytes
    if memory is None:
        memory = int(psutil.virtual_memory().available * _MEMORY_SHARE)
    affordable = memory // block_bytes
    needed = settings.max_num_seqs * -(-longest // size)
    if affordable < 1:
        raise ValueError(
            f"the KV cache needs at least {block_bytes:,} bytes, but only {memory:,} are available"
        )
    if affordable * size < longest:
        _log.warning(
            "the context is shortened from %d to %d tokens, because the KV cache of one request would take "
            "%.1f GB and %.1f GB are available",
            longest,
            affordable * size,
            config.kv_bytes_per_token * longest * _DTYPE.itemsize / 1e9,
            memory / 1e9,
        )
        longest = affordable * size
    return longest, min(needed, affordable)
