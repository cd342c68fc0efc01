"""The embedded engine: a thread that runs one step after another for all requests."""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from skate.llm._engine.api import (
    EngineDeadError,
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    RequestTiming,
    Tokenizer,
    TokenLogprob,
)
from skate.llm._engine.blocks import root_hash
from skate.llm._engine.detokenizer import Detokenizer
from skate.llm._engine.grammar import GrammarCompiler
from skate.llm._engine.model import LoadedModel
from skate.llm._engine.sampler import RequestSampler
from skate.llm._engine.scheduler import Sequence as TokenSequence
from skate.llm._engine.scheduler import Step

_log = logging.getLogger("skate.llm")
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Running:
    """A request that the engine thread works on."""

    request: GenerationRequest
    sequence: TokenSequence
    sampler: RequestSampler
    detokenizer: Detokenizer
    stop_tokens: frozenset[int]
    loop: asyncio.AbstractEventLoop
    pieces: asyncio.Queue[GenerationOutput | BaseException]
    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None  # when a step first computed a part of its prompt
    first_token: float | None = None


class TorchEngine:
    """Generates text with a decoder that runs in this process.

    Requests are served by continuous batching: they join and leave between steps. Outputs depend only on the prompt,
    the parameters and the seed, not on the requests that run beside it.

    Args:
        model: The loaded model.
        stall_timeout: `check_health` fails when a step takes longer than this many seconds.
    """

    def __init__(self, model: LoadedModel, *, stall_timeout: float = 5.0) -> None:
        self.tokenizer: Tokenizer = model.tokenizer
        self.max_model_len = model.max_model_len
        self._model = model
        self._stall_timeout = stall_timeout
        self._requests: dict[TokenSequence, _Running] = {}
        self._by_id: dict[str, _Running] = {}
        self._arrivals = 0
        self._prefix_version = 0
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._grammars: GrammarCompiler | None = None
        self._grammars_lock = threading.Lock()
        self._is_paused = False
        self._is_closing = False
        self._failure: BaseException | None = None
        self._step_started: float | None = None
        self._thread = threading.Thread(target=self._run, name="skate-llm-engine", daemon=True)
        self._thread.start()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationOutput]:
        """Continue a prompt. Leaving the loop over the pieces aborts the request.

        Raises:
            ValueError: If the request can never run; the engine and its other requests are not affected.
            EngineDeadError: If the engine has failed.
        """
        self._check_alive()
        running = await self._prepare(request)
        self._commands.put(lambda: self._add(running))
        ended = False
        try:
            while not ended:
                piece = await running.pieces.get()
                if isinstance(piece, BaseException):
                    ended = True
                    raise piece
                ended = piece.finish_reason is not None
                yield piece
        finally:
            if not ended:
                self._commands.put(lambda: self._abort(running))

    async def embed(self, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return one vector of length 1 for each prompt."""
        for prompt in prompts:
            self._check_prompt(prompt, longest=self.max_model_len)
        return [
            await self._call(lambda prompt=prompt: self._model.runner.embed(prompt)) for prompt in prompts
        ]

    async def abort(self, request_id: str) -> None:
        """End a request; its last piece has the finish reason `ABORT`."""

        def abort() -> None:
            running = self._by_id.get(request_id)
            if running is not None:
                self._finish(running, "", FinishReason.ABORT)

        await self._call(abort)

    async def check_health(self) -> None:
        """Raise `EngineDeadError` if the engine has failed or makes no progress."""
        self._check_alive()
        started = self._step_started
        if started is not None and (elapsed := time.perf_counter() - started) > self._stall_timeout:
            raise EngineDeadError(
                f"the engine has been in one step for {elapsed:.1f} s; a step should take less than "
                f"{self._stall_timeout:g} s"
            )

    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes."""

        def forget() -> None:
            self._prefix_version += 1
            self._model.scheduler.forget_prefixes()

        await self._call(forget)

    async def pause(self) -> None:
        """Start no further step, and keep the requests."""
        await self._call(lambda: setattr(self, "_is_paused", True))

    async def resume(self) -> None:
        """Continue after `pause`."""
        await self._call(lambda: setattr(self, "_is_paused", False))

    async def close(self) -> None:
        """Abort every request and free the engine's memory."""
        self.shut_down()

    def shut_down(self) -> None:
        """End the thread of the engine and wait for it."""
        self._commands.put(lambda: setattr(self, "_is_closing", True))
        self._thread.join()

    # -- called by the caller's thread -------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise EngineDeadError(f"the engine has failed: {self._failure!r}") from self._failure
        if not self._thread.is_alive():
            raise EngineDeadError("the engine is closed")

    async def _prepare(self, request: GenerationRequest) -> _Running:
        params = request.params
        self._check_prompt(request.prompt, longest=self.max_model_len - 1)
        room = self.max_model_len - len(request.prompt)
        unknown = [token for token in params.logit_bias if not 0 <= token < self._model.config.vocab_size]
        if unknown:
            raise ValueError(
                f"logit_bias names token {unknown[0]}, but the vocabulary ends at {self._model.config.vocab_size - 1}"
            )
        if request.adapter is not None:
            raise ValueError(f"there is no adapter {request.adapter!r}")
        mask = None
        if params.grammar is not None:
            mask = await asyncio.to_thread(lambda: self._grammar_compiler().compile(params.grammar))
        eos = () if params.ignore_eos else self.tokenizer.eos_token_ids
        stop_tokens = frozenset((*eos, *params.stop_token_ids))
        self._arrivals += 1
        sequence = TokenSequence(
            request.prompt,
            max_tokens=min(params.max_tokens or room, room),
            root=root_hash(self._prefix_version, request.adapter, request.cache_salt),
            order=(request.priority, self._arrivals),
            needs_last_token=True,
        )
        return _Running(
            request=request,
            sequence=sequence,
            sampler=RequestSampler(
                params,
                seed=secrets.randbits(64) if params.seed is None else params.seed,
                prompt=request.prompt,
                stop_tokens=sorted(stop_tokens),
                mask=mask,
            ),
            detokenizer=Detokenizer(
                self.tokenizer, stop=params.stop, skip_special_tokens=params.skip_special_tokens
            ),
            stop_tokens=stop_tokens,
            loop=asyncio.get_running_loop(),
            pieces=asyncio.Queue(),
        )

    def _check_prompt(self, prompt: Sequence[int], *, longest: int) -> None:
        if not prompt:
            raise ValueError("the prompt is empty; it must have at least one token")
        if len(prompt) > longest:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, but the model's context has room for {longest}; "
                "shorten the prompt or raise max_model_len"
            )
        vocabulary = self._model.config.vocab_size
        if not 0 <= min(prompt) <= max(prompt) < vocabulary:
            raise ValueError(f"the prompt has a token outside of the vocabulary of {vocabulary} tokens")

    def _grammar_compiler(self) -> GrammarCompiler:
        with self._grammars_lock:
            if self._grammars is None:
                self._grammars = GrammarCompiler(
                    self._model.tokenizer.backend, self._model.config.vocab_size, self.tokenizer.eos_token_ids
                )
            return self._grammars

    async def _call(self, function: Callable[[], _T]) -> _T:
        """Run a function in the engine's thread, between two steps."""
        self._check_alive()
        result: Future[_T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self._commands.put(run)
        return await asyncio.wrap_future(result)

    # -- called by the engine's thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._run_commands()
                step = None if self._is_paused or self._is_closing else self._model.scheduler.plan()
                if step is not None:
                    self._run_step(step)
        except BaseException as error:
            _log.exception("the engine has failed")
            self._failure = error
        finally:
            self._fail_all(self._failure)

    def _run_commands(self) -> None:
        """Run the commands that have arrived; wait for one if there is nothing else to do."""
        scheduler = self._model.scheduler
        idle = self._is_paused or not (scheduler.running or scheduler.waiting)
        while not self._is_closing:
            try:
                command = self._commands.get(block=idle)
            except queue.Empty:
                return
            command()
            idle = False

    def _run_step(self, step: Step) -> None:
        self._step_started = time.perf_counter()
        for row in step.rows:
            running = self._requests[row.sequence]
            if running.started is None:
                running.started = self._step_started
        logits = self._model.runner.run(step)
        sampling = [self._requests[row.sequence] for row in step.rows if row.samples]
        tokens, logprobs, failures = _choose(sampling, logits)
        deliveries = _Deliveries()
        for running, error in failures.items():
            self._forget(running)
            deliveries.add(running, error)
        for (sequence, token), logprob in zip(
            self._model.scheduler.commit(step, tokens),
            [each for running, each in zip(sampling, logprobs, strict=True) if running not in failures],
            strict=True,
        ):
            running = self._requests[sequence]
            deliveries.add(running, self._accept(running, token, logprob))
        deliveries.send(lost=self._forget)
        self._step_started = None

    def _accept(self, running: _Running, token: int, logprob: TokenLogprob | None) -> GenerationOutput:
        """Take a token of a request, and return the piece of output that it makes."""
        sequence, params = running.sequence, running.request.params
        if running.first_token is None:
            running.first_token = time.perf_counter()
        logprobs = None if logprob is None else (logprob,)
        stopped_by_token = token in running.stop_tokens and sequence.generated > params.min_tokens
        if not stopped_by_token:
            running.sampler.accept(token)
        text = "" if stopped_by_token else running.detokenizer.add(token)
        reason: FinishReason | None = None
        stop_reason: str | int | None = running.detokenizer.stopped_by
        if stopped_by_token or stop_reason is not None:
            reason = FinishReason.STOP
            if stopped_by_token and token in params.stop_token_ids:
                stop_reason = token
        elif sequence.generated >= sequence.max_tokens:
            reason = FinishReason.LENGTH
        if reason is None:
            return GenerationOutput(text=text, tokens=(token,), logprobs=logprobs)
        return self._last_piece(
            running, text + running.detokenizer.finish(), reason, (token,), logprobs, stop_reason
        )

    def _last_piece(
        self,
        running: _Running,
        text: str,
        reason: FinishReason,
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] | None = None,
        stop_reason: str | int | None = None,
    ) -> GenerationOutput:
        self._forget(running)
        now = time.perf_counter()
        started = running.started or now
        first = running.first_token or now
        return GenerationOutput(
            text=text,
            tokens=tokens,
            logprobs=logprobs,
            finish_reason=reason,
            stop_reason=stop_reason,
            prompt_tokens=running.sequence.prompt_length,
            cached_tokens=running.sequence.cached_tokens or 0,
            timing=RequestTiming(
                queue=started - running.arrived, prefill=first - started, decode=now - first
            ),
        )

    def _add(self, running: _Running) -> None:
        if running.request.request_id in self._by_id:
            error = ValueError(f"a request with the id {running.request.request_id!r} is running already")
            _put(running, error)
            return
        self._requests[running.sequence] = running
        self._by_id[running.request.request_id] = running
        self._model.scheduler.add(running.sequence)

    def _abort(self, running: _Running) -> None:
        if running.sequence in self._requests:
            self._forget(running)

    def _finish(self, running: _Running, text: str, reason: FinishReason) -> None:
        _put(running, self._last_piece(running, text, reason))

    def _forget(self, running: _Running) -> None:
        self._model.scheduler.finish(running.sequence)
        del self._requests[running.sequence]
        del self._by_id[running.request.request_id]

    def _fail_all(self, failure: BaseException | None) -> None:
        while True:  # commands that nobody will run: the requests among them fail too
            try:
                self._commands.get_nowait()()
            except queue.Empty:
                break
        message = "the engine was closed" if failure is None else f"the engine has failed: {failure!r}"
        for running in list(self._requests.values()):
            _put(running, EngineDeadError(message))
        self._requests.clear()
        self._by_id.clear()


