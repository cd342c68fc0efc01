"""The holds and releases of objects that a process has not yet reported to the node."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from skate._engine.local.wire import messages as m
from skate._engine.local.wire.interrupts import critical

# Dropped references that travel with the next message; a message for each would cost too much.
DROPPED_BATCH_SIZE = 32
MAX_RELEASED = 500  # dropped references in one message: the node is not to be busy with one for long


class HoldReports:
    """Objects that this process begins to hold or releases, until the node is told.

    The garbage collector adds to the tables at any point, between any two instructions.
    """

    __slots__ = ("dropped", "holds", "lock", "unpinned")

    def __init__(self) -> None:
        self.holds: dict[bytes, None] = {}  # new holds, which are reported before anything else
        self.dropped: dict[bytes, None] = {}
        self.unpinned: deque[bytes] = deque()
        self.lock = threading.Lock()

    def is_due(self) -> bool:
        """Return whether the next message should carry the releases."""
        return len(self.dropped) >= DROPPED_BATCH_SIZE or bool(self.unpinned)

    def post_holds(self, post: Callable[[Any], None]) -> None:
        """Post new holds."""
        with self.lock:
            self._post_holds(post)

    def post_all(self, post: Callable[[Any], None]) -> bool:
        """Post new holds, then releases; return whether all dropped references have been reported."""
        with self.lock:
            self._post_holds(post)
            gone = _take_all(self.unpinned)
            if gone:
                post(m.Unpin(gone))
            released = _take_keys(self.dropped, MAX_RELEASED)
            if released:
                post(m.Release(released))
            return len(released) < MAX_RELEASED

    def _post_holds(self, post: Callable[[Any], None]) -> None:
        holds = _take_keys(self.holds)
        if holds:
            post(m.Hold(holds))


def _take_all(queue: deque[bytes]) -> list[bytes]:
    """Empty a queue that other threads may fill or empty at the same time."""
    taken = []
    while queue:
        try:
            taken.append(queue.popleft())
        except IndexError:  # another thread took the last one
            break
    return taken


def _take_keys(table: dict[bytes, None], most: int = sys.maxsize) -> list[bytes]:
    """Remove and return keys of a table that the garbage collector may fill at the same time."""
    taken: list[bytes] = []
    while table and len(taken) < most:
        try:
            taken.append(table.popitem()[0])
        except KeyError:  # another thread took the last one
            break
    return taken


critical(HoldReports.post_holds, HoldReports.post_all)
