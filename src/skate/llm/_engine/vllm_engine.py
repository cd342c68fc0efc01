"""vLLM behind the interface of an engine."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import multiprocessing
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from skate.llm._engine.adapters import check_adapter
from skate.llm._engine.api import (
    EngineDeadError,
    GenerationOutput,
    GenerationRequest,
    KVTransferError,
    Tokenizer,
)
from skate.llm._engine.model_files import is_gguf, open_tokenizer, read_weight_shapes
from skate.llm._engine.request_checks import check_prompt, check_tokens, find_adapter
from skate.llm._engine.sampling_defaults import sampling_defaults
from skate.llm._engine.vllm_mapping import VLLM, OutputReader, engine_arguments, sampling_params

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")

# Seconds without an answer after which the engine counts as stuck. vLLM compiles some functions when they are first
# used, such as the ranks of log-probabilities, and a step on a CPU may compute thousands of tokens.
_STALL_TIMEOUT, _STALL_TIMEOUT_ON_CPU = 30.0, 60.0
_JOIN_TIMEOUT = 10.0  # for processes that vLLM has killed
_log = logging.getLogger("skate.llm")


class VLLMEngine:
    """Generates text with vLLM, which runs the model in processes of its own.

    vLLM's asynchronous engine belongs to one event loop. It gets one in a thread of its own, so that an engine can be
    used from any event loop, as the torch engine can. `close` it at the end.

    Args:
        vllm: The names of vLLM.
        arguments: vLLM's `AsyncEngineArgs`.
        tokenizer: The model's tokenizer.
        stall_timeout: `check_health` fails when vLLM does not answer for this many seconds; None chooses 30 with an
            accelerator, and 60 on a CPU.
    """

    def __init__(
        self, vllm: VLLM, arguments: Any, tokenizer: Tokenizer, *, stall_timeout: float | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.weights_version = 0
        self._vllm = vllm
        self._is_closed = False
        self._numbers = itertools.count(1)
        self._adapters: dict[str, Any] = {}
        self._model = str(arguments.model)
        self._weight_shapes: dict[str, tuple[int, ...]] | None = None
        # By request id; used in the thread of vLLM alone.
        self._running: dict[str, asyncio.Task[Any] | None] = {}
        is_started: Future[Any] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(arguments, is_started)), name="skate-llm-vllm", daemon=True
        )
        self._thread.start()
        self._engine: Any = is_started.result()
        config = self._engine.vllm_config
        self.max_model_len: int = config.model_config.max_model_len
        self.sampling_defaults = sampling_defaults(config.model_config.get_diff_sampling_param())
        self._device = str(config.device_config.device_type)
        self._vocab_size = int(config.model_config.get_vocab_size())
        self._embeds = config.model_config.runner_type == "pooling"
        self._can_sleep = bool(config.model_config.enable_sleep_mode)
        self._has_lora = config.lora_config is not None
        self._description = (
            f"vLLM {vllm.version} on {'the CPU' if self._device == 'cpu' else self._device}; "
            f"{config.model_config.architecture} in {str(config.model_config.dtype).removeprefix('torch.')}, "
            f"context of {self.max_model_len} tokens"
        )
        if self._device == "cpu" and self._has_lora:
            _log.warning(
                "vLLM 0.32 on a CPU also applies an adapter to requests without one that run beside it "
                "(vllm-project/vllm#48421): use the torch engine for both"
            )
        if stall_timeout is None:
            stall_timeout = _STALL_TIMEOUT_ON_CPU if self._device == "cpu" else _STALL_TIMEOUT
        self._stall_timeout = stall_timeout

    async def _live(self, arguments: Any, is_started: Future[Any]) -> None:
        """Start vLLM, and run its event loop until the engine is closed."""
        others = multiprocessing.active_children()
        try:
            engine = self._vllm.AsyncLLM.from_engine_args(arguments)
        except BaseException as error:
            is_started.set_exception(error)
            return
        processes = [each for each in multiprocessing.active_children() if each not in others]
        self._loop = asyncio.get_running_loop()
        self._must_end = asyncio.Event()
        is_started.set_result(engine)
        await self._must_end.wait()
        for task in list(self._running.values()):
            if task is not None:
                task.cancel()
        engine.shutdown()
        for process in processes:
            process.join(_JOIN_TIMEOUT)
        self._engine = None  # vLLM fails if the engine still exists when the interpreter ends

    @classmethod
    def load(
        cls,
        path: str | Path,
        engine_kwargs: Mapping[str, Any] | None = None,
        *,
        tokenizer: str | Path | None = None,
    ) -> VLLMEngine:
        """Load a model: a folder, or an id on the hub.

        Args:
            path: The model.
            engine_kwargs: Fields of vLLM's `AsyncEngineArgs`.
            tokenizer: A folder with another tokenizer.

        Raises:
            FileNotFoundError: If a file is missing.
            ImportError: If vLLM is not installed.
            ValueError: If an argument is unknown, or vLLM does not support the model.
        """
        if is_gguf(path):
            raise ValueError(
                f"vLLM does not read GGUF files such as {path}: use the torch engine, or a folder with safetensors"
            )
        vllm = VLLM.load()
        arguments = engine_arguments(vllm, path, engine_kwargs or {}, tokenizer)
        return cls(vllm, arguments, open_tokenizer(path, tokenizer))

    def describe(self) -> str:
        """Describe the engine in one line."""
        return self._description

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationOutput]:
        """Continue a prompt. Leaving the loop over the pieces aborts the request.

        Raises:
            ValueError: If the request can never run; the engine and its other requests are not affected.
            EngineDeadError: If the engine has failed.
        """
        self._check_alive()
        if request.prefilled is not None:
            raise KVTransferError(
                "vLLM cannot continue a prompt that another engine has prefilled; leave `prefilled` out, or use "
                "engine='torch'"
            )
        check_prompt(request.prompt, room=self.max_model_len - 1, vocab_size=self._vocab_size)
        check_tokens("logit_bias", request.params.logit_bias, vocab_size=self._vocab_size)
        try:
            params = sampling_params(self._vllm, request.params, self.tokenizer.eos_token_ids)
        except self._vllm.client_errors as error:
            raise ValueError(str(error)) from error
        adapter = None if request.adapter is None else find_adapter(self._adapters, request.adapter)
        caller = asyncio.get_running_loop()
        pieces: asyncio.Queue[GenerationOutput | Exception] = asyncio.Queue()
        running = self._submit(
            lambda: self._run(
                request,
                params,
                adapter,
                lambda piece: caller.call_soon_threadsafe(pieces.put_nowait, piece),
            )
        )
        has_ended = False
        try:
            while not has_ended:
                piece = await pieces.get()
                has_ended = isinstance(piece, Exception) or piece.finish_reason is not None
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            if not has_ended:
                running.cancel()

    async def abort(self, request_id: str) -> None:
        """End a request; its last piece has the finish reason `ABORT`."""
        await self._call(lambda: self._engine.abort(request_id))

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return one vector of length 1 for each prompt, made as the model's files say.

        Raises:
            ValueError: If the engine was loaded to generate text.
        """
        if not self._embeds:
            raise ValueError(
                "vLLM embeds or generates, and this engine generates: load another one with runner='pooling' for "
                "embeddings"
            )
        for prompt in prompts:
            check_prompt(prompt, room=self.max_model_len, vocab_size=self._vocab_size)
        return await self._call(lambda: asyncio.gather(*map(self._embed, prompts)))

    async def check_health(self) -> None:
        """Raise `EngineDeadError` if the engine has failed or makes no progress."""
        try:
            # The process that runs the steps answers between two of them.
            await asyncio.wait_for(self._call(lambda: self._engine.is_paused()), self._stall_timeout)
        except TimeoutError:
            raise EngineDeadError(
                f"vLLM has not answered for {self._stall_timeout:g} s: it is stuck, or a step takes that long"
            ) from None

    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes."""
        if not await self._call(lambda: self._engine.reset_prefix_cache()):
            # Running requests hold blocks of the cache: vLLM interrupts them and computes their tokens again.
            await self._call(lambda: self._engine.reset_prefix_cache(reset_running_requests=True))

    async def update_weights(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> int:
        """Replace every weight, between two steps, and return the new `weights_version`.

        The weights go to vLLM's processes through a temporary file. Requests that run continue with the new weights,
        and prefixes of the old ones are not shared any more.

        Raises:
            ValueError: If vLLM refuses a tensor. Some of the weights may have been replaced: pass all of them again.
        """
        with tempfile.TemporaryDirectory(prefix="skate-weights-") as folder:
            await asyncio.to_thread(_save_weights, Path(folder), tensors)
            reload = {"weights_path": folder}
            try:
                await self._call(lambda: self._engine.collective_rpc("reload_weights", kwargs=reload))
            except RuntimeError as error:
                if isinstance(error, EngineDeadError):
                    raise
                raise ValueError(f"vLLM has refused the weights: {error}") from error
        await self.reset_prefix_cache()
        self.weights_version += 1
        return self.weights_version

    async def add_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter from a folder, or replace the one of the same name for later requests.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If the adapter does not fit the model, or the engine was loaded without adapters.
        """
        if not self._has_lora:
            raise ValueError(
                "vLLM was started without adapters: load the model with enable_lora=True, and with max_lora_rank if "
                "the rank of an adapter is more than 16"
            )
        # vLLM would detect this only in the step that uses the adapter, which would end the engine.
        folder = await asyncio.to_thread(self._check_adapter, path)
        number = next(self._numbers)
        # A new name for each load: vLLM shares prefixes between adapters of equal names.
        adapter = self._vllm.LoRARequest(lora_name=f"{name}#{number}", lora_int_id=number, lora_path=folder)
        try:
            is_loaded = await self._call(lambda: self._engine.add_lora(adapter))
        except EngineDeadError:
            raise
        except Exception as error:
            raise ValueError(f"vLLM cannot load the adapter in {path}: {error}") from error
        if not is_loaded:
            raise ValueError(f"vLLM has not loaded the adapter in {path}; its log says why")
        replaced, self._adapters[name] = self._adapters.get(name), adapter
        if replaced is not None:
            await self._call(lambda: self._engine.remove_lora(replaced.lora_int_id))

    async def remove_adapter(self, name: str) -> None:
        """Unload a LoRA adapter. For requests that still use it, vLLM loads it again from its folder.

        Raises:
            ValueError: If there is no such adapter.
        """
        adapter = find_adapter(self._adapters, name)
        del self._adapters[name]
        await self._call(lambda: self._engine.remove_lora(adapter.lora_int_id))

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of every worker of vLLM, and return the results.

        Args:
            method: The name of a method of vLLM's workers, or of the class that `worker_extension_cls` names.
            timeout: The timeout in seconds; None for no limit.
            args: The arguments.
            kwargs: The keyword arguments.
        """
        given = dict(kwargs or {})
        results = await self._call(
            lambda: self._engine.collective_rpc(method, timeout=timeout, args=args, kwargs=given)
        )
        return list(results)

    async def start_profile(self) -> None:
        """Start to record what vLLM computes. It needs vLLM's `profiler_config`."""
        await self._call(lambda: self._engine.start_profile())

    async def stop_profile(self) -> None:
        """Stop recording. vLLM writes a trace to the folder of its `profiler_config`."""
        await self._call(lambda: self._engine.stop_profile())

    async def pause(self) -> None:
        """Stop running steps until `resume` is called. Requests are kept."""
        await self._call(lambda: self._engine.pause_generation(mode="keep", clear_cache=False))

    async def resume(self) -> None:
        """Continue after `pause`."""
        await self._call(lambda: self._engine.resume_generation())

    async def sleep(self, *, weights: bool = True, kv_cache: bool = True) -> None:
        """Free the accelerator's memory of the KV cache, or of the weights too, which are kept in host memory.

        Later requests wait for `wake_up`.

        Raises:
            NotImplementedError: If only the weights are to be freed.
            ValueError: If requests are running, or the engine was loaded without `enable_sleep_mode`.
        """
        if not self._can_sleep:
            raise ValueError(
                "vLLM was started without its sleep mode: load the model with enable_sleep_mode=True, on a GPU; or "
                "close the engine to free its memory"
            )
        if weights and not kv_cache:
            raise NotImplementedError(
                "vLLM frees the weights only together with the KV cache: call sleep() without arguments"
            )
        await self._call(lambda: self._sleep(weights=weights, kv_cache=kv_cache))

    async def wake_up(self) -> None:
        """Undo `sleep`."""
        await self._call(lambda: self._engine.wake_up())

    async def close(self) -> None:
        """Abort every request, and end vLLM's processes."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._must_end.set)
        await asyncio.to_thread(self._thread.join)

    def _check_alive(self) -> None:
        if self._is_closed:
            raise EngineDeadError("the engine is closed")
        if self._engine.errored:
            raise EngineDeadError("vLLM has failed; its log says why")

    def _submit(self, function: Callable[[], Awaitable[_T]]) -> Future[_T]:
        """Run a function in the event loop of vLLM."""

        async def run() -> _T:
            return await function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    async def _call(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Run a function in the event loop of vLLM, and return its result. Errors of vLLM are translated."""
        self._check_alive()
        try:
            return await asyncio.wrap_future(self._submit(function))
        except Exception as error:
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> Exception:
        if self._is_closed:
            return EngineDeadError("the engine is closed")
        if self._engine.errored:
            return EngineDeadError(f"vLLM has failed: {error}")
        if isinstance(error, self._vllm.client_errors):
            return ValueError(str(error))
        return RuntimeError(f"a call to vLLM failed: {error.__cause__ or error!r}")

    async def _run(
        self,
        request: GenerationRequest,
        params: Any,
        adapter: Any,
        deliver: Callable[[GenerationOutput | Exception], object],
    ) -> None:
        """Run a request in the event loop of vLLM, and deliver its pieces or its error."""
        if request.request_id in self._running:
            deliver(ValueError(f"a request with the id {request.request_id!r} is running already"))
            return
        task = self._running[request.request_id] = asyncio.current_task()

        def forget() -> None:
            if self._running.get(request.request_id) is task:
                del self._running[request.request_id]

        def end(last: GenerationOutput | Exception) -> None:
            forget()  # first, so that the id is free when the caller sees the end
            deliver(last)

        prompt = {"type": "token", "prompt_token_ids": list(request.prompt)}
        if request.cache_salt:
            prompt["cache_salt"] = request.cache_salt
        reader = OutputReader(request)
        try:
            outputs = self._engine.generate(
                prompt, params, request.request_id, lora_request=adapter, priority=request.priority
            )
            async with aclosing(outputs):
                async for output in outputs:
                    piece = reader.read(output)
                    (deliver if piece.finish_reason is None else end)(piece)
        except asyncio.CancelledError:
            if self._is_closed:
                end(EngineDeadError("the engine is closed"))
            raise
        except Exception as error:
            end(self._translate(error))
        finally:
            forget()

    async def _embed(self, prompt: Sequence[int]) -> list[float]:
        vector: list[float] = []
        async for output in self._engine.encode(
            {"type": "token", "prompt_token_ids": list(prompt)},
            self._vllm.PoolingParams(task="embed"),
            f"embedding-{next(self._numbers)}",
        ):
            vector = output.outputs.data.tolist()
        length = math.hypot(*vector) or 1.0
        return [value / length for value in vector]

    def _check_adapter(self, path: str) -> str:
        """Check that an adapter fits the model, and return its absolute path."""
        if self._weight_shapes is None:
            self._weight_shapes = read_weight_shapes(self._model)
        check_adapter(Path(path), self._weight_shapes)
        return os.path.abspath(path)

    async def _sleep(self, *, weights: bool, kv_cache: bool) -> None:
        if self._running:
            raise ValueError(
                f"the engine cannot sleep while {len(self._running)} requests run; wait for them or abort them"
            )
        if weights:
            await self._engine.sleep(level=1)
        elif kv_cache:
            await self._engine.pause_generation(mode="keep", clear_cache=False)
            await self._engine.release_kv_cache_memory()


def _save_weights(folder: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    from safetensors.torch import save_file

    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
