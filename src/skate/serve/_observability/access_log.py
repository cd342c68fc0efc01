"""The access log: one line per request that a replica has answered.

At thousands of requests a second, `logging` records would cost as much as the requests. `AccessLog` therefore formats
lines itself and writes them in batches, in order with the records of the logger. It creates records only if the logger
has other handlers.
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
"""The longest delay until a line is in the file, in seconds."""

MAX_CACHED_PARTS = 1000  # bounded because clients choose method names
MAX_LINES_ON_STDERR = 20
"""The most lines of one batch on standard error. The file contains all of them."""


class AccessLog:
    """Collect lines and write them in batches. On the replica's event loop."""

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
            request_id: The id of the request.
            route: The prefix or pattern of its route.
            method: The HTTP method, or CALL.
            what: The route, or the name of the called method.
            status: The status of the answer.
            seconds: The duration of the request.
            client: The suffix of the line: the client's address after a space, or "".
        """
        logs = self._logs
        if not logs.has_only_own_handlers:
            logs.log_access(f"{method} {what} {status} {seconds * 1000:.1f}ms{client}")
            return
        now = time.time()
        key = (method, what, status, route)
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = self._parts_of(*key)
        if logs.is_text:
            head = f"INFO {self._clock(now)} {self._component} {request_id} --"
            line = f"{head} {parts[0]} {seconds * 1000:.1f}ms{client}\n"
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
        """Return the parts that lines have in common; they differ in request ids and times."""
        if len(self._parts) > MAX_CACHED_PARTS:
            self._parts.clear()
        message = f"{method} {what} {status}"
        if self._logs.is_text:
            return message, ""
        fields = {"method": method, "status": status, "route": route}
        return f'"levelname": "INFO", "message": {json.dumps(message)[:-1]}', json.dumps(fields)[1:-1]

    def reset(self) -> None:
        """Write all lines and clear the cache, because the encoding may change."""
        self.write()
        self._parts.clear()

    def _write_before_record(self) -> None:
        """Write the collected lines before a record. Records of other threads have no defined order."""
        if self._lines and threading.get_ident() == self._thread:
            self.write()

    def write(self) -> None:
        """Write the collected lines."""
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
