"""An HTTP request on its way to a replica and back, and the monitor of its client."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from skate._api.payloads import unpack
from skate.serve._proxy.limits import BodyTooLargeError, Limits
from skate.serve._router.requests import OutgoingRequest
from skate.serve._wire.frames import Chunk, Context, Fail, Frame, Grant, Http, ResponsePart, Scope
from skate.serve._wire.window import WINDOW_SIZE, Window
from skate.serve.exceptions import RequestCancelledError

if TYPE_CHECKING:
    from skate.serve._router.connection import Connection
    from skate.serve._router.router import Router

__all__ = ["ClientMonitor", "HttpRequest", "Receive", "time_out"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


_NO_WINDOW = Window(0)  # of requests without further parts


class HttpRequest(OutgoingRequest):
    """Send an HTTP request and collect the parts of the response.

    `part` returns them in order. It joins parts that arrived together, so that a stream of tiny parts takes few writes
    to the client.
    """

    is_ended = False
    replica_time_s = 0.0  # processing time of a response in one part
    # The replica grants parts of the body when it begins. A replica that rejects the request has received none of them,
    # and the next one receives all.
    window = _NO_WINDOW
    _error: Exception | None = None
    _waiter: asyncio.Future[None] | None = None
    _arrived = False
    _taken = 0  # parts that were taken, and not granted again

    def __init__(self, context: Context, scope: Scope, body: bytes, more: bool) -> None:
        super().__init__(context)
        self.scope = scope
        self.body = body
        self.more = more
        if more:
            self.window = Window(0)
        self.began = time.perf_counter()
        self._parts: deque[ResponsePart] = deque()

    def send(self, connection: Connection) -> None:
        """Send the head, and the part of the body that has been read."""
        frame = Http(self.id, self.context, self.scope, self.body, self.more)
        connection.link.send(frame, now=len(connection.ongoing) == 1)

    @property
    def can_retry(self) -> bool:
        """Whether the request may be sent to another replica: it is complete here, and no answer has arrived."""
        return super().can_retry and not self.more and not self._arrived

    def receive(self, frame: Frame) -> bool:
        """Handle a part of the response."""
        if isinstance(frame, ResponsePart):
            self._arrived = True
            self._parts.append(frame)
            self.is_ended = not frame.more
            self.replica_time_s = frame.replica_time_s
            self._wake()
            return not frame.more
        if isinstance(frame, Fail):
            self.failed(unpack(frame.error))
            return True
        if isinstance(frame, Grant):
            self.window.grant(frame.count)
        return False

    def failed(self, error: Exception) -> None:
        """Fail with an error."""
        self._error = error
        self.is_ended = True
        self._wake()

    async def feed(self, data: bytes, more: bool, event: dict[str, Any] | None = None) -> None:
        """Send a further part of the body, or a websocket event, when the window allows it."""
        await self.window.take()
        if self.connection is not None and not self.is_done:
            self.connection.link.send(Chunk(self.id, data, more, event))

    async def part(self) -> ResponsePart:
        """Return the next part of the response.

        Raises:
            Exception: The error that `failed` received.
        """
        while not self._parts:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        first = self._parts.popleft()
        if first.more or self._parts:
            return self._join(first)
        return first

    def _join(self, first: ResponsePart) -> ResponsePart:
        """Join a part with the parts that arrived with it."""
        count = 1
        bodies = [first.body]
        last = first
        if first.event is None:
            while self._parts and self._parts[0].event is None:
                last = self._parts.popleft()
                bodies.append(last.body)
                count += 1
        self._taken += count
        if self._taken >= WINDOW_SIZE // 2 and not self.is_ended and self.connection is not None:
            self.connection.link.send(Grant(self.id, self._taken))
            self._taken = 0
        if count == 1:
            return first
        return ResponsePart(first.id, last.load, first.status, first.headers, b"".join(bodies), last.more)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


_DISCONNECT_CHECK_DELAY_S = 0.05  # seconds until the monitor starts to detect disconnects


class ClientMonitor:
    """Monitor the client while its request is processed: forward the rest of the body, and detect a disconnect."""

    __slots__ = (
        "_limits",
        "_receive",
        "_request",
        "_router",
        "_start_timer",
        "_task",
        "_timeout_timer",
        "is_disconnected",
    )

    def __init__(self, request: HttpRequest, router: Router, receive: Receive, limits: Limits) -> None:
        self._request = request
        self._router = router
        self._receive = receive
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        self._timeout_timer: asyncio.TimerHandle | None = None
        self.is_disconnected = False
        loop = asyncio.get_running_loop()
        # Most requests are answered before a monitoring task pays off.
        self._start_timer = loop.call_later(
            0 if request.more else _DISCONNECT_CHECK_DELAY_S, self._start_listening
        )
        if limits.timeout_s:
            left = limits.timeout_s - (time.perf_counter() - request.began)
            self._timeout_timer = loop.call_later(max(0.0, left), time_out, router, request)

    def _start_listening(self) -> None:
        self._task = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        read = len(self._request.body)
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.is_disconnected = True
                self._router.cancel(self._request)
                self._request.failed(RequestCancelledError(self._request.context.request_id))
                return
            data = message.get("body", b"")
            read += len(data)
            if read > self._limits.body_bytes:
                self._router.cancel(self._request)
                self._request.failed(BodyTooLargeError())
                return
            if self._request.more:  # otherwise the replica has the whole body
                await self._request.feed(data, message.get("more_body", False))

    def end(self) -> None:
        """Stop monitoring."""
        self._start_timer.cancel()
        if self._timeout_timer is not None:
            self._timeout_timer.cancel()
        if self._task is not None:
            self._task.cancel()


def time_out(router: Router, request: HttpRequest) -> None:
    router.cancel(request)
    request.failed(TimeoutError())
