"""A count of the attacks that a test makes, for the summary at the end: kills, interrupts, damaged files, limits."""

from __future__ import annotations

import os
import signal

_count = 0


def record(number: int = 1) -> None:
    """Count attacks of the running test."""
    global _count
    _count += number


def take() -> int:
    """Return how many attacks were counted since the last call."""
    global _count
    count, _count = _count, 0
    return count


def kill(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process, and count it.

    Raises:
        ProcessLookupError: The process has ended.
    """
    os.kill(pid, how)
    record()
