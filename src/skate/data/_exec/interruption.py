"""Interrupts a thread that waits for blocks.

A thread that prefetches batches may wait long for the blocks of a batch. When its consumer stops, the consumer
interrupts the thread: the driver of the plan, in which the thread waits, raises `Interrupted` there.
"""

from __future__ import annotations

import threading


class Interrupted(BaseException):
    """The consumer needs no more blocks from this thread. Not an `Exception`, so that user code does not catch it."""


class Interruption:
    """A request that one thread stop waiting for blocks."""

    def __init__(self) -> None:
        self._is_set = False
        self._condition: threading.Condition | None = None

    def set(self) -> None:
        """Interrupt the thread's current wait, or its next one."""
        self._is_set = True
        condition = self._condition
        if condition is not None:
            with condition:
                condition.notify_all()

    def install(self) -> None:
        """Make this the interruption of the current thread."""
        _current.interruption = self

    def register(self, condition: threading.Condition) -> None:
        """Set the condition to notify. A waiter registers first, then calls `check` and waits while holding it."""
        self._condition = condition

    def check(self) -> None:
        """Raise Interrupted if `set` has been called."""
        if self._is_set:
            raise Interrupted


class _Current(threading.local):
    interruption = Interruption()  # the default, which is never set


_current = _Current()


def current() -> Interruption:
    """Return the interruption of the current thread."""
    return _current.interruption
