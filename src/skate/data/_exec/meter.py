"""Measures the time in user code per thread, and the memory of processes."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_of_thread = threading.local()
_PROC = os.path.exists("/proc/self/statm")


class UserTime:
    """Sums the time in user code: `with user_time: function(row)`.

    Attributes:
        seconds: The sum.
        after: Called after each call of user code that has succeeded.
    """

    __slots__ = ("_begun", "after", "seconds")

    def __init__(self, after: Callable[[], None] | None = None) -> None:
        self.seconds = 0.0
        self.after = after
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, error: object, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun
        if self.after is not None and error is None:
            self.after()


class Meter:
    """The cost of the work of one task since the last reading."""

    def __init__(self, after_user_code: Callable[[], None] | None = None) -> None:
        self.user = UserTime(after_user_code)
        self.notes: dict[str, Any] = {}
        self._begun = time.perf_counter()

    def read(self) -> tuple[float, float, dict[str, Any]]:
        """Return the total seconds, the seconds in user code and the notes, and reset all of them."""
        now = time.perf_counter()
        result = now - self._begun, self.user.seconds, self.notes
        self._begun = now
        self.user.seconds = 0.0
        self.notes = {}
        return result

    def restart_clock(self) -> None:
        """Exclude the time since the last reading, in which the task was paused."""
        self._begun = time.perf_counter()


def current() -> Meter:
    """Return the meter of the task that runs in this thread."""
    meter: Meter | None = getattr(_of_thread, "meter", None)
    if meter is None:
        meter = _of_thread.meter = Meter()
    return meter


@contextmanager
def measure(after_user_code: Callable[[], None] | None = None) -> Iterator[Meter]:
    """Give the current thread a new meter within the context; call a function after each call of user code."""
    before = getattr(_of_thread, "meter", None)
    meter = _of_thread.meter = Meter(after_user_code)
    try:
        yield meter
    finally:
        _of_thread.meter = before


def memory_of(process: int) -> int | None:
    """Return the private memory of a process in bytes, without shared memory; None if the process has ended."""
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
    """Return unused memory to the system, if this process has more than `above` bytes.

    Arrow and the C library keep freed memory for reuse. Allocating it from the system again costs a few percent of the
    time of a task, so this pays off only for processes that keep much.
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
    """Return the private memory of this process in bytes."""
    return memory_of(os.getpid()) or 0
