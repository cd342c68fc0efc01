"""Requests that come over links: taken or turned away, run, answered, cancelled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from skate._api.payloads import pack, unpack
from skate.exceptions import RayTaskError
from skate.serve._replica.exchange import Exchange
from skate.serve._replica.http import HttpHandler
from skate.serve._replica.rpc import RpcHandler
from skate.serve._replica.turns import Turns
from skate.serve._replica.user_code import UserCode
from skate.serve._watch.replica import CANCELLED, ReplicaWatch
from skate.serve._wire.frames import (
    Bye,
    ByeHeard,
    Call,
    Cancel,
    Chunk,
    Context,
    End,
    Fail,
    Frame,
    Grant,
    Http,
    Item,
    Load,
    Reject,
    Reply,
    Rpc,
)
from skate.serve._wire.link import Link
from skate.serve._wire.window import PARTS, Window
from skate.serve.context import ReplicaContext, _in_replica, _request, _RequestContext
from skate.serve.exceptions import ReplicaStoppedError, RequestCancelledError

__all__ = ["RequestServer"]

logger = logging.getLogger("skate.serve")

_CANCEL_GRACE_S = 1.0

_Way = Callable[["_Running", Any, Callable[[], int]], Coroutine[Any, Any, None]]
"""Answers a request; it is told how to learn the load that the answer should tell."""


class RequestServer:
    """Runs requests on the replica's loop, at most `capacity` at a time.

    What is over that is turned away at once, not queued: its caller knows of other replicas, and is told when there is
    room here again.
    """

    def __init__(
        self, code: UserCode, capacity: int, http: HttpHandler, replica: ReplicaContext, watch: ReplicaWatch
    ) -> None:
        self.capacity = capacity
        self.watch = watch
        self.exchange = Exchange()
        self.turns = Turns()
        self._code = code
        self._loop = asyncio.get_running_loop()
        self._ways: dict[type[Frame], _Way] = {
            Call: self._call,
            Http: http.answer,
            Rpc: RpcHandler(code).answer,
        }
        self.replica = replica
        self._running: dict[tuple[Link, int], _Running] = {}
        self._links: set[Link] = set()
        self._turned_away: set[Link] = set()
        self._saying_bye: set[Link] = set()
        self._is_draining = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()

    @property
    def load(self) -> int:
        """How many requests run."""
        return len(self._running)

    def opened(self, link: Link) -> None:
        """Serve a caller that has just connected."""
        forget = link.closed

        def closed(link: Link) -> None:
            if forget is not None:
                forget(link)
            self._closed(link)

        link.receive, link.closed = self._receive, closed
        self._links.add(link)
        if self._is_draining:
            self._say_bye(link)

    async def drain(self) -> None:
        """Take nothing further; return once every request is answered, and nobody will send another one."""
        self._is_draining = True
        self._idle.clear()  # that no request runs here does not mean that none is on its way
        for link in self._links:
            self._say_bye(link)
        self._note_idle()
        await self._idle.wait()
        await self.exchange.collected()

    async def cancel_all(self) -> None:
        """Stop every request that runs, and give it a moment to end."""
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for running in self._running.values():
            running.is_stopped = True
            running.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_GRACE_S)

    def tell_models(self, models: list[str]) -> None:
        """Tell callers which models are loaded here now."""
        for link in self._links:
            link.send(Load(self.load, models))

    def tell_stats(self, stats: bytes) -> None:
        """Tell callers what the user's code measured for routing."""
        for link in self._links:
            link.send(Load(self.load, stats=stats))

    def _say_bye(self, link: Link) -> None:
        self._saying_bye.add(link)
        link.send(Bye())

    def _closed(self, link: Link) -> None:
        self._links.discard(link)
        self._turned_away.discard(link)
        self._saying_bye.discard(link)
        for (caller, _), running in list(self._running.items()):
            if caller is link:
                running.cancel()  # nobody is there to hear the answer
        self.exchange.forget(link.name)
        self._note_idle()

    def _receive(self, link: Link, frame: Frame) -> None:
        kind = type(frame)
        run = self._ways.get(kind)
        if run is not None:
            self._begin(link, run, frame)  # type: ignore[arg-type]  # these are the ones that ask for something
        elif kind is ByeHeard:
            self._saying_bye.discard(link)
            self._note_idle()
        else:
            running = self._running.get((link, frame.id))  # type: ignore[union-attr]  # all others are about a request
            if running is not None:
                running.hear(frame)

    def _begin(self, link: Link, run: _Way, frame: Call | Http | Rpc) -> None:
        id = frame.id
        is_full = len(self._running) >= self.capacity and not (isinstance(frame, Call) and frame.always)
        if self._is_draining or is_full:
            self._turned_away.add(link)
            link.send(Reject(id, len(self._running)))
            return
        if not self._running:
            self._idle.clear()
        running = _Running(link, id, frame.context)
        self._running[link, id] = running
        self.watch.began()
        if not isinstance(frame, Call) and frame.more:
            link.send(Grant(id, PARTS))
        running.task = self._loop.create_task(self._run(running, run, frame))

    async def _run(self, running: _Running, run: _Way, frame: Call | Http | Rpc) -> None:
        _request.set(running.context)
        _in_replica.set(self.replica)
        begun = False
        running.has_started = True
        try:
            if running.is_cancelled:
                raise asyncio.CancelledError
            if not self.turns.begin_at_once():
                await self.turns.begin()
            begun = True
            tracer = self.watch.tracer
            if tracer is None:
                await run(running, frame, self._load_after)
            else:
                with tracer.at_replica(running, frame, self.replica):
                    await run(running, frame, self._load_after)
        except asyncio.CancelledError:
            running.status = CANCELLED
            running.finish(self, self._why_cancelled(running))
        except Exception as error:
            logger.exception("Request %s failed.", running.context.request_id)
            running.finish(self, error)
        except GeneratorExit:
            raise
        except BaseException as error:
            # What ends a program, like SystemExit, ends the request only: others run in the same loop.
            logger.exception("Request %s failed.", running.context.request_id)
            running.finish(self, self._described(error, getattr(frame, "method", "__call__")))
        finally:
            if begun:
                self.turns.end()
            self._ended(running)
            self.watch.ended(running, frame)

    def _why_cancelled(self, running: _Running) -> Exception:
        if running.is_stopped:
            id = self.replica.replica_id
            return ReplicaStoppedError(f"{id.deployment_id.key}#{id.unique_id}")
        return RequestCancelledError(running.context.request_id)

    def _ended(self, running: _Running) -> None:
        self._running.pop((running.link, running.id), None)
        if running.context.children:
            for child in tuple(running.context.children):
                child.cancel()
        if self._turned_away and len(self._running) < self.capacity and not self._is_draining:
            for link in self._turned_away:
                link.send(Load(len(self._running)))
            self._turned_away.clear()
        if not self._running:
            self._note_idle()

    def _note_idle(self) -> None:
        if not self._running and not self._saying_bye:
            self._idle.set()

    def _load_after(self) -> int:
        """How many requests run besides the one that is about to be answered."""
        return len(self._running) - 1

    async def _call(self, running: _Running, frame: Call, load: Callable[[], int]) -> None:
        if frame.args is not None:
            args, kwargs = unpack(frame.args)
        else:
            args, kwargs = await self.exchange.receive(running.link.name, frame.id)
        try:
            result = await self._code.call(frame.method, args, kwargs)
            is_stream = _is_generator(result)
            if frame.stream and is_stream:
                await self._stream(running, result)
                return
            if is_stream:
                raise TypeError(
                    f"Method '{frame.method}' returned a generator. You must use `handle.options(stream=True)` to call "
                    "generators on a deployment."
                )
            if frame.stream:
                raise TypeError(
                    f"Method '{frame.method}' was called with handle.options(stream=True), but it did not return a "
                    "generator: call it without, or let it yield."
                )
            packed = pack(result)
        except Exception as error:
            running.finish(self, self._described(error, frame.method))
            return
        if packed is None:
            self.exchange.keep(running.link.name, frame.id, 0, result)
        others = load()
        running.link.send(Reply(frame.id, others, packed), now=not others)
        running.is_answered = True

    async def _stream(self, running: _Running, produced: Any) -> None:
        number = 0
        link = running.link
        items = self._code.items(produced)
        try:
            async for item in items:
                await running.window.take()
                packed = pack(item)
                if packed is None:
                    number += 1
                    self.exchange.keep(link.name, running.id, number, item)
                link.send_through(Item(running.id, packed, number if packed is None else 0))
        finally:
            await items.aclose()  # type: ignore[attr-defined]  # it is a generator, which is closed at once
        link.send(End(running.id, len(self._running) - 1))
        running.is_answered = True

    def _described(self, error: BaseException, method: str) -> Exception:
        if isinstance(error, RayTaskError):
            return error  # of a call that this one made
        described = RayTaskError.from_exception(f"{self.replica.deployment}.{method}", error)
        # The caller must not take it for its own end.
        return described.as_instanceof_cause() if isinstance(error, Exception) else described


