"""The thread that runs one step after another for all requests of an engine."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from skate.llm._engine.adapters import Adapter
from skate.llm._engine.api import (
    EngineDeadError,
    FinishReason,
    GenerationOutput,
    GenerationRequest,
    KVLayout,
    KVTransferError,
    PrefilledPrompt,
    RequestTiming,
    TokenLogprob,
)
from skate.llm._engine.attention import HostCopy, KeysValues
from skate.llm._engine.detokenizer import Detokenizer
from skate.llm._engine.kv_transfer import check_layout
from skate.llm._engine.model import Model
from skate.llm._engine.runner import LaunchedStep
from skate.llm._engine.sampler import RequestSampler
from skate.llm._engine.scheduler import Sequence as TokenSequence
from skate.llm._engine.scheduler import SequenceState, Step

_log = logging.getLogger("skate.llm")
_T = TypeVar("_T")
Piece = GenerationOutput | BaseException  # an exception ends the request


class Pieces:
    """The pieces of a request that its reader has not taken yet. It belongs to one event loop."""

    __slots__ = ("_pieces", "_waiter")

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, piece: Piece) -> None:
        """Add a piece."""
        self._pieces.append(piece)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> Piece | None:
        """Return the next piece, or None if there is none yet."""
        return self._pieces.popleft() if self._pieces else None

    async def get(self) -> Piece:
        """Wait for the next piece. There must be only one reader."""
        while not self._pieces:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._pieces.popleft()


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """A request that was checked and is ready to run.

    Args:
        loop: The event loop that reads `pieces`.
        seed: The seed of the sampler.
        exports: Whether the request ends with its first token, and then has `exported` and `export`.
        prefilled: What another engine has computed, until its keys and values are imported.
        staged: These keys and values, where the model takes them.
        exported: The computed prompt. Its keys and values are complete when `export` is.
        export: The copy of the keys and values.
        before: Where the time went until another engine had computed the first token.
        layout: What the keys and values depend on, since `started`.
        started: When a step first computed a part of its prompt.
        first_token: When its first token was sampled.
        first_logprob: The log-probabilities of that token, if the request exports it.
    """

    request: GenerationRequest
    sequence: TokenSequence
    sampler: RequestSampler
    detokenizer: Detokenizer
    stop_tokens: frozenset[int]
    adapter: Adapter | None
    loop: asyncio.AbstractEventLoop
    seed: int = 0
    exports: bool = False
    prefilled: PrefilledPrompt | None = None
    staged: KeysValues | None = None
    exported: PrefilledPrompt | None = None
    export: HostCopy | None = None
    before: RequestTiming | None = None
    layout: KVLayout | None = None
    pieces: Pieces = field(default_factory=Pieces)
    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None
    first_token: float | None = None
    first_logprob: TokenLogprob | None = None

    @property
    def adapter_digest(self) -> str | None:
        """The digest of the adapter, if there is one."""
        return None if self.adapter is None else self.adapter.digest


class EngineLoop:
    """Runs the steps of a model in a thread of its own, and hands the pieces to the event loops that wait for them.

    Methods named `submit…` and `call` may be called from any thread; functions given to `call` run when no step is
    being computed.
    """

    def __init__(self, model: Model) -> None:
        self.is_paused = False
        self.failure: BaseException | None = None
        self.step_started: float | None = None  # None between two steps
        self._model = model
        self._requests: dict[TokenSequence, ActiveRequest] = {}
        self._by_id: dict[str, ActiveRequest] = {}
        self._launched: deque[tuple[Step, list[ActiveRequest], LaunchedStep]] = deque()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_closing = False
        self._lock = threading.Lock()
        self._has_ended = False  # the thread takes no more commands; written under the lock
        self._thread = threading.Thread(target=self._run, name="skate-llm-engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def request_count(self) -> int:
        """Number of requests that wait or run."""
        return len(self._requests)

    def submit(self, request: ActiveRequest) -> None:
        """Add a request."""
        if not self._put(lambda: self._add(request)):
            _deliver([(request, self._death())])

    def submit_abort(self, request: ActiveRequest) -> None:
        """Forget a request whose pieces are no longer read."""
        self._put(lambda: self._drop(request))

    def abort(self, request_id: str) -> None:
        """End a request with the finish reason `ABORT`. Call it between two steps."""
        request = self._by_id.get(request_id)
        if request is not None:
            _deliver([(request, self._last_piece(request, "", FinishReason.ABORT))])

    async def call(self, function: Callable[[], _T]) -> _T:
        """Run a function in the thread, when no step is being computed, and return its result.

        Raises:
            EngineDeadError: If the thread has ended.
        """
        result: Future[_T] = Future()

        def run() -> None:
            try:
                self._finish_steps()
            except BaseException as error:
                result.set_exception(error)
                raise
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        if not self._put(run):
            raise self._death()
        return await asyncio.wrap_future(result)

    def close(self) -> None:
        """End the thread, after its current step, and wait for it. Requests fail with `EngineDeadError`."""

        def close() -> None:
            self._is_closing = True

        self._put(close)
        self._thread.join()

    def _put(self, command: Callable[[], None]) -> bool:
        """Have the thread run a command. Return False if the thread has ended."""
        with self._lock:
            if not self._has_ended:
                self._commands.put(command)
            return not self._has_ended

    def _run(self) -> None:
        torch.set_num_threads(self._model.num_threads)  # of this thread
        try:
            while not self._is_closing:
                self._run_commands()
                step = None if self.is_paused or self._is_closing else self._model.scheduler.plan()
                if step is not None:
                    self._launch(step)
                if self._launched and (step is None or len(self._launched) == self._model.runner.depth):
                    self._finish_step()
        except BaseException as error:
            _log.exception("the engine has failed")
            self.failure = error
        finally:
            self._is_closing = True
            with self._lock:
                self._has_ended = True
            self._launched.clear()
            self._run_last_commands()
            self._fail_all()

    def _run_commands(self) -> None:
        """Run the commands that have arrived; wait for one if there is nothing else to do."""
        is_idle = not self._launched and (self.is_paused or not self._requests)
        if is_idle and not self.is_paused and self._commands.empty():
            is_idle = not self._model.runner.prepare()
        while not self._is_closing:
            try:
                command = self._commands.get(block=is_idle)
            except queue.Empty:
                return
            command()
            is_idle = False

    def _run_last_commands(self) -> None:
        while True:
            try:
                self._commands.get_nowait()()
            except queue.Empty:
                return

    def _launch(self, step: Step) -> None:
        now = time.perf_counter()
        if not self._launched:
            self.step_started = now
        requests = [self._requests[row.sequence] for row in step.rows]
        for request in requests:
            if request.started is None:
                request.started = now
                request.layout = self._model.layout
        for each in step.imports:
            importing = self._requests[each.sequence]
            assert importing.staged is not None
            self._model.run_import(each, importing.staged)
        for request in requests:
            request.staged = None  # frees the memory of what was imported, cached or has to be computed
        self._launched.append((step, requests, self._model.runner.launch(step, requests)))

    def _finish_steps(self) -> None:
        """Wait for the steps that were launched, so that nothing uses the model."""
        while self._launched:
            self._finish_step()

    def _finish_step(self) -> None:
        """Take the results of the oldest step that was launched."""
        step, requests, launched = self._launched.popleft()
        sampled = launched.wait()
        self.step_started = time.perf_counter() if self._launched else None
        sampling = [request for request, row in zip(requests, step.rows, strict=True) if row.samples]
        pieces: list[tuple[ActiveRequest, Piece]] = []
        for index, error in sampled.failures.items():
            pieces.append((sampling[index], error))
            self._drop(sampling[index])
        logprobs = {sampling[index].sequence: logprob for index, logprob in sampled.logprobs.items()}
        for sequence, token in self._model.scheduler.commit(step, sampled.tokens):
            request = self._requests[sequence]
            piece = (self._export if request.exports else self._accept)(
                request, token, logprobs.get(sequence)
            )
            if piece is not None:
                pieces.append((request, piece))
        for request in _deliver(pieces):
            self._drop(request)

    def _accept(self, request: ActiveRequest, token: int, logprob: TokenLogprob | None) -> GenerationOutput:
        """Add a token to a request, and return the resulting piece of output."""
        sequence, params = request.sequence, request.request.params
        if request.first_token is None:
            request.first_token = time.perf_counter()
        logprobs = None if logprob is None else (logprob,)
        is_stop_token = token in request.stop_tokens
        text = ""
        if not is_stop_token:
            request.sampler.accept(token)
            text = request.detokenizer.add(token)
        stop_string = request.detokenizer.stop_string
        if is_stop_token or stop_string is not None:
            reason = FinishReason.STOP
        elif sequence.generated >= sequence.max_tokens:
            reason = FinishReason.LENGTH
        else:
            return GenerationOutput(text=text, tokens=(token,), logprobs=logprobs)
        if is_stop_token or stop_string is None:
            text += request.detokenizer.finish()
        stop_token = token if token in params.stop_token_ids else None
        return self._last_piece(
            request, text, reason, tokens=(token,), logprobs=logprobs, stop_reason=stop_string or stop_token
        )

    def _export(self, request: ActiveRequest, token: int, logprob: TokenLogprob | None) -> Piece | None:
        """End a request that exports its prompt, and return its last piece, or None if it goes on."""
        sequence = request.sequence
        if request.first_token is None:
            request.first_token, request.first_logprob = time.perf_counter(), logprob
            if token not in request.stop_tokens:
                request.sampler.accept(token)
        if sequence.state is not SequenceState.RUNNING:
            return None  # preempted while the token was in flight: the prompt is computed again
        if request.layout != self._model.layout:
            self._forget(request)
            return KVTransferError(
                "the weights were replaced while the prompt was computed; prefill it again"
            )
        assert request.started is not None
        assert request.layout is not None
        request.export = self._model.export(sequence)
        request.exported = PrefilledPrompt(
            prompt=tuple(sequence.tokens[: sequence.prompt_length]),
            token=sequence.tokens[sequence.prompt_length],
            logprob=request.first_logprob,
            seed=request.seed,
            layout=request.layout,
            adapter=request.adapter_digest,
            keys_values=request.export.values,
            cached_tokens=sequence.cached_tokens or 0,
            timing=RequestTiming(
                queue=request.started - request.arrived,
                prefill=request.first_token - request.started,
                decode=0.0,
            ),
            finished=time.time() - (time.perf_counter() - request.first_token),
        )
        return self._last_piece(request, "", FinishReason.LENGTH, tokens=(token,))

    def _last_piece(
        self,
        request: ActiveRequest,
        text: str,
        reason: FinishReason,
        *,
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] | None = None,
        stop_reason: str | int | None = None,
    ) -> GenerationOutput:
        """Forget a request, and return the piece that ends it."""
        self._forget(request)
        return GenerationOutput(
            text=text,
            tokens=tokens,
            logprobs=logprobs,
            finish_reason=reason,
            stop_reason=stop_reason,
            prompt_tokens=request.sequence.prompt_length,
            cached_tokens=request.sequence.cached_tokens or 0,
            timing=_timing(request),
        )

    def _add(self, request: ActiveRequest) -> None:
        request_id = request.request.request_id
        if self._is_closing:
            _deliver([(request, self._death())])
        elif request_id in self._by_id:
            _deliver([(request, ValueError(f"a request with the id {request_id!r} is running already"))])
        else:
            prefilled = request.prefilled
            try:
                if prefilled is not None:
                    check_layout(prefilled, self._model.layout, request.adapter_digest)
            except KVTransferError as error:
                _deliver([(request, error)])
                return
            self._requests[request.sequence] = request
            self._by_id[request_id] = request
            self._model.scheduler.add(request.sequence)
            if prefilled is not None:
                request.prefilled = None
                self._accept_first(request, prefilled)

    def _accept_first(self, request: ActiveRequest, prefilled: PrefilledPrompt) -> None:
        """Deliver the token that another engine has sampled, without waiting for the request's turn."""
        request.before = replace(
            prefilled.timing, transfer=prefilled.timing.transfer + max(0.0, time.time() - prefilled.finished)
        )
        logprob = prefilled.logprob if request.request.params.logprobs is not None else None
        for lost in _deliver([(request, self._accept(request, prefilled.token, logprob))]):
            self._drop(lost)

    def _drop(self, request: ActiveRequest) -> None:
        if request.sequence in self._requests:
            self._forget(request)

    def _forget(self, request: ActiveRequest) -> None:
        self._model.scheduler.finish(request.sequence)
        del self._requests[request.sequence]
        del self._by_id[request.request.request_id]

    def _fail_all(self) -> None:
        _deliver([(request, self._death()) for request in self._requests.values()])
        self._requests.clear()
        self._by_id.clear()

    def _death(self) -> EngineDeadError:
        if self.failure is None:
            return EngineDeadError("the engine is closed")
        error = EngineDeadError(f"the engine has failed: {self.failure!r}")
        error.__cause__ = self.failure
        return error


def _timing(request: ActiveRequest) -> RequestTiming:
    """Return where the time of a request went until now."""
    now = time.perf_counter()
    started = request.started or now
    queue, before = started - request.arrived, request.before
    if before is not None:
        return replace(before, queue=before.queue + queue, decode=now - started)
    first_token = request.first_token or now
    return RequestTiming(queue=queue, prefill=first_token - started, decode=now - first_token)


def _deliver(pieces: Sequence[tuple[ActiveRequest, Piece]]) -> list[ActiveRequest]:
    """Hand pieces to their event loops, in one call for each. Return the requests whose event loop is closed."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[ActiveRequest, Piece]]] = {}
    for request, piece in pieces:
        by_loop.setdefault(request.loop, []).append((request, piece))
    lost = []
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put_all, theirs)
        except RuntimeError:  # the loop is closed
            lost += [request for request, _ in theirs]
    return lost


def _put_all(pieces: Sequence[tuple[ActiveRequest, Piece]]) -> None:
    for request, piece in pieces:
        request.pieces.put(piece)
