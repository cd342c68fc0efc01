"""Numbers that cost next to nothing to record, and reach the session's metrics a moment later.

A request must not pay for locks and lookups of labels in every process that it passes. So it is counted in plain
objects, on the one loop that serves it; these are added to the metrics when a short time has passed since the first of
them was recorded. An idle process does nothing.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping

from skate.util._metrics_store import Family, store

__all__ = ["FOLD_S", "MILLISECONDS", "Spread", "Tallies", "counter", "gauge", "histogram"]

FOLD_S = 0.25
"""How old a number may be until others see it."""

MILLISECONDS = (
    *(factor * power for power in (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0) for factor in (1, 2, 5)),
    100_000.0,
    600_000.0,
)


def counter(name: str, description: str) -> Family:
    """Declare a counter."""
    return Family("counter", f"serve_{name}", description)


def gauge(name: str, description: str) -> Family:
    """Declare a gauge."""
    return Family("gauge", f"serve_{name}", description)


def histogram(name: str, description: str) -> Family:
    """Declare a histogram of milliseconds."""
    return Family("histogram", f"serve_{name}", description, MILLISECONDS)


class Spread:
    """How many times took how long, since they were last added to the metrics."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells = [0.0] * (len(MILLISECONDS) + 2)

    def add(self, seconds: float) -> None:
        """Count one."""
        took = seconds * 1000
        cells = self.cells
        cells[bisect_left(MILLISECONDS, took)] += 1
        cells[-1] += took

    def take(self) -> tuple[float, list[float]]:
        """Return how many there were and how they were spread, and start anew."""
        taken, self.cells = self.cells, [0.0] * len(self.cells)
        return sum(taken[:-1]), taken


class Tallies:
    """Has a function called, soon after something was first recorded, that adds the numbers to the metrics.

    Args:
        fold: Adds them, with the functions below.
        beat: Called before it with the seconds by which the loop is late.
    """

    def __init__(self, fold: Callable[[], None], beat: Callable[[float], None] | None = None) -> None:
        self.is_due = False
        self._fold = fold
        self._beat = beat
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Note that something was recorded. On the loop; callers look at `is_due` first, which is cheaper."""
        if not self.is_due:
            self.is_due = True
            # Not the loop's own clock, which stands still while the loop is blocked.
            self._due_at = time.monotonic() + FOLD_S
            self._timer = asyncio.get_running_loop().call_later(FOLD_S, self._on_time)

    def _on_time(self) -> None:
        if self._beat is not None:
            self._beat(max(time.monotonic() - self._due_at, 0.0))
        self.fold()

    def fold(self) -> None:
        """Add the numbers to the metrics now."""
        self.is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fold()

    def count(self, family: Family, labels: Mapping[str, str], amount: float) -> None:
        """Add to a counter."""
        if amount:
            store.increment(family, _tags(labels), amount)

    def set(self, family: Family, labels: Mapping[str, str], value: float) -> None:
        """Give a gauge its value."""
        store.set(family, _tags(labels), value)

    def spread(self, family: Family, labels: Mapping[str, str], cells: list[float]) -> None:
        """Add to a histogram."""
        store.add(family, _tags(labels), cells)


def _tags(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
