"""The server of a replica's requests: accept or reject, run, answer, cancel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from skate._api.payloads import pack, unpack
from skate.exceptions import RayTaskError
from skate.serve._observability.observers import CANCELLED, ReplicaObserver
from skate.serve._replica.grpc_handler import GrpcHandler
from skate.serve._replica.http_handler import HttpHandler
from skate.serve._replica.read_write_lock import ReadWriteLock
from skate.serve._replica.running_request import RunningRequest
from skate.serve._replica.user_code import ThreadLimit, UserCode
from skate.serve._wire.frames import (
    Call,
    End,
    Frame,
    GoAway,
    GoAwayAck,
    Grant,
    Http,
    Item,
    Load,
    Reject,
    Reply,
    Rpc,
)
from skate.serve._wire.link import Link
from skate.serve._wire.window import WINDOW_SIZE
from skate.serve.context import ReplicaContext, _in_replica, _request
from skate.serve.exceptions import ReplicaStoppedError, RequestCancelledError

__all__ = ["Exchange", "RequestServer"]

logger = logging.getLogger("skate.serve")

_CANCEL_GRACE_S = 1.0

_Handler = Callable[["RunningRequest", Any, Callable[[], int]], Coroutine[Any, Any, None]]
"""Answers a request. The last argument returns the load to report with the answer."""


class RequestServer:
    """Run requests on the replica's event loop, at most `max_ongoing_requests` at a time.

    It rejects further requests instead of queueing them: their callers know other replicas, and receive the load when
    this replica has room again.
    """

    def __init__(
        self,
        code: UserCode,
        max_ongoing_requests: int,
        threads: ThreadLimit,
        http: HttpHandler,
        replica: ReplicaContext,
        observer: ReplicaObserver,
    ) -> None:
        self.max_ongoing_requests = max_ongoing_requests
        self.observer = observer
        self.exchange = Exchange()
        self.lock = ReadWriteLock()
        self._code = code
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._handlers: dict[type[Frame], _Handler] = {
            Call: self._call,
            Http: http.answer,
            Rpc: GrpcHandler(code).answer,
        }
        self.replica = replica
        self._running: dict[tuple[Link, int], RunningRequest] = {}
        self._links: set[Link] = set()
        self._rejected: set[Link] = set()
        self._awaiting_ack: set[Link] = set()
        self._is_draining = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()

    @property
    def load(self) -> int:
        """Number of ongoing requests."""
        return len(self._running)

    def opened(self, link: Link) -> None:
        """Handle a new link from a caller."""
        forget = link.closed

        def closed(link: Link) -> None:
            if forget is not None:
                forget(link)
            self._closed(link)

        link.receive, link.closed = self._receive, closed
        self._links.add(link)
        if self._is_draining:
            self._send_go_away(link)

    async def drain(self) -> None:
        """Reject further requests, and return when all requests are answered and all callers have acknowledged."""
        self._is_draining = True
        self._idle.clear()  # a request may still be in transit
        for link in self._links:
            self._send_go_away(link)
        self._check_idle()
        await self._idle.wait()
        await self.exchange.wait_collected()

    async def cancel_all(self) -> None:
        """Cancel all requests, and grant them a short time to end."""
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for running in self._running.values():
            running.is_stopped = True
            running.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_GRACE_S)

    def publish_models(self, models: list[str]) -> None:
        """Send the loaded models to callers."""
        for link in self._links:
            link.send(Load(self.load, models))

    def publish_stats(self, stats: bytes) -> None:
        """Send the routing stats to callers."""
        for link in self._links:
            link.send(Load(self.load, stats=stats))

    def _send_go_away(self, link: Link) -> None:
        self._awaiting_ack.add(link)
        link.send(GoAway())

    def _closed(self, link: Link) -> None:
        self._links.discard(link)
        self._rejected.discard(link)
        self._awaiting_ack.discard(link)
        for (caller, _), running in list(self._running.items()):
            if caller is link:
                running.cancel()  # the caller is gone
        self.exchange.forget(link.name)
        self._check_idle()

    def _receive(self, link: Link, frame: Frame) -> None:
        kind = type(frame)
        handler = self._handlers.get(kind)
        if handler is not None:
            self._begin(link, handler, frame)  # type: ignore[arg-type]  # handlers exist for these frames only
        elif kind is GoAwayAck:
            self._awaiting_ack.discard(link)
            self._check_idle()
        else:
            running = self._running.get((link, frame.id))  # type: ignore[union-attr]  # all other frames belong to a request
            if running is not None:
                running.handle_frame(frame)

    def _begin(self, link: Link, handler: _Handler, frame: Call | Http | Rpc) -> None:
        id = frame.id
        is_full = len(self._running) >= self.max_ongoing_requests and not (
            isinstance(frame, Call) and frame.force
        )
        if self._is_draining or is_full:
            self._rejected.add(link)
            link.send(Reject(id, len(self._running)))
            return
        if not self._running:
            self._idle.clear()
        running = RunningRequest(link, id, frame.context)
        self._running[link, id] = running
        self.observer.began()
        if not isinstance(frame, Call) and frame.more:
            link.send(Grant(id, WINDOW_SIZE))
        running.task = self._loop.create_task(self._run(running, handler, frame))

    async def _run(self, running: RunningRequest, handler: _Handler, frame: Call | Http | Rpc) -> None:
        _request.set(running.context)
        _in_replica.set(self.replica)
        has_lock = False
        running.has_started = True
        try:
            if running.is_cancelled:
                raise asyncio.CancelledError
            if not self.lock.try_acquire_read():
                await self.lock.acquire_read()
            has_lock = True
            tracer = self.observer.tracer
            if tracer is None:
                await handler(running, frame, self._load_after)
            else:
                with tracer.replica_span(running, frame, self.replica):
                    await handler(running, frame, self._load_after)
        except asyncio.CancelledError:
            running.status = CANCELLED
            running.finish(self, self._cancellation_error(running))
        except Exception as error:
            logger.exception("Request %s failed.", running.context.request_id)
            running.finish(self, error)
        except GeneratorExit:
            raise
        except BaseException as error:
            # SystemExit and the like end only the request, because others run on the same loop.
            logger.exception("Request %s failed.", running.context.request_id)
            running.finish(self, self._task_error(error, getattr(frame, "method", "__call__")))
        finally:
            if has_lock:
                self.lock.release_read()
            self._ended(running)
            self.observer.ended(running, frame)

    def _cancellation_error(self, running: RunningRequest) -> Exception:
        if running.is_stopped:
            id = self.replica.replica_id
            return ReplicaStoppedError(f"{id.deployment_id.key}#{id.unique_id}")
        return RequestCancelledError(running.context.request_id)

    def _ended(self, running: RunningRequest) -> None:
        self._running.pop((running.link, running.id), None)
        if running.context.children:
            for child in tuple(running.context.children):
                child.cancel()
        if self._rejected and len(self._running) < self.max_ongoing_requests and not self._is_draining:
            for link in self._rejected:
                link.send(Load(len(self._running)))
            self._rejected.clear()
        if not self._running:
            self._check_idle()

    def _check_idle(self) -> None:
        if not self._running and not self._awaiting_ack:
            self._idle.set()

    def _load_after(self) -> int:
        """Return the number of ongoing requests without the one that is about to be answered."""
        return len(self._running) - 1

    async def _call(self, running: RunningRequest, frame: Call, load: Callable[[], int]) -> None:
        if frame.args is not None:
            args, kwargs = unpack(frame.args)
        else:
            args, kwargs = await self.exchange.receive(running.link.name, frame.id)
        self._threads.apply()
        try:
            result = await self._code.call(frame.method, args, kwargs)
            is_stream = _is_generator(result)
            if frame.stream and is_stream:
                await self._stream(running, result)
                return
            if is_stream:
                raise TypeError(
                    f"Method '{frame.method}' returned a generator. You must use `handle.options(stream=True)` to call "
                    "generators on a deployment, and iterate over the response."
                )
            if frame.stream:
                raise TypeError(
                    f"Method '{frame.method}' was called with `handle.options(stream=True)`, but it did not return a "
                    "generator: call it without stream=True, or make it a generator."
                )
            packed = pack(result)
        except Exception as error:
            running.finish(self, self._task_error(error, frame.method))
            return
        if packed is None:
            self.exchange.keep(running.link.name, frame.id, 0, result)
        others = load()
        running.link.send(Reply(frame.id, others, packed), now=not others)
        running.is_answered = True

    async def _stream(self, running: RunningRequest, produced: Any) -> None:
        number = 0
        link, window = running.link, running.window
        items = produced if hasattr(produced, "__aiter__") else self._code.items(produced)
        try:
            async for item in items:
                if not window.try_take():
                    await window.take()
                packed = pack(item)
                if packed is None:
                    number += 1
                    self.exchange.keep(link.name, running.id, number, item)
                running.send_part(Item(running.id, packed, number if packed is None else 0))
        finally:
            if hasattr(items, "aclose"):  # an async generator, closed immediately
                await items.aclose()
        link.send(End(running.id, len(self._running) - 1))
        running.is_answered = True

    def _task_error(self, error: BaseException, method: str) -> Exception:
        if isinstance(error, RayTaskError):
            return error  # raised by another deployment that this request called
        task_error = RayTaskError.from_exception(f"{self.replica.deployment}.{method}", error)
        # Exceptions such as SystemExit must not end the caller.
        return task_error.as_instanceof_cause() if isinstance(error, Exception) else task_error


def _is_generator(value: Any) -> bool:
    return hasattr(value, "__next__") or hasattr(value, "__anext__")


_CallArgs = tuple[tuple[Any, ...], dict[str, Any]]


class Exchange:
    """Values that travel through the object store: large values, and values that contain references.

    It matches calls with their delivered arguments, and keeps results until they are collected. Keys contain the name
    of the caller's link and the id of the request. Everything except `collect` runs on the replica's event loop.
    """

    def __init__(self) -> None:
        self._delivered: dict[tuple[str, int], asyncio.Future[_CallArgs]] = {}
        self._kept: dict[tuple[str, int, int], Any] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def deliver(self, caller: str, id: int, call_args: _CallArgs) -> None:
        """Store the arguments of a call."""
        self._delivery(caller, id).set_result(call_args)

    async def receive(self, caller: str, id: int) -> _CallArgs:
        """Wait for the arguments of a call and return them."""
        try:
            return await self._delivery(caller, id)
        finally:
            self._delivered.pop((caller, id), None)

    def keep(self, caller: str, id: int, number: int, value: Any) -> None:
        """Keep a result until it is collected."""
        self._kept[caller, id, number] = value
        self._empty.clear()

    def collect(self, caller: str, id: int, number: int) -> Any:
        """Return a result once. Any thread may call it, so that a blocked loop does not delay results.

        Call `check_collected` on the loop afterwards.
        """
        return self._kept.pop((caller, id, number))

    def check_collected(self) -> None:
        """Wake the waiters if all results have been collected."""
        if not self._kept:
            self._empty.set()

    async def wait_collected(self) -> None:
        """Wait until all results have been collected."""
        await self._empty.wait()

    def forget(self, caller: str) -> None:
        """Drop the values of a caller that is gone."""
        for key in [key for key in self._delivered if key[0] == caller]:
            self._delivered.pop(key).cancel()
        for kept in list(self._kept):  # another thread may collect concurrently
            if kept[0] == caller:
                self._kept.pop(kept, None)
        self.check_collected()

    def _delivery(self, caller: str, id: int) -> asyncio.Future[_CallArgs]:
        future = self._delivered.get((caller, id))
        if future is None:
            future = self._delivered[caller, id] = asyncio.get_running_loop().create_future()
        return future
