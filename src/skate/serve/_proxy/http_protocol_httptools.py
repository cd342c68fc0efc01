"""Connections whose requests are read by httptools, a parser in C."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from skate.serve._proxy.fast_path import FastPathHandler, FastPathRequest
from skate.serve._proxy.http_protocol import LimitedConnection
from skate.serve._wire.frames import Headers

_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")}
# Requests with one of these may have to go uvicorn's way.
_SPECIAL_HEADERS = frozenset((b"connection", b"upgrade", b"expect", b"x-forwarded-for", b"x-forwarded-proto"))
_FORWARDED_HEADERS = frozenset((b"x-forwarded-for", b"x-forwarded-proto"))

__all__ = ["HttpTools"]


class HttpTools(LimitedConnection, HttpToolsProtocol):  # type: ignore[misc]  # both say what a connection has
    """uvicorn's protocol on httptools, which by itself bounds neither heads nor bodies.

    A request that has come to its end with the piece in which it began is passed on at once, without a cycle and a task
    of uvicorn's. All others go uvicorn's way.
    """

    fast_path: ClassVar[FastPathHandler | None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._head_bytes = 0
        self._began = False  # whether the last read contains the beginning of a request
        self._ended = False  # whether it contains the end of one
        self._may_exceed_head_limit = False  # the head may be longer than is taken: it has to be measured
        self._refusal: tuple[int, str] | None = None  # why parsing was broken off
        # A request that may turn out to be whole: its headers, and its body so far.
        self._pending: tuple[Headers, list[bytes]] | None = None
        self._is_special = False
        self._hosts: list[bytes] = []  # values of the `Host` headers
        self._idle_since: float | None = None
        self._target = b"", "", b"", b""  # of the request before, and its parts: clients repeat themselves
        super().__init__(*args, **kwargs)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        if self._is_refused:
            return
        size = len(data)
        self._has_sent = True
        self._began = self._ended = False
        self._may_exceed_head_limit = self._is_in_head or size > self.limits.header_bytes
        HttpToolsProtocol.data_received(self, data)
        if self._pending is not None and not self._is_refused:
            self._fall_back_to_uvicorn(is_complete=False)
        cycle = self.cycle
        if self._is_in_head or cycle is None or cycle.more_body or cycle.response_complete:
            self._measure_head(size)
            self._check_rest(0 if self._ended else size)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    # One timer for all the times that a connection waits for its next request, instead of one for each: it looks at how
    # long that has been when it is due.

    @property
    def is_idle(self) -> bool:
        """Whether nothing has come since the last answer."""
        return self._idle_since is not None

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for it; uvicorn's cycles call it."""
        if self.pipeline or self.transport.is_closing():
            HttpToolsProtocol.on_response_complete(self)
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._check_idle_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Hang up if the next request has not come for too long; the timer calls it."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # a request is under way, and its answer starts the timer again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._check_idle_in(left)
        else:
            self.transport.close()

    def _check_idle_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _measure_head(self, size: int) -> None:
        # How much of a piece is head is known if no request ended, or none began, within it.
        if self._is_in_head and (self.cycle is None or not self._began):
            self._head_bytes += size
            if self._head_bytes > self.limits.header_bytes:
                self.refuse(431, self._head_too_large())

    def send_400_response(self, msg: str) -> None:
        """Answer a request that could not be parsed, or was not parsed to its end."""
        refusal, self._refusal = self._refusal, None
        self.refuse(*(refusal or (400, msg)))

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        self._is_in_head = self._began = True
        self._head_bytes = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._is_special = False
        self._hosts = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        name = name.lower()
        if name in _SPECIAL_HEADERS:
            self._is_special = True
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        elif name == b"host":
            self._hosts.append(value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Note that the head is complete, and let the request begin, unless its body is here too."""
        self._is_in_head = False
        self._body_bytes = self._fed_bytes = 0
        if self._timer is not None:
            self._stop_timer()
        if self._may_exceed_head_limit and self._head_size(self.url, self.headers) > self.limits.header_bytes:
            self._stop_parsing(431, self._head_too_large())
        refusal = self._check_host()
        if refusal is not None:
            self._stop_parsing(*refusal)
        cycle = self.cycle
        self._pending = self.headers, []
        # Trailers go elsewhere: behind a body, they must not pass for headers that a proxy in front has checked.
        self.headers = []
        if (
            self.fast_path is None
            or (cycle is not None and not cycle.response_complete)
            or not self.parser.should_keep_alive()
            or (self._is_special and self._needs_uvicorn(self._pending[0]))
        ):
            self._fall_back_to_uvicorn(is_complete=False)

    def _check_host(self) -> tuple[int, str] | None:
        """Return why a request is not for this server, if so."""
        may_lack = not self._hosts and self.parser.get_http_version() == "1.0"
        return self.limits.hosts.refusal(self._hosts, self.url, may_lack=may_lack)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self._stop_parsing(413, self._too_large())
        if self._pending is None:
            HttpToolsProtocol.on_body(self, body)
        else:
            self._pending[1].append(body)

    def on_message_complete(self) -> None:
        """Let a request begin that is whole."""
        self._ended = True
        if self._pending is None:
            HttpToolsProtocol.on_message_complete(self)
            return
        headers, body = self._pending
        url, path, raw_path, query = self._target
        if self.url != url:
            parsed = httptools.parse_url(self.url)
            raw_path, query = parsed.path, parsed.query or b""
            path = raw_path.decode("ascii")
            if "%" in path:
                path = unquote(path)
            self._target = self.url, path, raw_path, query
        method = self.parser.get_method()
        assert self.fast_path is not None, "otherwise nothing would have been pending"
        if self.fast_path.begin(
            self,
            _METHODS.get(method) or method.decode("ascii"),
            path,
            raw_path,
            query,
            headers,
            b"".join(body),
        ):
            self._pending = None
        else:
            self._fall_back_to_uvicorn(is_complete=True)

    def _needs_uvicorn(self, headers: Headers) -> bool:
        parser = self.parser
        return (
            self.expect_100_continue
            or parser.should_upgrade()
            or parser.get_http_version() != "1.1"
            or any(
                name in _FORWARDED_HEADERS for name, _ in headers
            )  # said by a proxy before us, of the client
        )

    def _fall_back_to_uvicorn(self, *, is_complete: bool) -> None:
        """Let uvicorn make a cycle and a task for the request whose head is here, and what is pending of its body."""
        assert self._pending is not None
        (headers, pending), self._pending = self._pending, None
        url, expects = self.url, self.expect_100_continue
        HttpToolsProtocol.on_message_begin(self)
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        HttpToolsProtocol.on_headers_complete(self)
        if self.scope["http_version"] != "1.1" and self.cycle is not None:
            _send_without_chunks(self.cycle)
        if not self.parser.should_upgrade():
            self.headers = []
        for body in pending:
            HttpToolsProtocol.on_body(self, body)
        if is_complete:
            HttpToolsProtocol.on_message_complete(self)

    def start_cycle(self, request: FastPathRequest, app: Any) -> None:
        """Answer a request that was whole by an ASGI application."""
        scope: Any = {
            "type": "http",
            "http_version": "1.1",
            "method": request.scope.method,
            "path": request.scope.path,
            "query_string": request.scope.query,
            "headers": request.scope.headers,
            "client": self.client,
        }
        cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=request.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        cycle.disconnected = request.disconnected
        if self.cycle is request:  # otherwise others wait behind it
            self.cycle = cycle
        self._start_asgi_task(cycle, app)

    def _stop_parsing(self, status: int, text: str) -> None:
        """Stop the parser: the error comes out of it as a parser's error, which uvicorn answers."""
        self._refusal = status, text
        raise ValueError(text)


class _UnlimitedLength:
    """The length of a body that ends where the connection does: anything fits in, and nothing is missing."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> _UnlimitedLength:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _send_without_chunks(cycle: Any) -> None:
    """Let a client of HTTP/1.0 have a stream as it is: it knows no chunks, and uvicorn would send them."""
    cycle.chunked_encoding = False
    cycle.expected_content_length = _UnlimitedLength()
