"""The end of an actor, for whoever keeps it."""

from __future__ import annotations

import threading

__all__ = ["StopEvent"]


class StopEvent:
    """Lets one thread at a time wait until an actor has stopped.

    That is the newest: a controller that has died leaves a call behind that nobody hears, and another one comes. The
    actor has only so many threads.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: object = None
        self.is_over = False

    def set(self) -> None:
        """Note that the actor has stopped."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Return when the actor has stopped, or False when somebody else waits for it."""
        me = object()
        with self._changed:
            self._newest = me
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.is_over or self._newest is not me)
            return self.is_over
