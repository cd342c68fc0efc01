"""vLLM on a CPU. Starting it takes longer than the tests, so the tests of a module share an engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.llm.serve.conftest import run_app as run_app

if TYPE_CHECKING:
    from skate.llm._engine.vllm_engine import VLLMEngine

# vLLM and its processes read these: they do not contact a hub, and send no usage statistics.
os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}

# Exact, and without what takes time at the start.
SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "kv_cache_memory_bytes": 64 * 2**20,
    "block_size": 32,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 512,
}
# vLLM's attention on CPUs has kernels for certain sizes of heads.
MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
Load = Callable[..., AbstractContextManager["VLLMEngine"]]


@pytest.fixture(scope="session")
def load() -> Load:
    """Return a function that loads a model for the time of a `with` statement."""
    from skate.llm._engine.vllm_engine import VLLMEngine  # with torch, which other runs do not need

    @contextmanager
    def load(folder: Path, **settings: Any) -> Iterator[VLLMEngine]:
        engine = VLLMEngine.load(folder, {**SETTINGS, **settings})
        yield engine
        asyncio.run(engine.close())

    return load


@pytest.fixture(scope="session", autouse=True)
def tracker_of_shared_memory() -> None:
    """Start the process of Python that vLLM's queues need, and that stays until the end."""
    resource_tracker.ensure_running()


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """The module's engine stays for its other tests. What it leaves is looked for after the last."""
