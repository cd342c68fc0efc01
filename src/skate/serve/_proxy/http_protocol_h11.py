"""HTTP connections parsed by h11, if httptools is not installed."""

from __future__ import annotations

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from skate.serve._proxy.http_protocol import LimitedConnection

__all__ = ["H11"]


class H11(LimitedConnection, H11Protocol):  # type: ignore[misc]  # both define the connection's attributes
    """uvicorn's h11 protocol, which by itself only limits incomplete heads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._refusal: tuple[int, str] | None = None
        super().__init__(*args, **kwargs)
        self._next_event = self.conn.next_event
        self.conn.next_event = self._checked_next_event  # type: ignore[method-assign]  # uvicorn creates the connection

    def _checked_next_event(self) -> Any:
        """Return the parser's next event, and raise for a refused request before uvicorn starts it."""
        event = self._next_event()
        if isinstance(event, h11.Request):
            values = [value for name, value in event.headers if name == b"host"]
            self._refusal = self.limits.hosts.refusal(
                values, event.target, may_lack=event.http_version == b"1.0"
            )
            if self._refusal is not None:
                raise h11.RemoteProtocolError(self._refusal[1])
        return event

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
        if self._is_refused:
            return
        self._has_sent = True
        before = self.cycle
        unread = 0 if before is None else len(before.body)
        H11Protocol.data_received(self, data)
        cycle = self.cycle
        if cycle is not None:
            self._body_bytes += len(cycle.body) - (unread if cycle is before else 0)
            if self._body_bytes > self.limits.body_bytes:
                self.refuse(413, self._too_large())
        self._is_in_head = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        has_next_request = before is not None and cycle is not before
        self._check_rest(0 if has_next_request else len(data))

    def handle_events(self) -> None:
        """Handle the parsed events."""
        before = self.cycle
        H11Protocol.handle_events(self)
        if self.cycle is before:
            return
        self._stop_timer()
        self._body_bytes = self._fed_bytes = 0
        names = {name for name, _ in self.headers}
        if b"content-length" in names and b"transfer-encoding" in names:
            self.refuse(400, "A body has either a length or chunks.")
        elif self._head_size(self.scope["raw_path"], self.headers) > self.limits.header_bytes:
            self.refuse(431, self._head_too_large())

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that could not be parsed."""
        if len(self.conn.trailing_data[0]) > self.limits.header_bytes:
            self.refuse(431, self._head_too_large())
        else:
            self.refuse(*(self._refusal or (400, msg)))
