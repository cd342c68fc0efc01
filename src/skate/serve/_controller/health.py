"""How the controller itself is doing: how much it has had to do, how long that took, how late it hears of things."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate.serve._schema.details import ControllerHealthMetrics

__all__ = ["Durations", "Health"]

_WINDOW = 100  # durations that are kept of each kind
_PROBE_S = 0.01  # how long the loop is asked to sleep, to see whether it comes back in time


class Durations:
    """The last durations of one kind, and how many there have been."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.last: deque[float] = deque(maxlen=_WINDOW)

    def add(self, seconds: float) -> None:
        """Take one."""
        self.count += 1
        self.total_s += seconds
        self.last.append(seconds)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Take how long a block runs, also if it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(time.perf_counter() - began)

    def in_ms(self) -> list[float]:
        """Return those that are kept in milliseconds."""
        return [seconds * 1000 for seconds in self.last]


class Health:
    """What is known of one controller. On its loop.

    The controller does nothing until something happens. What Ray Serve calls a control loop is a turn here: it has been
    told something, sees what has to be done in a deployment, and has that done.
    """

    def __init__(self) -> None:
        self._began = time.time()
        self._last_turn = 0.0
        self.turns = Durations()
        self.applications = Durations()
        self.from_handles = Durations()  # taking in what they report
        self.from_replicas = Durations()
        self.handle_delays = Durations()  # from writing a report until it is heard
        self.replica_delays = Durations()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Take how long a block runs that sees what has to be done."""
        with self.turns.timed():
            yield
        self._last_turn = time.time()

    async def metrics(self) -> ControllerHealthMetrics:
        """Return how the controller is doing now."""
        import psutil

        from skate.serve._schema.details import ControllerHealthMetrics, DurationStats

        began = time.perf_counter()
        await asyncio.sleep(_PROBE_S)
        slept = time.perf_counter() - began
        now = time.time()
        uptime = max(now - self._began, _PROBE_S)
        turns = DurationStats.from_values(self.turns.last)
        ingested = self.from_handles.total_s + self.from_replicas.total_s
        return ControllerHealthMetrics(
            timestamp=now,
            controller_start_time=self._began,
            uptime_s=uptime,
            last_control_loop_time=self._last_turn,
            num_control_loops=self.turns.count,
            loop_duration_s=turns,
            loops_per_second=self.turns.count / uptime,
            last_sleep_duration_s=slept,
            expected_sleep_duration_s=_PROBE_S,
            event_loop_delay_s=max(slept - _PROBE_S, 0.0),
            num_asyncio_tasks=len(asyncio.all_tasks()),
            handle_ingest_duration_ms=DurationStats.from_values(self.from_handles.in_ms()),
            replica_ingest_duration_ms=DurationStats.from_values(self.from_replicas.in_ms()),
            handle_reports_received=self.from_handles.count,
            replica_reports_received=self.from_replicas.count,
            ingest_reports_received=self.from_handles.count + self.from_replicas.count,
            ingest_cpu_fraction=min(ingested / uptime, 1.0),
            deployment_state_update_duration_s=turns,
            application_state_update_duration_s=DurationStats.from_values(self.applications.last),
            handle_metrics_delay_ms=DurationStats.from_values(self.handle_delays.in_ms()),
            replica_metrics_delay_ms=DurationStats.from_values(self.replica_delays.in_ms()),
            process_memory_mb=psutil.Process().memory_info().rss / 1024**2,
        )
