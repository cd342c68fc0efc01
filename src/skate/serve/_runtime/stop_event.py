"""An event that reports the stop of an actor to its supervisor."""

from __future__ import annotations

import threading

__all__ = ["StopEvent"]


class StopEvent:
    """Lets one thread at a time wait until an actor has stopped.

    Only the newest waiter keeps waiting: a controller that died leaves a waiting call behind when its successor
    calls, and an actor has a limited number of threads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: object = None
        self.is_over = False

    def set(self) -> None:
        """Record that the actor has stopped."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Block until the actor has stopped; return False if another thread waits instead."""
        me = object()
        with self._changed:
            self._newest = me
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.is_over or self._newest is not me)
            return self.is_over
