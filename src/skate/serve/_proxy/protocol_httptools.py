"""Connections whose requests are read by httptools, a parser in C."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from skate.serve._proxy.protocol import Guard

__all__ = ["HttpTools"]


class HttpTools(Guard, HttpToolsProtocol):  # type: ignore[misc]  # both say what a connection has
    """uvicorn's protocol on httptools, which by itself bounds neither heads nor bodies."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._head_bytes = 0
        self._began = False  # a request, with the piece that came last
        self._is_long = False  # the head may be longer than is taken: it has to be measured
        self._refusal: tuple[int, str] | None = None  # why parsing was broken off
        super().__init__(*args, **kwargs)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        if self._is_refused:
            return
        size = len(data)
        self._has_sent = True
        self._began = False
        self._is_long = self._is_in_head or size > self.limits.header_bytes
        HttpToolsProtocol.data_received(self, data)
        cycle = self.cycle
        if self._is_in_head or cycle is None or cycle.more_body or cycle.response_complete:
            self._measure_head(size)
            self._see_to_rest(size)

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
        HttpToolsProtocol.on_message_begin(self)

    def on_headers_complete(self) -> None:
        """Note that the head is complete, and let the request begin."""
        self._is_in_head = False
        self._body_bytes = self._fed_bytes = 0
        if self._timer is not None:
            self._stop_timer()
        if self._is_long and self._head_size(self.url, self.headers) > self.limits.header_bytes:
            self._break_off(431, self._head_too_large())
        HttpToolsProtocol.on_headers_complete(self)
        if self.scope["http_version"] != "1.1" and self.cycle is not None:
            _send_without_chunks(self.cycle)
        if not self.parser.should_upgrade():
            # Trailers go elsewhere: behind a body, they must not pass for headers that a proxy in front has checked.
            self.headers = []

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self._break_off(413, self._too_large())
        HttpToolsProtocol.on_body(self, body)

    def _break_off(self, status: int, text: str) -> None:
        """Stop the parser: the error comes out of it as a parser's error, which uvicorn answers."""
        self._refusal = status, text
        raise ValueError(text)


class _Endless:
    """The length of a body that ends where the connection does: anything fits in, and nothing is missing."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> _Endless:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _send_without_chunks(cycle: Any) -> None:
    """Let a client of HTTP/1.0 have a stream as it is: it knows no chunks, and uvicorn would send them."""
    cycle.chunked_encoding = False
    cycle.expected_content_length = _Endless()
