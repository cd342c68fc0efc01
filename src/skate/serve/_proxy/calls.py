"""An HTTP request on its way to a replica and back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from skate._api.payloads import unpack
from skate.serve._router.calls import Outgoing
from skate.serve._wire.frames import Chunk, Context, Fail, Frame, Grant, Http, Respond, Scope
from skate.serve._wire.window import Window

if TYPE_CHECKING:
    from skate.serve._router.line import Line

__all__ = ["HttpCall"]


_NO_WINDOW = Window(0)  # of requests that have no further parts


class HttpCall(Outgoing):
    """Sends the request and collects the parts of the response.

    `parts` gives them in order. Parts that came together are joined, so that a stream of tiny parts costs the client's
    connection one write for several of them.
    """

    is_ended = False
    spent = 0.0  # seconds that the replica had the request, for a response in one part
    # For parts of the body that follow: the replica grants it when it begins with the request. One that turns the
    # request away has seen none of them, and the next one gets them all.
    window = _NO_WINDOW
    _error: Exception | None = None
    _waiter: asyncio.Future[None] | None = None
    _arrived = False

    def __init__(self, context: Context, scope: Scope, body: bytes, more: bool) -> None:
        super().__init__(context)
        self.scope = scope
        self.body = body
        self.more = more
        if more:
            self.window = Window(0)
        self.began = time.perf_counter()
        self._parts: deque[Respond] = deque()

    def send(self, line: Line) -> None:
        """Send the request's head, and its body as far as it has been read."""
        frame = Http(self.id, self.context, self.scope, self.body, self.more)
        line.link.send(frame, now=len(line.under_way) == 1)

    @property
    def can_start_over(self) -> bool:
        """Whether another replica may answer instead: all of the request is still here, and nothing was answered."""
        return super().can_start_over and not self.more and not self._arrived

    def receive(self, frame: Frame) -> bool:
        """Take a part of the response."""
        if isinstance(frame, Respond):
            self._arrived = True
            self._parts.append(frame)
            self.is_ended = not frame.more
            self.spent = frame.spent
            self._wake()
            return not frame.more
        if isinstance(frame, Fail):
            self.failed(unpack(frame.error))
            return True
        if isinstance(frame, Grant):
            self.window.grant(frame.count)
        return False

    def failed(self, error: Exception) -> None:
        """There will be no further part."""
        self._error = error
        self.is_ended = True
        self._wake()

    async def feed(self, data: bytes, more: bool, event: dict[str, Any] | None = None) -> None:
        """Send a further part of the body, or an event of a websocket's client, when the replica has room for it."""
        await self.window.take()
        if self.line is not None and not self.is_done:
            self.line.link.send(Chunk(self.id, data, more, event))

    async def part(self) -> Respond:
        """Wait for the next part, and return it; raises what `failed` was given."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        first = self._parts.popleft()
        if first.more or self._parts:
            return self._joined(first)
        return first

    def _joined(self, first: Respond) -> Respond:
        """Return a part of a stream together with those that came with it."""
        count = 1
        bodies = [first.body]
        last = first
        if first.event is None:
            while self._parts and self._parts[0].event is None:
                last = self._parts.popleft()
                bodies.append(last.body)
                count += 1
        if not self.is_ended and self.line is not None:
            self.line.link.send(Grant(self.id, count))
        if count == 1:
            return first
        return Respond(first.id, last.load, first.status, first.headers, b"".join(bodies), last.more)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