class _Running:
    """A request that runs here."""

    __slots__ = (
        "_window",
        "began",
        "chunks",
        "context",
        "error",
        "has_started",
        "id",
        "is_answered",
        "is_cancelled",
        "is_stopped",
        "link",
        "status",
        "task",
    )

    def __init__(self, link: Link, id: int, context: Context) -> None:
        self.began = time.perf_counter()
        self.status = 0  # of HTTP, once it is known
        self.error: BaseException | None = None
        self.link = link
        self.id = id
        self.task: asyncio.Task[None] | None = None
        self._window: Window | None = None  # most answers are one part
        self.chunks: asyncio.Queue[Chunk] | None = None
        self.is_answered = False
        self.has_started = False
        self.is_cancelled = False  # before it started
        self.is_stopped = False  # by the replica, which has to end
        self.context = _RequestContext(
            route=context.route,
            request_id=context.request_id,
            app_name=context.app,
            multiplexed_model_id=context.model,
            session_id=context.session,
            retry=context.retry,
            trace=context.trace,
        )

    @property
    def window(self) -> Window:
        """How many parts of the answer may be sent."""
        if self._window is None:
            self._window = Window()
        return self._window

    def hear(self, frame: Frame) -> None:
        """Take what its caller says further."""
        if isinstance(frame, Chunk):
            self.feed(frame)
        elif isinstance(frame, Grant):
            self.window.grant(frame.count)
        elif isinstance(frame, Cancel):
            self.cancel()

    def cancel(self) -> None:
        """Stop it."""
        if not self.has_started:
            # A task that is cancelled before its first step runs none of its code, not even what cleans up.
            self.is_cancelled = True
        elif self.task is not None:
            self.task.cancel()

    def feed(self, chunk: Chunk) -> None:
        """Take a part of the request's body."""
        if self.chunks is None:
            self.chunks = asyncio.Queue()
        self.chunks.put_nowait(chunk)

    async def next_chunk(self) -> Chunk:
        """Wait for the next part of the request's body."""
        if self.chunks is None:
            self.chunks = asyncio.Queue()
        chunk = await self.chunks.get()
        self.link.send(Grant(self.id, 1))
        return chunk

    def finish(self, server: RequestServer, error: Exception) -> None:
        """Answer with an error, unless an answer has been given."""
        self.error = error
        if self.is_answered:
            return
        self.is_answered = True
        self.link.send(Fail(self.id, server.load - 1, _packed_error(error)))


def _packed_error(error: Exception) -> bytes:
    try:
        packed = pack(error)
    except Exception as unpicklable:
        packed = None
        error = RuntimeError(
            f"{type(error).__name__}: {error} (the error itself cannot be pickled: {unpicklable})"
        )
    # An error that holds references, or is huge, is told in words.
    return packed or pack(RuntimeError(f"{type(error).__name__}: {str(error)[:10_000]}")) or b""


def _is_generator(value: Any) -> bool:
    return hasattr(value, "__next__") or hasattr(value, "__anext__")
