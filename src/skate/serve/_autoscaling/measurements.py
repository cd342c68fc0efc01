"""Measurements of the load of one deployment, reported by its handles and replicas."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from skate.serve._config.defaults import AggregationFunction

# More points per period add no information: a value replaces one that is only slightly older.
MAX_POINTS = 1000


class TimeStampedValue(NamedTuple):
    """A measured value and the time of the measurement, in seconds."""

    timestamp: float
    value: float


class Series:
    """A step function of time: each value holds until the next one."""

    __slots__ = ("_period", "_points")

    def __init__(self, period: float) -> None:
        self._period = period
        self._points: deque[TimeStampedValue] = deque()

    def add(self, value: float, now: float) -> None:
        """Set the value from now on."""
        points = self._points
        if points and now - points[-1].timestamp < self._period / MAX_POINTS:
            now = points.pop().timestamp
        points.append(TimeStampedValue(now, value))
        # Keep the last value before the period, because it still holds at its start.
        while len(points) > 1 and points[1].timestamp <= now - self._period:
            points.popleft()

    @property
    def last(self) -> float:
        """The current value; 0 before the first one."""
        return self._points[-1].value if self._points else 0.0

    def since(self, start: float) -> list[TimeStampedValue]:
        """Return the value that held at `start`, if any, and all later ones."""
        points = list(self._points)
        held = sum(point.timestamp <= start for point in points)
        return points[max(held - 1, 0) :]

    def is_constant(self, start: float) -> bool:
        """Return whether the value has not changed since `start`."""
        return len({point.value for point in self.since(start)}) <= 1

    def aggregate(self, aggregation: AggregationFunction, start: float, now: float) -> float:
        """Return the aggregate from `start`, or from the first value if that is later, until now."""
        points = self.since(start)
        if not points:
            return 0.0
        if aggregation is AggregationFunction.MAX:
            return max(point.value for point in points)
        if aggregation is AggregationFunction.MIN:
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


Id = Hashable


class Measurements:
    """The load of a deployment over a period.

    A report holds until the next one from the same source, or until the source is forgotten. Handles report the running
    requests of each replica, and replicas may report them too. The higher number counts: handles report sooner, but
    only a replica knows of requests that arrived without a handle.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._queued_by_handle: dict[Id, float] = {}
        self._running_by_handles: dict[Id, dict[Id, float]] = {}  # by replica, then by handle
        self._running_by_replica: dict[Id, float] = {}
        self._queued = Series(period)
        self._requests = Series(period)
        self._custom: dict[str, dict[Id, Series]] = {}
        self._is_current = True  # false after `forget`, until the next call with a time

    def record(self, handle: Id, queued: float, running: Mapping[Any, float], now: float) -> None:
        """Record a handle's report: its waiting requests, and its running requests by replica."""
        self._queued_by_handle[handle] = queued
        for handles in self._running_by_handles.values():
            handles.pop(handle, None)
        for replica, number in running.items():
            self._running_by_handles.setdefault(replica, {})[handle] = number
        self._update_totals(now)

    def record_replica(self, replica: Id, running: float, custom: Mapping[str, float], now: float) -> None:
        """Record a replica's report: its running requests and custom measurements."""
        self._running_by_replica[replica] = running
        for name, value in custom.items():
            self._custom.setdefault(name, {}).setdefault(replica, Series(self._period)).add(value, now)
        self._update_totals(now)

    def forget(self, id: Id) -> None:
        """Remove all reports by and about a handle or a replica."""
        self._queued_by_handle.pop(id, None)
        self._running_by_replica.pop(id, None)
        self._running_by_handles.pop(id, None)
        for handles in self._running_by_handles.values():
            handles.pop(id, None)
        for replicas in self._custom.values():
            replicas.pop(id, None)
        self._custom = {name: replicas for name, replicas in self._custom.items() if replicas}
        self._is_current = False

    def _update_totals(self, now: float) -> None:
        self._queued.add(sum(self._queued_by_handle.values()), now)
        self._requests.add(self.requests_now, now)
        self._is_current = True

    @property
    def requests_now(self) -> float:
        """The number of requests that run or wait now."""
        running = dict(self._running_by_replica)
        for replica, handles in self._running_by_handles.items():
            running[replica] = max(running.get(replica, 0.0), sum(handles.values()))
        return sum(self._queued_by_handle.values()) + sum(running.values())

    def requests(self, aggregation: AggregationFunction, now: float) -> float:
        """Return the running and waiting requests, aggregated over the period."""
        if not self._is_current:
            self._update_totals(now)
        return self._requests.aggregate(aggregation, now - self._period, now)

    def queued(self, aggregation: AggregationFunction, now: float) -> float:
        """Return the waiting requests, aggregated over the period."""
        if not self._is_current:
            self._update_totals(now)
        return self._queued.aggregate(aggregation, now - self._period, now)

    def custom(self, aggregation: AggregationFunction, now: float) -> dict[str, dict[Any, float]]:
        """Return the custom measurements by name and replica, aggregated over the period."""
        start = now - self._period
        return {
            name: {replica: series.aggregate(aggregation, start, now) for replica, series in replicas.items()}
            for name, replicas in self._custom.items()
        }

    def raw(self, now: float) -> dict[str, dict[Any, list[TimeStampedValue]]]:
        """Return the single custom measurements by name and replica, oldest first."""
        start = now - self._period
        return {
            name: {replica: series.since(start) for replica, series in replicas.items()}
            for name, replicas in self._custom.items()
        }

    def is_constant(self, now: float) -> bool:
        """Return whether the aggregated load stays constant without further reports."""
        if not self._is_current:
            self._update_totals(now)
        return self._requests.is_constant(now - self._period)
