"""A stand-in for vLLM, for the mapping of fields and errors. `make compat-vllm` tests the engine with vLLM itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest


class VLLMClientError(Exception):
    """What vLLM raises for a bad request."""


class RequestOutputKind(Enum):
    DELTA = 1


class Params(SimpleNamespace):
    """Sampling, pooling or structured-output parameters, or an adapter: the fields that were given."""


class SamplingParams(Params):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if self.temperature > 2:
            raise VLLMClientError(f"temperature must be in [0, 2], got {self.temperature}.")


@dataclass
class AsyncEngineArgs:
    model: str
    tokenizer: str | None = None
    max_model_len: int | None = None
    enable_lora: bool = False
    enable_sleep_mode: bool = False
    runner: str = "generate"
    scheduling_policy: str = "fcfs"
    logprobs_mode: str = "raw_logprobs"
    structured_outputs_config: Any = field(default_factory=lambda: SimpleNamespace(backend="auto"))


class AsyncLLM:
    """Records its calls, and yields the outputs in `outputs`, or raises one that is an error."""

    made: ClassVar[list[AsyncLLM]] = []

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        self.arguments = arguments
        self.calls: list[tuple[Any, ...]] = []
        self.outputs: list[Any] = []
        self.errored = False
        self.is_shut_down = False
        model = SimpleNamespace(
            max_model_len=arguments.max_model_len or 256,
            get_vocab_size=lambda: 401,
            runner_type=arguments.runner,
            enable_sleep_mode=arguments.enable_sleep_mode,
            architecture="LlamaForCausalLM",
            dtype="torch.float32",
            get_diff_sampling_param=lambda: {"temperature": 0.6, "top_k": -1, "max_tokens": 64},
        )
        self.vllm_config = SimpleNamespace(
            model_config=model,
            device_config=SimpleNamespace(device_type="cuda"),
            lora_config=object() if arguments.enable_lora else None,
        )
        AsyncLLM.made.append(self)

    @classmethod
    def from_engine_args(cls, arguments: AsyncEngineArgs) -> AsyncLLM:
        if arguments.model.endswith("broken"):
            raise ValueError("no such model")
        return cls(arguments)

    async def generate(
        self, prompt: Any, params: Any, request_id: str, *, lora_request: Any = None, priority: int = 0
    ) -> AsyncIterator[Any]:
        self.calls.append(("generate", prompt, params, request_id, lora_request, priority))
        for output in self.outputs:
            if isinstance(output, Exception):
                raise output
            yield output
            if output.outputs[0].finish_reason is not None:
                return
        await asyncio.Event().wait()

    async def is_paused(self) -> bool:
        return False

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        self.calls.append(("reset_prefix_cache", reset_running_requests))
        return reset_running_requests

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, *args, *([kwargs] if kwargs else [])))
            return True

        return call

    def shutdown(self) -> None:
        self.is_shut_down = True


def output(text: str, tokens: list[int], finish: str | None = None, **more: Any) -> Any:
    """Return an output of vLLM."""
    made = SimpleNamespace(
        text=text,
        token_ids=tokens,
        logprobs=more.get("logprobs"),
        finish_reason=finish,
        stop_reason=more.get("stop_reason"),
    )
    return SimpleNamespace(outputs=[made], num_cached_tokens=more.get("cached"), metrics=more.get("metrics"))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `import vllm` find the stand-in."""
    AsyncLLM.made.clear()
    contents = {
        "vllm": {
            "__version__": "0.0",
            "AsyncEngineArgs": AsyncEngineArgs,
            "AsyncLLMEngine": AsyncLLM,
            "SamplingParams": SamplingParams,
            "PoolingParams": Params,
        },
        "vllm.exceptions": {"VLLMClientError": VLLMClientError},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": Params},
        "vllm.sampling_params": {
            "RequestOutputKind": RequestOutputKind,
            "StructuredOutputsParams": Params,
        },
    }
    for name, values in contents.items():
        module = ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)
