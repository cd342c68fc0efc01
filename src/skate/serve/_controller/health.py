"""Metrics of the controller itself: its load, the durations of its work, and the delays of reports."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.serve._schema.details import ControllerHealthMetrics

__all__ = ["ControllerHealth", "Durations"]

_WINDOW = 100  # durations to keep of each kind
_PROBE_SLEEP_S = 0.01  # length of the sleep that measures the delay of the event loop


class Durations:
    """The latest durations of one kind, with the count and sum of all."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.last: deque[float] = deque(maxlen=_WINDOW)

    def add(self, seconds: float) -> None:
        """Record one duration."""
        self.count += 1
        self.total_s += seconds
        self.last.append(seconds)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Record the duration of a block, even if it raises."""
        started_at = time.perf_counter()
        try:
            yield
        finally:
            self.add(time.perf_counter() - started_at)

    def in_ms(self) -> list[float]:
        """Return the kept durations in milliseconds."""
        return [seconds * 1000 for seconds in self.last]


class ControllerHealth:
    """Collects the metrics of one controller. Runs on its loop.

    The controller has no periodic control loop: it reacts to events. Each reconciliation of a deployment counts as one
    iteration of the control loop that Ray Serve's metrics describe.
    """

    def __init__(self) -> None:
        self._started_at = time.time()
        self._last_iteration_at = 0.0
        self.iterations = Durations()
        self.applications = Durations()
        self.from_handles = Durations()  # durations of processing their reports
        self.from_replicas = Durations()
        self.handle_delays = Durations()  # from sending a report to its arrival
        self.replica_delays = Durations()

    @contextmanager
    def iteration(self) -> Iterator[None]:
        """Record the duration of one reconciliation."""
        with self.iterations.measure():
            yield
        self._last_iteration_at = time.time()

    async def metrics(self) -> ControllerHealthMetrics:
        """Return the current metrics."""
        import psutil

        from skate.serve._schema.details import ControllerHealthMetrics, DurationStats

        started_at = time.perf_counter()
        await asyncio.sleep(_PROBE_SLEEP_S)
        slept = time.perf_counter() - started_at
        now = time.time()
        uptime = max(now - self._started_at, _PROBE_SLEEP_S)
        iterations = DurationStats.from_values(self.iterations.last)
        ingested = self.from_handles.total_s + self.from_replicas.total_s
        return ControllerHealthMetrics(
            timestamp=now,
            controller_start_time=self._started_at,
            uptime_s=uptime,
            last_control_loop_time=self._last_iteration_at,
            num_control_loops=self.iterations.count,
            loop_duration_s=iterations,
            loops_per_second=self.iterations.count / uptime,
            last_sleep_duration_s=slept,
            expected_sleep_duration_s=_PROBE_SLEEP_S,
            event_loop_delay_s=max(slept - _PROBE_SLEEP_S, 0.0),
            num_asyncio_tasks=len(asyncio.all_tasks()),
            handle_ingest_duration_ms=DurationStats.from_values(self.from_handles.in_ms()),
            replica_ingest_duration_ms=DurationStats.from_values(self.from_replicas.in_ms()),
            handle_reports_received=self.from_handles.count,
            replica_reports_received=self.from_replicas.count,
            ingest_reports_received=self.from_handles.count + self.from_replicas.count,
            ingest_cpu_fraction=min(ingested / uptime, 1.0),
            deployment_state_update_duration_s=iterations,
            application_state_update_duration_s=DurationStats.from_values(self.applications.last),
            handle_metrics_delay_ms=DurationStats.from_values(self.handle_delays.in_ms()),
            replica_metrics_delay_ms=DurationStats.from_values(self.replica_delays.in_ms()),
            process_memory_mb=psutil.Process().memory_info().rss / 1024**2,
        )
