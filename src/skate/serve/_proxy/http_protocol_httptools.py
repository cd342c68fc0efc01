"""HTTP connections parsed by httptools, a parser in C."""

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
# Requests with one of these headers may need uvicorn's own handling.
_SPECIAL_HEADERS = frozenset((b"connection", b"upgrade", b"expect", b"x-forwarded-for", b"x-forwarded-proto"))
_FORWARDED_HEADERS = frozenset((b"x-forwarded-for", b"x-forwarded-proto"))

__all__ = ["HttpTools"]


class HttpTools(LimitedConnection, HttpToolsProtocol):  # type: ignore[misc]  # both define the connection's attributes
    """uvicorn's httptools protocol, which by itself limits neither heads nor bodies.

    A request that is complete after the read in which it began takes the fast path, without uvicorn's cycle and task.
    uvicorn handles all others.
    """

    fast_path: ClassVar[FastPathHandler | None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._head_bytes = 0
        self._began = False  # whether a request began in the last read
        self._ended = False  # whether a request ended in the last read
        self._may_exceed_head_limit = False  # the head may exceed the limit, and has to be measured
        self._refusal: tuple[int, str] | None = None  # why parsing stopped
        # Headers and body so far of a request that may take the fast path.
        self._pending: tuple[Headers, list[bytes]] | None = None
        self._is_special = False
        self._hosts: list[bytes] = []  # the values of the `Host` headers
        self._idle_since: float | None = None
        self._target = b"", "", b"", b""  # the previous target and its parts, because clients repeat targets
        super().__init__(*args, **kwargs)

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
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
        """Clean up a closed connection."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)

    # A connection has one keep-alive timer, instead of one per request: when it fires, it checks how long the
    # connection has been idle.

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for the next request."""
        return self._idle_since is not None

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        """Start the next request, or wait for it. uvicorn's cycles call it."""
        if self.pipeline or self.transport.is_closing():
            HttpToolsProtocol.on_response_complete(self)
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._check_idle_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it has been idle for too long. The timer calls it."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # a request is ongoing, and its response restarts the timer
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._check_idle_in(left)
        else:
            self.transport.close()

    def _check_idle_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _measure_head(self, size: int) -> None:
        # The size of the head is known if no request ended, or none began, in this read.
        if self._is_in_head and (self.cycle is None or not self._began):
            self._head_bytes += size
            if self._head_bytes > self.limits.header_bytes:
                self.refuse(431, self._head_too_large())

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that could not be parsed completely."""
        refusal, self._refusal = self._refusal, None
        self.refuse(*(refusal or (400, msg)))

    def on_message_begin(self) -> None:
        """Start a request."""
        self._is_in_head = self._began = True
        self._head_bytes = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._is_special = False
        self._hosts = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        name = name.lower()
        if name in _SPECIAL_HEADERS:
            self._is_special = True
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        elif name == b"host":
            self._hosts.append(value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the request, unless its body may be complete, too."""
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
        # Trailers must not become headers, which a proxy in front may have checked.
        self.headers = []
        if (
            self.fast_path is None
            or (cycle is not None and not cycle.response_complete)
            or not self.parser.should_keep_alive()
            or (self._is_special and self._needs_uvicorn(self._pending[0]))
        ):
            self._fall_back_to_uvicorn(is_complete=False)

    def _check_host(self) -> tuple[int, str] | None:
        """Return the refusal of the `Host` header, or None."""
        may_lack = not self._hosts and self.parser.get_http_version() == "1.0"
        return self.limits.hosts.refusal(self._hosts, self.url, may_lack=may_lack)

    def on_body(self, body: bytes) -> None:
        """Store a part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self._stop_parsing(413, self._too_large())
        if self._pending is None:
            HttpToolsProtocol.on_body(self, body)
        else:
            self._pending[1].append(body)

    def on_message_complete(self) -> None:
        """Start a complete request."""
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
        assert self.fast_path is not None, "set if a request is pending"
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
            or any(name in _FORWARDED_HEADERS for name, _ in headers)  # set by a reverse proxy
        )

    def _fall_back_to_uvicorn(self, *, is_complete: bool) -> None:
        """Let uvicorn handle the pending request, with a cycle and a task."""
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
        """Answer a fast-path request by an ASGI application."""
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
        if self.cycle is request:  # otherwise pipelined requests wait
            self.cycle = cycle
        self._start_asgi_task(cycle, app)

    def _stop_parsing(self, status: int, text: str) -> None:
        """Stop the parser by an error, which uvicorn answers."""
        self._refusal = status, text
        raise ValueError(text)


class _UnlimitedLength:
    """The length of a body that ends with the connection: greater than any number."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> _UnlimitedLength:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _send_without_chunks(cycle: Any) -> None:
    """Send a stream to an HTTP/1.0 client without chunked encoding, which uvicorn would use."""
    cycle.chunked_encoding = False
    cycle.expected_content_length = _UnlimitedLength()
