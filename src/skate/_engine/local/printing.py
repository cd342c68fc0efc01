"""Showing workers' output on the driver's terminal: prefixed, and the same line only once."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from skate._engine.local import messages as m

WINDOW = 5.0  # seconds in which the same line from several workers is shown once
_COLOURS = ("\033[36m", "\033[32m", "\033[33m", "\033[35m", "\033[34m", "\033[31m")


class OutputPrinter:
    """Prints lines of workers; repeats are counted and summed up."""

    def __init__(self) -> None:
        self._deduplicate = os.environ.get("SKATE_DEDUP_LOGS", os.environ.get("RAY_DEDUP_LOGS", "1")) != "0"
        self._seen: dict[str, list[Any]] = {}  # line -> [when, first pid, other pids, prefix, stream]

    def show(self, message: m.Output) -> None:
        """Print lines of a worker."""
        stream = sys.stderr if message.error else sys.stdout
        if stream is None:
            return  # the program was started without it
        try:
            self._show(message, stream)
        except (OSError, ValueError):
            return  # nobody reads the driver's output any more, as in `program | head`

    def _show(self, message: m.Output, stream: Any) -> None:
        now = time.monotonic()
        self._flush_old(now)
        for line in message.lines:
            seen = self._seen.get(line)
            if self._deduplicate and seen is not None and message.pid != seen[1]:
                seen[2].append(message.pid)
                continue
            if self._deduplicate and seen is None and line.strip():
                self._seen[line] = [now, message.pid, [], message, stream]
            self._print(stream, message, line)
        stream.flush()

    def _print(self, stream: Any, message: m.Output, line: str, suffix: str = "") -> None:
        prefix = f"({message.name} pid={message.pid})" if message.pid else f"({message.name})"
        if stream.isatty():
            prefix = f"{_COLOURS[message.pid % len(_COLOURS)]}{prefix}\033[0m"
        print(f"{prefix} {line}{suffix}", file=stream)

    def _flush_old(self, now: float) -> None:
        while self._seen:
            line, seen = next(iter(self._seen.items()))
            if now - seen[0] < WINDOW:
                break  # the others are younger
            del self._seen[line]
            self._sum_up(line, seen)

    def _sum_up(self, line: str, seen: list[Any]) -> None:
        _, _, others, message, stream = seen
        if others:
            last = m.Output(message.name, others[-1], [], message.error)
            self._print(stream, last, line, f" [repeated {len(others)}x across workers]")

    def close(self) -> None:
        """Sum up what was not shown."""
        try:
            for line, seen in self._seen.items():
                self._sum_up(line, seen)
        except (OSError, ValueError):
            return  # nobody reads it
        finally:
            self._seen.clear()
