"""How long user code has run in this thread, and how much memory the process has."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_of_thread = threading.local()
_PROC = os.path.exists("/proc/self/statm")


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


def memory_of(process: int) -> int | None:
    """Return the bytes of memory that a process has for itself, without files and shared memory; None if it is gone."""
    if _PROC:
        try:
            with open(f"/proc/{process}/statm", "rb") as file:
                _, resident, shared, *_ = file.read().split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.NoSuchProcess:
        return None


def release_unused_memory(above: int) -> None:
    """Give memory that nothing is in back to the system, if this process has more than `above` bytes.

    Arrow and the C library keep what was freed for the next time. Taking it from the system again costs a few per cent
    of a task's time, so that this is for processes that keep much.
    """
    if own_memory() <= above:
        return
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
        if trim is not None:
            trim(0)


def own_memory() -> int:
    """Return the bytes of memory that this process has for itself."""
    return memory_of(os.getpid()) or 0
