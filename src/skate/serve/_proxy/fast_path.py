"""The fast path of HTTP requests that arrive complete and whose response is one write: they need no task."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from skate.serve._proxy.http_request import HttpRequest
from skate.serve._wire.frames import Context, Frame, Headers, ResponsePart, Scope

if TYPE_CHECKING:
    from skate.serve._proxy.http_protocol_httptools import HttpTools
    from skate.serve._router.router import Router
    from skate.serve._wire.updates import Route

__all__ = ["FastPathHandler", "FastPathRequest"]

_NOT_IN_NAME = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
_NOT_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_SPECIAL_HEADERS = frozenset((b"connection", b"transfer-encoding"))
_WITHOUT_BODY = frozenset((204, 304))
_MAX_CACHED_LINES = 1000  # limit of the cache, because applications choose headers


class FastPathHandler(Protocol):
    """Handles requests that arrive complete."""

    def begin(
        self,
        protocol: HttpTools,
        method: str,
        path: str,
        raw_path: bytes,
        query: bytes,
        headers: Headers,
        body: bytes,
    ) -> bool:
        """Forward a request. Return False, without side effects, if the fast path is not possible."""

    def answered(self, request: FastPathRequest, status: int) -> None:
        """Handle the end of a request: its response was written, or its client disconnected."""

    def respond_in_task(self, request: FastPathRequest) -> None:
        """Answer a request that failed, or whose response is not one write."""


class FastPathRequest(HttpRequest):
    """An ongoing request on the fast path.

    It takes the place of uvicorn's request cycle, and has the attributes that uvicorn's protocol uses.
    """

    # Attributes of uvicorn's cycle.
    keep_alive = True  # a server that is stopping clears it
    more_body = False
    waiting_for_100_continue = False
    disconnected = False
    response_started = False
    response_complete = False

    timer: asyncio.TimerHandle | None = None  # the time-out of the request
    _uses_task = False  # a task answers it

    def __init__(
        self, protocol: HttpTools, router: Router, route: Route, context: Context, scope: Scope, body: bytes
    ) -> None:
        super().__init__(context, scope, body, False)
        self.protocol = protocol
        self.router = router
        self.route = route

    # ------------------------------------------------------------ answers of the replica

    def receive(self, frame: Frame) -> bool:
        """Answer the client, immediately if the response is one part."""
        if self._uses_task:
            return super().receive(frame)
        if type(frame) is ResponsePart and not frame.more and self._write(frame):
            self.replica_time_s = frame.replica_time_s
            self._handler.answered(self, frame.status)
            return True
        self._uses_task = True
        is_over = super().receive(frame)
        self._handler.respond_in_task(self)
        return is_over

    def failed(self, error: Exception) -> None:
        """Answer the client in a task."""
        super().failed(error)
        if not self._uses_task:
            self._uses_task = True
            self._handler.respond_in_task(self)

    def _write(self, part: ResponsePart) -> bool:
        """Write the response. Return False if it is more than a head and a body."""
        protocol = self.protocol
        body, status = part.body, part.status
        if protocol.flow.write_paused or protocol.transport.is_closing():
            return False
        if self.scope.method == "HEAD" or status in _WITHOUT_BODY or not self.keep_alive:
            return False
        content = [STATUS_LINE[status]]
        length = None
        for header in (*protocol.server_state.default_headers, *part.headers):
            line = _lines.get(header) or _line(header)
            if line is None:
                return False
            content.append(line)
            if header[0] == b"content-length":
                length = header[1]
        if length is None or int(length) != len(body):
            return False
        content += b"x-request-id: ", self.context.request_id.encode("latin-1"), b"\r\n\r\n", body
        protocol.transport.write(b"".join(content))
        self.response_started = self.response_complete = True
        protocol.on_response_complete()
        return True

    # ------------------------------------------------------------ events of the client

    @property
    def message_event(self) -> FastPathRequest:
        """The event that uvicorn's protocol sets when the client's state changes."""
        return self

    def set(self) -> None:
        """Handle a change of the client's state."""
        if self.disconnected and not self.response_complete:
            self.response_complete = self._uses_task = True
            self.router.cancel(self)
            self._handler.answered(self, 499)

    @property
    def _handler(self) -> FastPathHandler:
        fast_path = self.protocol.fast_path
        assert fast_path is not None, "it began this request"
        return fast_path


_lines: dict[tuple[bytes, bytes], bytes] = {}


def _line(header: tuple[bytes, bytes]) -> bytes | None:
    """Return an encoded header, or None if it is invalid or needs special handling."""
    name, value = header
    if name.lower() in _SPECIAL_HEADERS or _NOT_IN_NAME.search(name) or _NOT_IN_VALUE.search(value):
        return None
    line = name.lower() + b": " + value + b"\r\n"
    if len(_lines) >= _MAX_CACHED_LINES:
        _lines.clear()
    _lines[header] = line
    return line
