"""A number that changes over time, and what it amounts to over a period."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from skate.serve._config.choices import AggregationFunction

# More points than this within a period say nothing new: a later one takes the place of one just before.
MOST_POINTS = 1000


class TimeStampedValue(NamedTuple):
    """A measured value and when it was measured, in seconds."""

    timestamp: float
    value: float


class Series:
    """A step function: each value holds until the next one."""

    __slots__ = ("_period", "_points")

    def __init__(self, period: float) -> None:
        self._period = period
        self._points: deque[TimeStampedValue] = deque()

    def add(self, value: float, now: float) -> None:
        """Let the number be `value` from now on."""
        points = self._points
        if points and now - points[-1].timestamp < self._period / MOST_POINTS:
            now = points.pop().timestamp
        points.append(TimeStampedValue(now, value))
        # The value before the period's start holds into it, and stays.
        while len(points) > 1 and points[1].timestamp <= now - self._period:
            points.popleft()

    @property
    def last(self) -> float:
        """The number as it is now; 0 before anything is known."""
        return self._points[-1].value if self._points else 0.0

    def since(self, start: float) -> list[TimeStampedValue]:
        """Return the value that held at `start`, if one did, and all later ones."""
        points = list(self._points)
        held = sum(point.timestamp <= start for point in points)
        return points[max(held - 1, 0) :]

    def is_steady(self, start: float) -> bool:
        """Return whether the number has not changed since `start`."""
        return len({point.value for point in self.since(start)}) <= 1

    def aggregate(self, how: AggregationFunction, start: float, now: float) -> float:
        """Return what the number amounts to from `start`, or from when it was first known, until now."""
        points = self.since(start)
        if not points:
            return 0.0
        if how is AggregationFunction.MAX:
            return max(point.value for point in points)
        if how is AggregationFunction.MIN:
            return min(point.value for point in points)
        return _mean(points, max(start, points[0].timestamp), now)


def _mean(points: Sequence[TimeStampedValue], start: float, now: float) -> float:
    if now <= start:
        return points[-1].value
    ends = [*(point.timestamp for point in points[1:]), now]
    held = (
        point.value * (end - max(point.timestamp, start)) for point, end in zip(points, ends, strict=True)
    )
    return sum(held) / (now - start)
