"""Lets a thread end another one's wait for blocks.

A thread that prepares batches ahead waits for as many blocks as a batch needs, which can take long. A consumer that
wants no more of them interrupts it: the driver of the plan, in which the thread waits, raises `Interrupted` there.
"""

from __future__ import annotations

import threading


class Interrupted(BaseException):
    """The consumer wants no more of the blocks that this thread waits for. No user code should catch it by mistake."""


class Interruption:
    """A request to one thread to wait for blocks no longer."""

    def __init__(self) -> None:
        self._is_set = False
        self._waits_at: threading.Condition | None = None

    def set(self) -> None:
        """Let the thread end its wait, or the next one."""
        self._is_set = True
        condition = self._waits_at
        if condition is not None:
            with condition:
                condition.notify_all()

    def serve(self) -> None:
        """Take requests for the current thread."""
        _current.interruption = self

    def waits_at(self, condition: threading.Condition) -> None:
        """Say where the thread waits, before it calls `check` and waits there, holding the condition meanwhile."""
        self._waits_at = condition

    def check(self) -> None:
        """Raise Interrupted if the thread was asked to stop."""
        if self._is_set:
            raise Interrupted


class _Current(threading.local):
    interruption = Interruption()  # a thread that serves none is never asked to stop


_current = _Current()


def current() -> Interruption:
    """Return the requests to the current thread."""
    return _current.interruption
