"""The access log: one line for each request that a replica has answered.

At thousands of requests a second, records of `logging` would cost as much as the requests. So lines are made here, and
written together when a moment has passed; in order with the records of the logger. Only where somebody else listens to
the logger are they made into records.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from json.encoder import encode_basestring_ascii as _quoted

from skate.serve._observability.logs import Clock, ServeLogs

__all__ = ["AccessLog"]

WRITE_INTERVAL_S = 0.1
"""How old a line may be until it is in the file."""

MAX_CACHED_PARTS = 1000  # a client may call its methods anything
MAX_LINES_ON_STDERR = 20
"""How many lines of one moment are shown on standard error; a person cannot read more, and the file has all."""


class AccessLog:
    """Collects lines and writes them. On the replica's loop."""

    def __init__(self, logs: ServeLogs) -> None:
        self._logs = logs
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._clock = Clock()
        self._parts: dict[tuple[str, str, str, str], tuple[str, str]] = {}
        component = logs.component
        self._component = f"{component.name} {component.id}"
        about = {"application": component.application, **component.fields, "component_name": component.kind}
        self._about = json.dumps(about)[1:-1]
        self._thread = threading.get_ident()
        logs.before_record = self._write_before_record

    def add(
        self,
        request_id: str,
        route: str,
        method: str,
        what: str,
        status: str,
        seconds: float,
        client: str = "",
    ) -> None:
        """Log a request.

        Args:
            request_id: Its id.
            route: The route's prefix, or its pattern.
            method: The method of HTTP, or CALL.
            what: The route, or the name of the method that was called.
            status: How it ended.
            seconds: How long it took.
            client: What follows in the line: the client's address after a space, or nothing.
        """
        logs = self._logs
        if not logs.has_only_own_handlers:
            logs.record(f"{method} {what} {status} {seconds * 1000:.1f}ms{client}")
            return
        now = time.time()
        key = (method, what, status, route)
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = self._parts_of(*key)
        if logs.is_text:
            line = f"INFO {self._clock(now)} {self._component} {request_id} -- {parts[0]} {seconds * 1000:.1f}ms{client}\n"
        else:
            took = seconds * 1000
            line = (
                f'{{"asctime": "{self._clock(now)}", {parts[0]} {took:.1f}ms{client}", '
                f'"latency_ms": {took:.3f}, {parts[1]}, "request_id": {_quoted(request_id)}, {self._about}, '
                f'"timestamp_ns": {int(now * 1e9)}}}\n'
            )
        lines = self._lines
        lines.append(line)
        if len(lines) == 1:
            self._timer = asyncio.get_running_loop().call_later(WRITE_INTERVAL_S, self.write)

    def _parts_of(self, method: str, what: str, status: str, route: str) -> tuple[str, str]:
        """Return what is the same in many lines: they differ in the request's id and in times."""
        if len(self._parts) > MAX_CACHED_PARTS:
            self._parts.clear()
        message = f"{method} {what} {status}"
        if self._logs.is_text:
            return message, ""
        fields = {"method": method, "status": status, "route": route}
        return f'"levelname": "INFO", "message": {json.dumps(message)[:-1]}', json.dumps(fields)[1:-1]

    def reset(self) -> None:
        """Make lines anew: the encoding may have changed."""
        self.write()
        self._parts.clear()

    def _write_before_record(self) -> None:
        """Write what came before a record; those of other threads have no order that could be kept."""
        if self._lines and threading.get_ident() == self._thread:
            self.write()

    def write(self) -> None:
        """Write what was collected."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._logs.file is not None:
            self._logs.file.write("".join(lines))
            if self._logs.shows_access:
                rest = len(lines) - MAX_LINES_ON_STDERR
                more = (
                    f"… and {rest} further requests: see {self._logs.file.baseFilename}\n" if rest > 0 else ""
                )
                sys.stderr.write("".join(lines[:MAX_LINES_ON_STDERR]) + more)
