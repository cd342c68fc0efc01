"""HTTP connections that clients cannot hold, or fill, without end: uvicorn's protocols with limits."""

from __future__ import annotations

import asyncio
import http
import logging
from typing import TYPE_CHECKING, Any, ClassVar

from skate.air._optional import load
from skate.serve._proxy.limits import Limits
from skate.serve._wire.frames import Headers

if TYPE_CHECKING:
    from skate.serve._proxy.fast_path import FastPathHandler

__all__ = ["make_protocol"]

_LINGER_TIMEOUT_S = (
    1.0  # how long what a refused client still sends is read and dropped, so that it gets to read the answer
)
# A body in chunks of one byte each costs five bytes more for each of them: anything beyond is not a body.
_FRAMING = 8

_MAX_LINGERING = 64  # of those over the limit of connections; more are hung up on without a word

logger = logging.getLogger("skate.serve.edge")
if logger.level == logging.NOTSET:
    logger.setLevel(logging.ERROR)  # clients who send nonsense should not fill the log


class LimitedConnection:
    """Limits for one connection, on top of what speaks HTTP. Costs a request that arrives in one piece next to nothing.

    Three things may be due from a client: the head of a request, the rest of a body, or nothing, while its answer is
    made. A timer runs for the first two only. Whoever is refused is told why, and the connection is closed.
    """

    limits: ClassVar[Limits]
    lingering: ClassVar[
        set[LimitedConnection]
    ]  # connections over the limit that have been refused and are about to close

    # Of uvicorn's protocols.
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    connections: set[Any]
    cycle: Any
    flow: Any
    timeout_keep_alive_task: asyncio.TimerHandle | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_head = False  # a request has begun whose head is not complete
        self._is_refused = False
        self._has_sent = False
        self._heard = 0.0  # when a part of a body came last
        self._body_bytes = 0
        self._fed_bytes = 0  # since the head was complete, framing included
        super().__init__(*args, **kwargs)
        self.logger = logger

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, or refuse it."""
        if len(self.connections) >= self.limits.connections:
            self.transport = transport
            if len(self.lingering) >= _MAX_LINGERING:
                transport.abort()
                return
            self.lingering.add(self)
            self.refuse(503, "Too many connections.", ((b"retry-after", b"1"),))
            return
        super().connection_made(transport)  # type: ignore[misc]  # of the protocol that this is mixed into
        self._timer = self.loop.call_later(self.limits.header_timeout_s, self._head_timed_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._stop_timer()
        self.lingering.discard(self)
        super().connection_lost(exc)  # type: ignore[misc]

    @property
    def is_idle(self) -> bool:
        """Whether nothing has come since the last answer."""
        return self.timeout_keep_alive_task is not None

    def refuse(self, status: int, text: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Answer the client and hang up, whatever it was about to say."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._stop_timer()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # for the application, the client has gone
            cycle.message_event.set()
            if cycle.response_started or getattr(self, "pipeline", None):
                self.transport.abort()  # an answer within another, or before its turn, would be taken for that one
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
        # Closed at once, with something of the client's unread, the kernel would throw the answer away.
        self.resume_reading()
        self._timer = self.loop.call_later(_LINGER_TIMEOUT_S, self.transport.abort)

    def resume_reading(self) -> None:
        """Read again, if reading was paused."""
        if self.flow is not None:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is none; uvicorn's protocols call it."""
        self.refuse(400, msg)

    def _check_rest(self, size: int) -> None:
        """After a read: start a timer for the missing part of a request, or refuse the request.

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
                self._expect_head()  # what came ended the wait for the next request, and was not the next request
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
        return f"The head of the request is too large: at most {self.limits.header_bytes} bytes are taken."

    def _too_large(self) -> str:
        return f"The request's body is too large: at most {self.limits.body_bytes} bytes are taken."

    def _expect_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.header_timeout_s, self._head_timed_out)

    def _head_timed_out(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_head()  # the next request may wait for the answer to this one
        elif self._has_sent:
            self.refuse(408, f"The head of a request must come within {self.limits.header_timeout_s:g} s.")
        else:
            self.transport.close()

    def _check_body_timeout(self) -> None:
        """Refuse a request whose body does not go on, unless it is us who keep the client waiting."""
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
            self.refuse(408, f"The parts of a body must come within {self.limits.body_timeout_s:g} s.")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def handle_websocket_upgrade(self, *args: Any) -> None:
        """Hand the connection over: what follows are not requests."""
        self._stop_timer()
        super().handle_websocket_upgrade(*args)  # type: ignore[misc]


def make_protocol(limits: Limits, fast_path: FastPathHandler | None = None) -> type[asyncio.Protocol]:
    """Return the class whose objects hold connections: with httptools where it is installed, else with h11.

    Args:
        limits: What is taken from clients.
        edge: Takes requests that have come whole; without it, all of them go to uvicorn's application.
    """
    try:
        import httptools  # noqa: F401
    except ImportError:
        from skate.serve._proxy.http_protocol_h11 import H11

        load("h11", "Serve over HTTP", "'skate[serve]'")
        return type("GuardedH11", (H11,), {"limits": limits, "lingering": set()})
    from skate.serve._proxy.http_protocol_httptools import HttpTools

    return type(
        "GuardedHttpTools", (HttpTools,), {"limits": limits, "lingering": set(), "fast_path": fast_path}
    )
