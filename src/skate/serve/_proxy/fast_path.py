"""Requests that have come in one piece, and are answered in one piece, as most are: no task is made for them."""

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
_MAX_CACHED_LINES = 1000  # that are kept: an application may make up new headers for ever


class FastPathHandler(Protocol):
    """Takes requests that have come whole."""

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
        """Pass a request on; returns False, with nothing done, if it has to go the long way."""

    def answered(self, request: FastPathRequest, status: int) -> None:
        """Hear that a request is over: its answer has been written, or its client has gone."""

    def respond_in_task(self, request: FastPathRequest) -> None:
        """Answer a request whose answer is more than one piece, or that has failed."""


class FastPathRequest(HttpRequest):
    """A request under way that waits for nothing but its answer.

    For uvicorn's protocol it stands where the cycle of a request stands, and has what the protocol looks at.
    """

    # What uvicorn's protocol asks a cycle for.
    keep_alive = True  # those that say otherwise go the long way; a server that is about to end sets it
    more_body = False
    waiting_for_100_continue = False
    disconnected = False
    response_started = False
    response_complete = False

    timer: asyncio.TimerHandle | None = None  # when its time is over
    _uses_task = False  # it goes on by a task

    def __init__(
        self, protocol: HttpTools, router: Router, route: Route, context: Context, scope: Scope, body: bytes
    ) -> None:
        super().__init__(context, scope, body, False)
        self.protocol = protocol
        self.router = router
        self.route = route

    # ------------------------------------------------------------ what the replica says

    def receive(self, frame: Frame) -> bool:
        """Answer the client, at once if the response is one part."""
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
        """Answer the client by a task."""
        super().failed(error)
        if not self._uses_task:
            self._uses_task = True
            self._handler.respond_in_task(self)

    def _write(self, part: ResponsePart) -> bool:
        """Send an answer in one write; returns False if there is more to it than a head and a body."""
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

    # ------------------------------------------------------------ what happens to the client

    @property
    def message_event(self) -> FastPathRequest:
        """What uvicorn's protocol sets when something has happened to the client."""
        return self

    def set(self) -> None:
        """Hear that something has happened to the client."""
        if self.disconnected and not self.response_complete:
            self.response_complete = self._uses_task = True
            self.router.cancel(self)
            self._handler.answered(self, 499)

    @property
    def _handler(self) -> FastPathHandler:
        fast_path = self.protocol.fast_path
        assert fast_path is not None, "it has begun with this request"
        return fast_path


_lines: dict[tuple[bytes, bytes], bytes] = {}


def _line(header: tuple[bytes, bytes]) -> bytes | None:
    """Return a header as it is sent; None if it says more than itself, or could be taken for more than one."""
    name, value = header
    if name.lower() in _SPECIAL_HEADERS or _NOT_IN_NAME.search(name) or _NOT_IN_VALUE.search(value):
        return None
    line = name.lower() + b": " + value + b"\r\n"
    if len(_lines) >= _MAX_CACHED_LINES:
        _lines.clear()
    _lines[header] = line
    return line
