"""How long user code has run in this thread, and how much memory the process has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_of_thread = threading.local()


class UserTime:
    """Adds up the time in user code: `with user_time: function(row)`."""

    __slots__ = ("_begun", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun


class Meter:
    """What the work of one task has cost since it was last read."""

    def __init__(self) -> None:
        self.user = UserTime()
        self.notes: dict[str, Any] = {}
        self._begun = time.perf_counter()

    def read(self) -> tuple[float, float, dict[str, Any]]:
        """Return all seconds, those in user code, and what was noted, and begin anew."""
        now = time.perf_counter()
        result = now - self._begun, self.user.seconds, self.notes
        self._begun = now
        self.user.seconds = 0.0
        self.notes = {}
        return result

    def restart_clock(self) -> None:
        """Do not count the time since the last reading: the work was held back."""
        self._begun = time.perf_counter()


def current() -> Meter:
    """Return the meter of the task that runs in this thread."""
    meter: Meter | None = getattr(_of_thread, "meter", None)
    if meter is None:
        meter = _of_thread.meter = Meter()
    return meter


@contextmanager
def measuring() -> Iterator[Meter]:
    """Give this thread a meter of its own for a while."""
    before = getattr(_of_thread, "meter", None)
    meter = _of_thread.meter = Meter()
    try:
        yield meter
    finally:
        _of_thread.meter = before


def own_memory() -> int:
    """Return the bytes of memory that this process has for itself: without files and shared memory."""
    import psutil

    info = psutil.Process().memory_info()
    return int(info.rss - getattr(info, "shared", 0))
