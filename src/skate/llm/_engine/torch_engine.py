"""The embedded engine, which runs a model in this process with torch."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from skate._base.suggestions import did_you_mean
from skate.llm._engine.adapters import Adapter
from skate.llm._engine.api import (
    EngineDeadError,
    GenerationOutput,
    GenerationRequest,
    KVTransferError,
    PrefilledPrompt,
    Tokenizer,
)
from skate.llm._engine.attention import KeysValues
from skate.llm._engine.blocks import CachedPrefixes, root_hash
from skate.llm._engine.detokenizer import Detokenizer
from skate.llm._engine.engine_loop import ActiveRequest, EngineLoop
from skate.llm._engine.grammar import GrammarCompiler, GrammarMask
from skate.llm._engine.kv_transfer import check_layout, check_prompt_of
from skate.llm._engine.model import Model, TorchEngineConfig
from skate.llm._engine.model_files import open_model
from skate.llm._engine.profiler import Profiler
from skate.llm._engine.request_checks import check_prompt, check_tokens, find_adapter
from skate.llm._engine.sampler import RequestSampler
from skate.llm._engine.scheduler import Sequence as TokenSequence
from skate.llm._engine.tokenizer import TextTokenizer

_log = logging.getLogger("skate.llm")
_NOT_CALLED = ("load", "generate", "collective_rpc")  # by `collective_rpc`: they make or run engines
_REPORTED_BLOCKS = 4096  # of the prefix cache: 32 KiB


class TorchEngine:
    """Generates text with a model that runs in this process.

    Requests join and leave between two steps (continuous batching), and share the keys and values of equal prefixes.
    On a CPU, the output of a request depends only on its prompt, its parameters and its seed, not on other requests.
    On a GPU, products in bfloat16 are rounded differently for different numbers of rows, so a token may differ where
    two are nearly equally probable.
    Use an engine from one event loop or several; `close` it at the end.

    Args:
        model: The loaded model.
        stall_timeout: `check_health` fails when a step takes longer than this many seconds.
    """

    def __init__(self, model: Model, *, stall_timeout: float = 5.0) -> None:
        self.tokenizer: Tokenizer = model.tokenizer
        self.max_model_len = model.max_model_len
        self.sampling_defaults = model.sampling_defaults
        self.weights_version = 0
        self._model = model
        self._stall_timeout = stall_timeout
        self._profiler = Profiler(model.settings.profiler_config)
        self._arrivals = 0
        self._grammars: GrammarCompiler | None = None
        self._grammars_lock = threading.Lock()
        self._loop = EngineLoop(model)

    @classmethod
    def load(
        cls,
        path: str | Path,
        engine_kwargs: Mapping[str, Any] | None = None,
        *,
        tokenizer: str | Path | None = None,
    ) -> TorchEngine:
        """Load a model: a folder with safetensors, a GGUF file, or an id on the hub.

        Args:
            path: The model.
            engine_kwargs: Fields of `TorchEngineConfig`.
            tokenizer: A folder with another tokenizer.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If the engine does not support the model, or its files do not fit together.
        """
        settings = TorchEngineConfig.from_kwargs(engine_kwargs or {})
        files = open_model(path)
        if tokenizer is not None:
            folder, eos = Path(tokenizer), files.tokenizer.eos_token_ids
            files = replace(
                files, open_tokenizer=lambda: TextTokenizer.from_folder(folder, eos_token_ids=eos)
            )
        return cls(Model(files, settings))

    def describe(self) -> str:
        """Describe the engine in one line."""
        config, pool, device = self._model.config, self._model.scheduler.pool, self._model.device
        where = f"the CPU with {self._model.num_threads} threads"
        if device.type == "cuda":
            where = torch.cuda.get_device_name(device)
        return (
            f"torch engine on {where}; {config.model_type} in {self._model.matrix_type}, "
            f"context of {self.max_model_len} tokens, KV cache of {pool.count * pool.block_size} tokens"
        )

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationOutput]:
        """Continue a prompt. Leaving the loop over the pieces aborts the request.

        Raises:
            ValueError: If the request can never run; the engine and its other requests are not affected.
            EngineDeadError: If the engine has failed.
        """
        self._check_alive()
        active = await self._prepare(request)
        del request  # so that the keys and values of a prefilled prompt are freed when they are imported
        self._loop.submit(active)
        pieces = active.pieces
        has_ended = False
        try:
            while not has_ended:
                piece = pieces.take() or await pieces.get()
                has_ended = isinstance(piece, BaseException) or piece.finish_reason is not None
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            if not has_ended:
                self._loop.submit_abort(active)

    async def prefill(self, request: GenerationRequest) -> PrefilledPrompt:
        """Compute a prompt and the first token, for another engine to continue. Cancelling the call aborts the request.

        The keys and values are copied to the host's memory. The blocks of the prompt stay in the prefix cache.

        Raises:
            ValueError: If the request can never run; the engine and its other requests are not affected.
            KVTransferError: If the weights were replaced meanwhile, or the request was aborted.
            EngineDeadError: If the engine has failed.
        """
        self._check_alive()
        active = await self._prepare(replace(request, prefilled=None), exports=True)
        self._loop.submit(active)
        piece: GenerationOutput | BaseException | None = None
        try:
            piece = await active.pieces.get()
        finally:
            if piece is None:
                self._loop.submit_abort(active)
        if isinstance(piece, BaseException):
            raise piece
        if active.exported is None:
            raise KVTransferError("the request was aborted before its prompt was computed; prefill it again")
        assert active.export is not None
        await active.export.wait()
        return active.exported

    async def abort(self, request_id: str) -> None:
        """End a request; its last piece has the finish reason `ABORT`."""
        self._check_alive()
        await self._loop.call(lambda: self._loop.abort(request_id))

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return one vector of length 1 for each prompt."""
        for prompt in prompts:
            self._check_prompt(prompt, room=self.max_model_len)
        self._check_alive()
        return [await self._embed(prompt) for prompt in prompts]

    async def check_health(self) -> None:
        """Raise `EngineDeadError` if the engine has failed or makes no progress."""
        self._check_alive()
        started = self._loop.step_started
        if started is not None and (elapsed := time.perf_counter() - started) > self._stall_timeout:
            raise EngineDeadError(
                f"the engine has been in one step for {elapsed:.1f} s; the limit is {self._stall_timeout:g} s"
            )

    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes."""
        self._check_alive()
        await self._loop.call(self._model.scheduler.forget_prefixes)

    async def cached_prefixes(self) -> CachedPrefixes:
        """Return the prefixes of prompts without an adapter that are cached: those of the last 4,096 blocks."""
        self._check_alive()
        pool = self._model.scheduler.pool
        hashes = await self._loop.call(lambda: pool.latest_hashes(_REPORTED_BLOCKS))
        return CachedPrefixes(
            block_size=pool.block_size,
            weights_version=self.weights_version,
            blocks=b"".join(each[: CachedPrefixes.KEY] for each in hashes),
        )

    async def update_weights(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> int:
        """Replace every weight, between two steps, and return the new `weights_version`.

        Requests that run continue with the new weights, and prefixes of the old ones are no longer shared.

        Raises:
            ValueError: If a tensor is missing or has the wrong shape; the old weights stay.
        """
        decoder = await asyncio.to_thread(self._model.make_decoder, tensors)
        self._check_alive()
        await self._loop.call(lambda: self._model.replace_weights(decoder))
        self.weights_version += 1
        return self.weights_version

    async def add_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter from a folder.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If the adapter does not fit the model.
        """
        await asyncio.to_thread(self._model.add_adapter, name, Path(path))

    async def remove_adapter(self, name: str) -> None:
        """Unload a LoRA adapter. Requests that use it finish first.

        Raises:
            ValueError: If there is no such adapter.
        """
        self._find_adapter(name)
        del self._model.adapters[name]

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of the worker, and return the result in a list. The only worker is the engine itself.

        Args:
            method: The name of a public method of this class, such as `"update_weights"`.
            timeout: The timeout in seconds; None for no limit.
            args: The arguments.
            kwargs: The keyword arguments.

        Raises:
            ValueError: If there is no such method.
            TimeoutError: If the method does not end in time.
        """
        names = [name for name in dir(type(self)) if not name.startswith("_") and name not in _NOT_CALLED]
        if method not in names:
            raise ValueError(
                f"the worker of the torch engine has no method {method!r}.{did_you_mean(method, names)}"
            )
        async with asyncio.timeout(timeout):
            result = getattr(self, method)(*args, **(kwargs or {}))
            return [await result if inspect.isawaitable(result) else result]

    async def start_profile(self) -> None:
        """Start to record what the thread of the engine computes, with torch's profiler.

        Raises:
            ValueError: If the engine was loaded without `profiler_config`, or records already.
        """
        self._check_alive()
        await self._loop.call(self._profiler.start)

    async def stop_profile(self) -> None:
        """Stop recording, and write a trace to the folder that `profiler_config` names.

        Raises:
            ValueError: If nothing is recorded.
        """
        self._check_alive()
        path = await self._loop.call(self._profiler.stop)
        _log.info("the trace of the engine is in %s", path)

    async def pause(self) -> None:
        """Stop running steps until `resume` is called. Requests are kept."""
        self._check_alive()
        await self._loop.call(lambda: self._set_paused(True))

    async def resume(self) -> None:
        """Continue after `pause`."""
        self._check_alive()
        await self._loop.call(lambda: self._set_paused(False))

    async def sleep(self, *, weights: bool = True, kv_cache: bool = True) -> None:
        """Free the memory of the weights, the KV cache, or both. Later requests wait for `wake_up`.

        Raises:
            ValueError: If requests are running.
        """
        self._check_alive()
        await self._loop.call(lambda: self._sleep(weights=weights, kv_cache=kv_cache))

    async def wake_up(self) -> None:
        """Undo `sleep`: read the weights again, and run the requests that have arrived meanwhile."""
        self._check_alive()
        await self._loop.call(self._wake_up)

    async def close(self) -> None:
        """Abort every request and free the engine's memory."""
        await asyncio.to_thread(self._loop.close)
        self._model.unload(weights=True, kv_cache=True)

    def _check_alive(self) -> None:
        if self._loop.failure is not None:
            raise EngineDeadError(f"the engine has failed: {self._loop.failure!r}") from self._loop.failure
        if not self._loop.is_alive:
            raise EngineDeadError("the engine is closed")

    async def _prepare(self, request: GenerationRequest, *, exports: bool = False) -> ActiveRequest:
        """Check a request, and prepare it to run, or to compute its prompt for another engine."""
        params, prefilled = request.params, request.prefilled
        if prefilled is not None:
            check_prompt_of(prefilled, request.prompt, params)
            request = replace(request, prefilled=None)
        self._check_prompt(request.prompt, room=self.max_model_len - 1)
        check_tokens("logit_bias", params.logit_bias, vocab_size=self._model.config.vocab_size)
        adapter = None if request.adapter is None else self._find_adapter(request.adapter)
        room = self.max_model_len - len(request.prompt)
        eos = () if params.ignore_eos else self.tokenizer.eos_token_ids
        stop_tokens = frozenset((*eos, *params.stop_token_ids))
        staged = None if prefilled is None else await self._stage(prefilled, adapter)
        mask = None if params.grammar is None else await asyncio.to_thread(self._compile_grammar, request)
        seed = params.seed
        if seed is None:
            seed = random.getrandbits(64) if prefilled is None else prefilled.seed
        sampler = RequestSampler(
            params,
            seed=seed,
            prompt=request.prompt,
            stop_tokens=sorted(stop_tokens),
            mask=mask,
        )
        self._arrivals += 1
        sequence = TokenSequence(
            request.prompt,
            # A prompt that is preempted after its token was sampled is computed again, and samples a second token.
            max_tokens=2 if exports else min(params.max_tokens or room, room),
            root=root_hash(
                self.weights_version, None if adapter is None else adapter.number, request.cache_salt
            ),
            order=(request.priority, self._arrivals),
            needs_last_token=exports or sampler.needs_host or not self._model.runs_ahead,
            first_token=None if prefilled is None else prefilled.token,
        )
        if prefilled is not None:
            sequence.cached_tokens = prefilled.cached_tokens
        detokenizer = Detokenizer(
            self._model.tokenizer,
            stop=params.stop,
            skip_special_tokens=params.skip_special_tokens,
            prompt=request.prompt,
        )
        return ActiveRequest(
            request=request,
            sequence=sequence,
            sampler=sampler,
            detokenizer=detokenizer,
            stop_tokens=stop_tokens,
            adapter=adapter,
            loop=asyncio.get_running_loop(),
            seed=seed,
            exports=exports,
            prefilled=prefilled,
            staged=staged,
        )

    async def _stage(self, prefilled: PrefilledPrompt, adapter: Adapter | None) -> KeysValues:
        """Return the keys and values of a prompt where the model takes them, so that no step waits for a slow copy."""
        if self._model.device.type == "cpu":
            return prefilled.keys_values
        check_layout(prefilled, self._model.layout, None if adapter is None else adapter.digest)
        return await asyncio.to_thread(self._model.stage, prefilled.keys_values)

    def _check_prompt(self, prompt: Sequence[int], *, room: int) -> None:
        check_prompt(prompt, room=room, vocab_size=self._model.config.vocab_size)

    def _find_adapter(self, name: str) -> Adapter:
        return find_adapter(self._model.adapters, name)

    def _compile_grammar(self, request: GenerationRequest) -> GrammarMask:
        assert request.params.grammar is not None
        with self._grammars_lock:
            if self._grammars is None:
                self._grammars = GrammarCompiler(
                    self._model.tokenizer.backend, self._model.config.vocab_size, self.tokenizer.eos_token_ids
                )
        return self._grammars.compile(request.params.grammar)

    async def _embed(self, prompt: Sequence[int]) -> list[float]:
        return await self._loop.call(lambda: self._model.runner.embed(prompt))

    def _set_paused(self, paused: bool) -> None:
        self._loop.is_paused = paused

    def _sleep(self, *, weights: bool, kv_cache: bool) -> None:
        if self._loop.request_count:
            raise ValueError(
                f"the engine cannot sleep while {self._loop.request_count} requests run; wait for them or abort them"
            )
        self._loop.is_paused = True
        self._model.unload(weights=weights, kv_cache=kv_cache)

    def _wake_up(self) -> None:
        self._model.load()
        self._loop.is_paused = False
