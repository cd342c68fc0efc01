"""HTTP connections with limits on time, size and number, based on uvicorn's protocols."""

from __future__ import annotations

import asyncio
import http
import logging
from typing import Any, ClassVar

from skate.serve._proxy.limits import Limits
from skate.serve._wire.frames import Headers

__all__ = ["LimitedConnection"]

_LINGER_TIMEOUT_S = 1.0  # seconds to drain a refused client, so that it can read the answer
# The most bytes on the wire per byte of a chunked body; a chunk of one byte has five bytes of framing.
_FRAMING = 8

_MAX_LINGERING = 64  # refused connections that linger; further ones are closed without an answer

logger = logging.getLogger("skate.serve.edge")
if logger.level == logging.NOTSET:
    logger.setLevel(logging.ERROR)  # invalid requests must not flood the log


class LimitedConnection:
    """The limits of one connection, as a mixin of uvicorn's protocols.

    The server waits for the head of a request, for the rest of a body, or for neither while a replica processes the
    request. A timer runs in the first two states. A refused client receives the reason, and the connection closes. A
    request that arrives in one piece has almost no overhead.
    """

    limits: ClassVar[Limits]
    lingering: ClassVar[set[LimitedConnection]]  # refused connections that are about to close

    # Attributes of uvicorn's protocols.
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    connections: set[Any]
    cycle: Any
    flow: Any
    timeout_keep_alive_task: asyncio.TimerHandle | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_head = False  # the head of a request is incomplete
        self._is_refused = False
        self._has_sent = False
        self._heard = 0.0  # when the last part of a body arrived
        self._body_bytes = 0
        self._fed_bytes = 0  # bytes since the head was complete, including framing
        super().__init__(*args, **kwargs)
        self.logger = logger

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accept or refuse a connection."""
        if len(self.connections) >= self.limits.connections:
            self.transport = transport
            if len(self.lingering) >= _MAX_LINGERING:
                transport.abort()
                return
            self.lingering.add(self)
            self.refuse(503, "Too many connections.", ((b"retry-after", b"1"),))
            return
        super().connection_made(transport)  # type: ignore[misc]  # the protocol that this class is mixed into
        self._timer = self.loop.call_later(self.limits.header_timeout_s, self._head_timed_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up a closed connection."""
        self._stop_timer()
        self.lingering.discard(self)
        super().connection_lost(exc)  # type: ignore[misc]

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for the next request."""
        return self.timeout_keep_alive_task is not None

    def refuse(self, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Send an error response and close the connection."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._stop_timer()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application sees a disconnect
            cycle.message_event.set()
            if cycle.response_started or getattr(self, "pipeline", None):
                self.transport.abort()  # the client would take the response for part of another one
                return
        body = text.encode()
        lines = [
            b"HTTP/1.1 %d %s" % (status, http.HTTPStatus(status).phrase.encode()),
            b"content-type: text/plain; charset=utf-8",
            b"content-length: %d" % len(body),
            b"connection: close",
            *(b"%s: %s" % header for header in headers),
        ]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Closing immediately with unread data would make the kernel discard the response.
        self.resume_reading()
        self._timer = self.loop.call_later(_LINGER_TIMEOUT_S, self.transport.abort)

    def resume_reading(self) -> None:
        """Resume reading if it is paused."""
        if self.flow is not None:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request. uvicorn's protocols call it."""
        self.refuse(400, msg)

    def _check_rest(self, size: int) -> None:
        """After a read, start a timer for the missing part of a request, or refuse the request.

        Args:
            size: The number of bytes read, or 0 if some of them belong to an earlier request.
        """
        cycle = self.cycle
        if self._is_refused:
            return
        if self._is_in_head or cycle is None:
            self._expect_head()
            return
        if cycle.response_complete or not cycle.more_body:
            if cycle.response_complete and not self.is_idle:
                self._expect_head()  # the data ended the keep-alive timer, but did not start a request
            return
        if self._declares_too_much():
            self.refuse(413, self._too_large())
            return
        self._fed_bytes += size
        if self._fed_bytes > self.limits.header_bytes + _FRAMING * self._body_bytes:
            self.refuse(400, "The request's body has more framing than content.")
            return
        self._heard = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.body_timeout_s, self._check_body_timeout)

    def _declares_too_much(self) -> bool:
        return self._fed_bytes == 0 and self.limits.is_too_long(self.cycle.scope["headers"])

    def _head_size(self, target: bytes, headers: Headers) -> int:
        return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)

    def _head_too_large(self) -> str:
        return f"The head of the request is too large: the limit is {self.limits.header_bytes} bytes."

    def _too_large(self) -> str:
        return f"The request's body is too large: the limit is {self.limits.body_bytes} bytes."

    def _expect_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.header_timeout_s, self._head_timed_out)

    def _head_timed_out(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_head()  # the next request may wait for the response to this one
        elif self._has_sent:
            self.refuse(408, f"The head of a request must arrive within {self.limits.header_timeout_s:g} s.")
        else:
            self.transport.close()

    def _check_body_timeout(self) -> None:
        """Refuse a request whose body stalls, unless this server pauses the client."""
        self._timer = None
        cycle = self.cycle
        if self._is_in_head:
            self._expect_head()
        if cycle is None or not cycle.more_body or cycle.response_complete:
            return
        now = self.loop.time()
        if self.flow.read_paused or cycle.waiting_for_100_continue:
            self._heard = now
        due = self._heard + self.limits.body_timeout_s
        if due > now:
            self._timer = self.loop.call_later(due - now, self._check_body_timeout)
        else:
            self.refuse(408, f"The parts of a body must arrive within {self.limits.body_timeout_s:g} s.")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle_websocket_upgrade(self, *args: Any) -> None:
        """Switch the connection to websockets, and stop the timer."""
        self._stop_timer()
        super().handle_websocket_upgrade(*args)  # type: ignore[misc]
