"""Loading a model: its weights, a KV cache of the right size, and a scheduler."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import torch

from skate._base.suggestions import did_you_mean
from skate.llm._engine.adapters import Adapter, load_adapter
from skate.llm._engine.api import KVLayout
from skate.llm._engine.attention import HostCopy, KeysValues, KVCache, stage
from skate.llm._engine.blocks import BlockPool
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.layer_ops import LayerOps, TorchLayerOps
from skate.llm._engine.linear import (
    Bfloat16Linear,
    MakeHead,
    MakeLinear,
    PlainLinear,
    TransposedLinear,
    has_bfloat16,
    make_int4_head,
    make_int4_linear,
)
from skate.llm._engine.model_config import ModelConfig, read_model_config
from skate.llm._engine.model_files import ModelFiles
from skate.llm._engine.profiler import check_profiler_config
from skate.llm._engine.runner import CpuRunner, Runner
from skate.llm._engine.sampling_defaults import check_sampling_settings, sampling_defaults
from skate.llm._engine.scheduler import Import, Scheduler
from skate.llm._engine.scheduler import Sequence as TokenSequence
from skate.llm._engine.weights import llama_names

_log = logging.getLogger("skate.llm")
# Arguments of vLLM's engine. The first must be 1 here; the others have no effect.
_SINGLE = ("tensor_parallel_size", "pipeline_parallel_size")
_WITHOUT_EFFECT = (
    "kv_transfer_config",  # prompts are transferred through the object store
    "data_parallel_size",  # is the number of replicas
    "disable_log_requests",
    "disable_log_stats",
    "distributed_executor_backend",
    "enable_chunked_prefill",
    "enable_lora",
    "max_cpu_loras",
    "max_lora_rank",
    "max_loras",
    "runner",  # one engine generates and embeds
    "swap_space",
    "trust_remote_code",
)
_MEMORY_SHARE = 0.5  # of the free memory, at most, for the KV cache on a CPU
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchEngineConfig:
    """Settings of the embedded engine. The names are those of vLLM's engine arguments.

    Args:
        max_model_len: The maximum number of tokens of a prompt and its output; None uses the model's own limit.
        device: `"auto"` is a GPU if there is one, unless the weights have 4 bits.
        dtype: The type of weights and activations on a GPU; `"auto"` is bfloat16. A CPU computes in float32, and with
            `"bfloat16"` matrix products in bfloat16 if it has instructions for that.
        max_num_seqs: The maximum number of requests that generate at a time; others wait. None is 16 on a CPU and
            256 on a GPU.
        max_num_batched_tokens: The maximum number of tokens that one step computes. A longer prompt is computed in
            several steps. None is 256 on a CPU and 8,192 on a GPU.
        block_size: The number of tokens in a block of the KV cache.
        enable_prefix_caching: Whether prompts share the keys and values of equal prefixes.
        quantization: `"int4"` stores the matrices in 4 bits, on a CPU; the embeddings stay in float32.
        kv_cache_memory_bytes: The memory for the KV cache in bytes. None allocates what the other settings need: at
            most half of the free memory on a CPU, or what `gpu_memory_utilization` leaves on a GPU.
        gpu_memory_utilization: The share of a GPU's memory that the engine may use.
        enforce_eager: Whether to run without CUDA graphs, which saves memory but is slower.
        profiler_config: Where to write traces, as vLLM's: `{"profiler": "torch", "torch_profiler_dir": "/tmp/traces"}`.
        num_threads: The number of threads that compute a step; None uses one for each CPU that the process may use.
        generation_config: Where the sampling parameters of requests that do not set them come from: `"auto"` is the
            model's generation_config.json, `"vllm"` uses none, and a folder the file in it.
        override_generation_config: Fields that replace those of that file, such as `{"temperature": 0.2}`.

    Raises:
        ValueError: If a value is outside its range.
    """

    max_model_len: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int = 16
    enable_prefix_caching: bool = True
    quantization: Literal["int4"] | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    enforce_eager: bool = False
    profiler_config: Mapping[str, Any] | None = None
    num_threads: int | None = None
    generation_config: str = "auto"
    override_generation_config: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.quantization not in (None, "int4"):
            raise ValueError(f"quantization must be 'int4' or None, got {self.quantization!r}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}")
        if self.dtype != "auto" and self.dtype not in _DTYPES:
            raise ValueError(f"dtype must be 'auto', {', '.join(map(repr, _DTYPES))}, got {self.dtype!r}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization must be above 0 and at most 1, got {self.gpu_memory_utilization}"
            )
        if self.profiler_config is not None:
            check_profiler_config(self.profiler_config)
        check_sampling_settings(self.generation_config, self.override_generation_config)
        if None not in (self.max_num_batched_tokens, self.max_num_seqs):
            self.step_limits("cpu")

    def step_limits(self, device: str) -> tuple[int, int]:
        """Return how many requests and how many tokens a step computes at most on a type of device.

        Raises:
            ValueError: If a step could not compute a token of each request.
        """
        requests, tokens = (16, 256) if device == "cpu" else (256, 8192)
        tokens = self.max_num_batched_tokens or max(tokens, self.max_num_seqs or 0)
        requests = self.max_num_seqs or min(requests, tokens)
        if tokens < requests:
            raise ValueError(
                f"max_num_batched_tokens ({tokens}) must be at least max_num_seqs ({requests}), so that every "
                "request can generate a token in each step"
            )
        return requests, tokens

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> TorchEngineConfig:
        """Make a configuration from engine arguments.

        Arguments of vLLM that have no meaning for a single process are ignored, if their values request nothing that
        the engine lacks.

        Raises:
            ValueError: If an argument is unknown (the message suggests the closest one), or requests several GPUs.
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
        ValueError: If the engine does not support the model or a setting, or the files do not fit together.
    """

    def __init__(self, files: ModelFiles, settings: TorchEngineConfig) -> None:
        self.device, self.dtype = _choose_device(settings)
        self.matrix_type = settings.quantization or _matrix_type(self.device, self.dtype, settings.dtype)
        self.config = read_model_config(files.config)
        self.sampling_defaults = sampling_defaults(
            files.generation_config, settings.generation_config, settings.override_generation_config
        )
        self.tokenizer = files.tokenizer
        self.adapters: dict[str, Adapter] = {}
        self.settings = settings
        self.num_threads = settings.num_threads or _usable_cpus()
        self._files = files
        self._max_sequences, max_step_tokens = settings.step_limits(self.device.type)
        self._longest = _longest_sequence(self.config, settings)
        decoder = self.make_decoder(files.tensors())
        self._decoder: Decoder | None = decoder
        self._layout = self._layout_of(decoder)
        self.max_model_len, self._blocks = self._size_cache()
        self._cache: KVCache | None = self._make_cache()
        self._runner: Runner | None = None
        self.scheduler = Scheduler(
            BlockPool(self._blocks, settings.block_size),
            max_sequences=self._max_sequences,
            max_step_tokens=max_step_tokens,
            prefix_caching=settings.enable_prefix_caching,
        )

    @property
    def runner(self) -> Runner:
        """Runs steps of the model, which must be loaded."""
        if self._runner is None:
            self._runner = self._make_runner()
        return self._runner

    @property
    def layout(self) -> KVLayout:
        """What keys and values depend on. While the weights are unloaded, it is that of the previous ones."""
        return self._layout

    @property
    def runs_ahead(self) -> bool:
        """Whether a step can be launched before the tokens of the one before it are known."""
        return self.device.type != "cpu"

    def make_decoder(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> Decoder:
        """Lay out weights for the device.

        Raises:
            ValueError: If a tensor is missing or has the wrong shape.
        """
        make_linear: MakeLinear = PlainLinear
        make_head: MakeHead | None = None
        ops: LayerOps = TorchLayerOps()
        if self.settings.quantization is not None:
            make_linear, make_head = make_int4_linear, make_int4_head
        elif self.device.type == "cpu":
            make_linear = Bfloat16Linear if self.matrix_type == "bfloat16" else TransposedLinear
        else:
            from skate.llm._engine.gpu_kernels import FusedLayerOps

            ops = FusedLayerOps()
        decoder = Decoder(
            self.config,
            dict(llama_names(self.config.model_type, tensors)),
            make_linear=make_linear,
            make_head=make_head,
            device=self.device,
            dtype=self.dtype,
            max_length=self._longest,
            ops=ops,
        )
        if self.device.type != "cpu":
            torch.cuda.synchronize()  # the thread of the engine uses it next
        return decoder

    def replace_weights(self, decoder: Decoder) -> None:
        """Replace the weights from the next step on. Prefixes computed with the old ones are no longer shared."""
        self._decoder = decoder
        self._runner = None
        self.scheduler.forget_prefixes()
        self._set_layout(decoder)

    def export(self, sequence: TokenSequence) -> HostCopy:
        """Copy the keys and values of the prompt of a sequence that has computed them."""
        assert self._cache is not None
        return self._cache.read(sequence.blocks, sequence.prompt_length)

    def stage(self, keys_values: np.ndarray[Any, Any]) -> KeysValues:
        """Copy keys and values to where a GPU reads them fast. It may be called from any thread."""
        return stage(keys_values, self.dtype)

    def run_import(self, each: Import, keys_values: KeysValues) -> None:
        """Write the planned part of the keys and values of a prompt into the cache; for a GPU, `stage` made them."""
        assert self._cache is not None
        self._cache.write(each.sequence.blocks, each.start, each.count, keys_values)

    def add_adapter(self, name: str, folder: Path) -> None:
        """Load a LoRA adapter, or replace the one of the same name for later requests."""
        self.adapters[name] = load_adapter(name, folder, self.config, device=self.device, dtype=self.dtype)

    def unload(self, *, weights: bool, kv_cache: bool) -> None:
        """Free the memory of the weights, the KV cache, or both."""
        self._runner = None
        if weights:
            self._decoder = None
        if kv_cache:
            self._cache = None
            self.scheduler.forget_prefixes()
        if self.device.type != "cpu":
            torch.cuda.empty_cache()

    def load(self) -> None:
        """Load what `unload` has freed; weights are read from the model's files."""
        if self._decoder is None:
            self._decoder = self.make_decoder(self._files.tensors())
            self._set_layout(self._decoder)
        if self._cache is None:
            self._cache = self._make_cache()

    def _set_layout(self, decoder: Decoder) -> None:
        layout = self._layout_of(decoder)
        if layout != self._layout:  # prompts that other engines have computed with the previous weights
            self.scheduler.forget_imports()
        self._layout = layout

    def _layout_of(self, decoder: Decoder) -> KVLayout:
        config = self.config
        return KVLayout(
            model_type=config.model_type,
            layers=config.num_layers,
            heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=str(self.dtype).removeprefix("torch."),
            matrix_type=self.matrix_type,
            weights=decoder.digest,
        )

    def _make_runner(self) -> Runner:
        assert self._decoder is not None
        assert self._cache is not None
        if self.device.type == "cpu":
            return CpuRunner(self._decoder, self._cache)
        from skate.llm._engine.gpu_runner import GpuRunner
        from skate.llm._engine.step_graphs import StepGraphs

        return GpuRunner(
            self._decoder,
            self._cache,
            max_sequences=self._max_sequences,
            max_blocks=-(-self.max_model_len // self.settings.block_size),
            make_graphs=None if self.settings.enforce_eager else StepGraphs,
        )

    def _make_cache(self) -> KVCache:
        spare = 0 if self.device.type == "cpu" else 1  # which padding writes to
        return KVCache(self.config, self._blocks + spare, self.settings.block_size, self.dtype, self.device)

    def _size_cache(self) -> tuple[int, int]:
        """Return the longest sequence, and the number of blocks: what the settings need, if there is memory for it."""
        size = self.settings.block_size
        token_bytes = self.config.kv_bytes_per_token * self.dtype.itemsize
        memory = self.settings.kv_cache_memory_bytes
        if memory is None:
            memory = _memory_for_cache(self.device, self.settings.gpu_memory_utilization)
        affordable = memory // (token_bytes * size)
        if affordable < 1:
            raise ValueError(
                f"the KV cache needs at least {token_bytes * size:,} bytes, but only {memory:,} are available"
            )
        longest = self._longest
        if affordable * size < longest:
            _log.warning(
                "the context is shortened from %d to %d tokens, because the KV cache of one request would take "
                "%.1f GB and %.1f GB are available",
                longest,
                affordable * size,
                token_bytes * longest / 1e9,
                memory / 1e9,
            )
            longest = affordable * size
        return longest, min(self._max_sequences * -(-longest // size), affordable)


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no affinity


def _longest_sequence(config: ModelConfig, settings: TorchEngineConfig) -> int:
    longest = settings.max_model_len or config.max_position_embeddings
    if longest > config.max_position_embeddings:
        raise ValueError(
            f"max_model_len is {longest}, but the model was made for at most {config.max_position_embeddings} tokens"
        )
    return longest


def _choose_device(settings: TorchEngineConfig) -> tuple[torch.device, torch.dtype]:
    """Return the device that a model runs on, and the type of its numbers there."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but torch finds no GPU; leave device out to use the CPU")
    if settings.device == "cuda" and settings.quantization is not None:
        raise ValueError("quantization='int4' works only on a CPU: leave device or quantization out")
    if settings.device == "cpu" or settings.quantization is not None or not torch.cuda.is_available():
        return torch.device("cpu"), torch.float32
    return torch.device("cuda"), _DTYPES.get(settings.dtype, torch.bfloat16)


def _matrix_type(device: torch.device, dtype: torch.dtype, wanted: str) -> str:
    """Return the type of the numbers in matrix products."""
    if device.type == "cpu" and wanted == "bfloat16" and has_bfloat16():
        return wanted
    used = str(dtype).removeprefix("torch.")
    if wanted not in ("auto", used):
        _log.warning("dtype=%r is not used: the engine computes in %s on this CPU", wanted, used)
    return used


def _memory_for_cache(device: torch.device, utilization: float) -> int:
    """Return the bytes that the KV cache may take when the weights are loaded."""
    if device.type == "cpu":
        return int(psutil.virtual_memory().available * _MEMORY_SHARE)
    free, total = torch.cuda.mem_get_info()
    # The rest is for the activations of a step and for CUDA graphs, which are allocated later.
    return max(0, int(free - total * (1 - utilization)))
