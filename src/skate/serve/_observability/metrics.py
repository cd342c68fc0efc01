"""Metrics of requests, which are cheap to record and reach the session's metrics store with a short delay.

A request must not pay for locks and label lookups in every process. Each process counts in plain objects on its event
loop, and flushes them to the store a short time after the first record. An idle process does nothing.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping

import skate
from skate.serve._runtime.ids import DeploymentID
from skate.util._metrics_store import Family, store

__all__ = [
    "BUCKET_BOUNDARIES_MS",
    "FLUSH_INTERVAL_S",
    "DurationHistogram",
    "EventLoopMonitor",
    "MetricsBuffer",
    "ProxyMetrics",
    "RouterMetrics",
    "counter",
    "gauge",
    "histogram",
]

FLUSH_INTERVAL_S = 0.25
"""The longest delay of recorded values, in seconds."""

BUCKET_BOUNDARIES_MS = (
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
    return Family("histogram", f"serve_{name}", description, BUCKET_BOUNDARIES_MS)


class DurationHistogram:
    """Histogram of durations not yet flushed to the metrics."""

    __slots__ = ("buckets",)

    def __init__(self) -> None:
        self.buckets = [0.0] * (len(BUCKET_BOUNDARIES_MS) + 2)

    def add(self, seconds: float) -> None:
        """Add a duration."""
        took = seconds * 1000
        buckets = self.buckets
        buckets[bisect_left(BUCKET_BOUNDARIES_MS, took)] += 1
        buckets[-1] += took

    def reset(self) -> tuple[float, list[float]]:
        """Return the count and the buckets, and clear them."""
        taken, self.buckets = self.buckets, [0.0] * len(self.buckets)
        return sum(taken[:-1]), taken


class MetricsBuffer:
    """Call a flush function a short time after the first record.

    Args:
        flush: Writes the values to the store with the methods below.
        record_lag: Called before each flush with the seconds by which the event loop is late.
    """

    def __init__(self, flush: Callable[[], None], record_lag: Callable[[float], None] | None = None) -> None:
        self.is_scheduled = False
        self._flush = flush
        self._record_lag = record_lag
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def schedule_flush(self) -> None:
        """Schedule a flush. On the event loop; callers check `is_scheduled` first, which is cheaper."""
        if not self.is_scheduled:
            self.is_scheduled = True
            # Not the loop's clock, which stops while the loop is blocked.
            self._due_at = time.monotonic() + FLUSH_INTERVAL_S
            self._timer = asyncio.get_running_loop().call_later(FLUSH_INTERVAL_S, self._timer_fired)

    def _timer_fired(self) -> None:
        if self._record_lag is not None:
            self._record_lag(max(time.monotonic() - self._due_at, 0.0))
        self.flush()

    def flush(self) -> None:
        """Flush now."""
        self.is_scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()

    def increment(self, family: Family, labels: Mapping[str, str], amount: float) -> None:
        """Increment a counter."""
        if amount:
            store.increment(family, _tags(labels), amount)

    def set(self, family: Family, labels: Mapping[str, str], value: float) -> None:
        """Set a gauge."""
        store.set(family, _tags(labels), value)

    def add_histogram(self, family: Family, labels: Mapping[str, str], buckets: list[float]) -> None:
        """Add buckets to a histogram."""
        store.add(family, _tags(labels), buckets)


def _tags(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


_LATE = histogram("event_loop_scheduling_latency_ms", "Scheduling delay of an event loop.")
_ITERATIONS = counter("event_loop_monitoring_iterations", "Number of measurements of an event loop's delay.")
_TASKS = gauge("event_loop_tasks", "Pending tasks of an event loop.")


class EventLoopMonitor:
    """Measure the delay of the event loop of a Serve process. On that loop.

    It has no timer of its own, but uses the flushes of `MetricsBuffer`, which run while requests arrive. An idle loop
    is not measured.

    Ray Serve has separate loops for the server, the router and the user's code. Skate runs all of them on one loop, and
    records its metrics under each of Ray's names.

    Args:
        component: "proxy" or "replica".
        labels: Further labels.
    """

    def __init__(self, component: str, labels: dict[str, str]) -> None:
        types = ("main", "router") if component == "proxy" else ("main", "router", "user_code")
        self._component_labels = [{"component": component, "loop_type": each, **labels} for each in types]
        self._labels: list[tuple[tuple[str, str], ...]] = []

    def record_lag(self, late_s: float) -> None:
        """Record the current delay of the loop."""
        if not self._labels:
            actor = skate.get_runtime_context().get_actor_id() or ""
            self._labels = [
                tuple(sorted({**each, "actor_id": actor}.items())) for each in self._component_labels
            ]
        durations = DurationHistogram()
        durations.add(late_s)
        _, buckets = durations.reset()
        tasks = len(asyncio.all_tasks())
        for labels in self._labels:
            store.add(_LATE, labels, buckets)
            store.increment(_ITERATIONS, labels, 1)
            store.set(_TASKS, labels, tasks)


_REQUESTS = counter("num_router_requests", "Requests submitted to a deployment.")
_CALLS = counter("handle_request_counter", "Requests submitted through handles.")
_WAITED = histogram(
    "request_router_fulfillment_time_ms", "Time that requests waited at their callers for a replica."
)
_QUEUED = gauge("deployment_queued_queries", "Requests that wait at callers for a replica.")
_ONGOING = gauge(
    "num_ongoing_requests_at_replicas", "Requests that callers sent and that are not answered yet."
)


class RouterMetrics:
    """The metrics of a deployment's callers in this process, under Ray Serve's names.

    Args:
        id: The deployment.
        queued: Returns the number of queued requests.
        ongoing: Returns the number of requests at replicas.
    """

    def __init__(self, id: DeploymentID, queued: Callable[[], int], ongoing: Callable[[], int]) -> None:
        self._labels = {"deployment": id.name, "application": id.app_name}
        self._queued = queued
        self._ongoing = ongoing
        self._sent: dict[tuple[str, bool], int] = {}
        self._deferred = 0
        self._waited = DurationHistogram()
        self._buffer = MetricsBuffer(self._flush)

    def submitted(self, route: str, is_call: bool) -> None:
        """Count a request, which is sent now or queued."""
        key = (route, is_call)
        self._sent[key] = self._sent.get(key, 0) + 1
        if not self._buffer.is_scheduled:
            self._buffer.schedule_flush()

    def queued(self) -> None:
        """Count a request that has to wait."""
        self._deferred += 1

    def waited(self, seconds: float) -> None:
        """Record how long a queued request waited."""
        self._waited.add(seconds)
        if not self._buffer.is_scheduled:
            self._buffer.schedule_flush()

    def close(self) -> None:
        """Flush the last values."""
        self._buffer.flush()

    def _flush(self) -> None:
        buffer = self._buffer
        sent, self._sent = self._sent, {}
        for (route, is_call), number in sent.items():
            labels = {**self._labels, "route": route}
            buffer.increment(_REQUESTS, labels, number)
            if is_call:
                buffer.increment(_CALLS, labels, number)
        at_once = sum(sent.values()) - self._deferred
        self._deferred = 0
        waited, buckets = self._waited.reset()
        buckets[0] += at_once
        if waited or at_once:
            buffer.add_histogram(_WAITED, self._labels, buckets)
        queued, ongoing = self._queued(), self._ongoing()
        buffer.set(_QUEUED, self._labels, queued)
        buffer.set(_ONGOING, self._labels, ongoing)
        if queued or ongoing:
            buffer.schedule_flush()  # no other event flushes the decrease


_OTHER = "OTHER"
# Clients choose method names, and each name would be a separate series.
_METHODS = frozenset(
    ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "WEBSOCKET", _OTHER)
)
_OK_STATUSES = frozenset(("1000", "1001", "OK"))  # websocket closing codes, and gRPC statuses


class ProxyMetrics:
    """The metrics of one protocol, under Ray Serve's names.

    Args:
        protocol: "http" or "grpc".
        count_ongoing: Returns the number of ongoing requests.
    """

    def __init__(self, protocol: str, count_ongoing: Callable[[], int]) -> None:
        self._count_ongoing = count_ongoing
        self._takes_any_method = protocol == "grpc"
        self._requests = counter(f"num_{protocol}_requests", f"Requests over {protocol}.")
        self._errors = counter(f"num_{protocol}_error_requests", "Requests that ended with an error.")
        self._deployment_errors = counter(
            f"num_deployment_{protocol}_error_requests", "Requests that ended with an error, by deployment."
        )
        self._latency = histogram(
            f"{protocol}_request_latency_ms",
            "Time from a request's arrival at the proxy to the end of its response.",
        )
        self._ongoing = gauge(f"num_ongoing_{protocol}_requests", "Ongoing requests.")
        self._ended: dict[tuple[str, str, str, str, int | str], DurationHistogram] = {}
        self._overhead = histogram(
            f"{protocol}_request_framework_latency_ms",
            "Overhead of Serve: latency without the wait for a replica and the replica's processing time.",
        )
        self._overheads: dict[tuple[str, str], DurationHistogram] = {}
        # All protocols share one loop, so one of them measures it.
        record_lag = EventLoopMonitor("proxy", {}).record_lag if protocol == "http" else None
        self._buffer = MetricsBuffer(self._flush, record_lag)

    def began(self) -> None:
        """Count a request that began."""
        if not self._buffer.is_scheduled:
            self._buffer.schedule_flush()

    def ended(
        self, app: str, deployment: str, route: str, method: str, status: int | str, seconds: float
    ) -> None:
        """Record the status and duration of a request."""
        key = (app, deployment, route, method, status)
        durations = self._ended.get(key)
        if durations is None:
            if method not in _METHODS and not self._takes_any_method:
                self.ended(app, deployment, route, _OTHER, status, seconds)
                return
            durations = self._ended[key] = DurationHistogram()
        durations.add(seconds)
        if not self._buffer.is_scheduled:
            self._buffer.schedule_flush()

    def record_overhead(self, app: str, route: str, seconds: float) -> None:
        """Record the overhead of Serve for a request."""
        durations = self._overheads.get((app, route))
        if durations is None:
            durations = self._overheads[app, route] = DurationHistogram()
        durations.add(seconds)

    def close(self) -> None:
        """Flush the last values."""
        self._buffer.flush()

    def _flush(self) -> None:
        buffer = self._buffer
        ongoing = self._count_ongoing()
        buffer.set(self._ongoing, {}, ongoing)
        if ongoing:
            buffer.schedule_flush()  # long requests cause no other flush
        for (app, route), durations in self._overheads.items():
            number, buckets = durations.reset()
            if number:
                buffer.add_histogram(self._overhead, {"application": app, "route": route}, buckets)
        for (app, deployment, route, method, ending), durations in self._ended.items():
            number, buckets = durations.reset()
            if not number:
                continue
            status = str(ending)
            labels = {"application": app, "route": route, "method": method}
            buffer.increment(self._requests, {**labels, "status_code": status}, number)
            buffer.add_histogram(self._latency, {**labels, "status_code": status}, buckets)
            if _is_error(status):
                buffer.increment(self._errors, {**labels, "error_code": status}, number)
                if deployment:
                    named = {**labels, "error_code": status, "deployment": deployment}
                    buffer.increment(self._deployment_errors, named, number)


def _is_error(status: str) -> bool:
    """Return whether a status means failure: HTTP statuses, websocket closing codes, gRPC status names.

    >>> [_is_error(status) for status in ("200", "404", "1000", "1011", "OK", "INTERNAL")]
    [False, True, False, True, False, True]
    """
    return status not in _OK_STATUSES and not (len(status) == 3 and status[0] in "123")