class _Deliveries:
    """The pieces of one step, handed to each event loop in one call."""

    def __init__(self) -> None:
        self._by_loop: dict[
            asyncio.AbstractEventLoop, list[tuple[_Running, GenerationOutput | BaseException]]
        ] = {}

    def add(self, running: _Running, piece: GenerationOutput | BaseException) -> None:
        self._by_loop.setdefault(running.loop, []).append((running, piece))

    def send(self, lost: Callable[[_Running], None]) -> None:
        """Hand the pieces over; `lost` is called with each unfinished request whose event loop is closed."""
        for loop, pieces in self._by_loop.items():
            try:
                loop.call_soon_threadsafe(_put_all, pieces)
            except RuntimeError:  # the loop is closed: nobody reads these requests
                for running, piece in pieces:
                    if isinstance(piece, GenerationOutput) and piece.finish_reason is None:
                        lost(running)


def _put(running: _Running, piece: GenerationOutput | BaseException) -> None:
    deliveries = _Deliveries()
    deliveries.add(running, piece)
    deliveries.send(lost=lambda _: None)


def _put_all(pieces: list[tuple[_Running, GenerationOutput | BaseException]]) -> None:
    for running, piece in pieces:
        running.pieces.put_nowait(piece)


def _choose(
    sampling: Sequence[_Running], logits: torch.Tensor
) -> tuple[list[int], list[TokenLogprob | None], dict[_Running, Exception]]:
    """Choose a token for each row. A request whose grammar fails gets an error, and the others go on."""
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    logprobs: list[TokenLogprob | None] = [None] * len(tokens)
    failures: dict[_Running, Exception] = {}
    for index, running in enumerate(sampling):
        if running.sampler.is_plain_greedy:
            continue
        try:
            tokens[index], logprobs[index] = running.sampler.choose(logits[index], running.sequence.generated)
        except ValueError as error:
            failures[running] = error
    return tokens, logprobs, failures
