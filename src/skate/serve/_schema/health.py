"""How the controller itself is doing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pydantic import BaseModel


class DurationStats(BaseModel):
    """Durations in short."""

    mean: float = 0.0
    std: float = 0.0
    min: float = 0.0
    max: float = 0.0

    @classmethod
    def from_values(cls, values: Sequence[float]) -> DurationStats:
        """Return the mean, the deviation and the bounds of some durations; zeros for none."""
        if not values:
            return cls()
        return cls(
            mean=statistics.fmean(values), std=statistics.pstdev(values), min=min(values), max=max(values)
        )


class ControllerHealthMetrics(BaseModel):
    """How busy the controller is, and how late it hears of things."""

    timestamp: float = 0.0
    controller_start_time: float = 0.0
    uptime_s: float = 0.0
    last_control_loop_time: float = 0.0
    num_control_loops: int = 0
    loop_duration_s: DurationStats | None = None
    loops_per_second: float = 0.0
    last_sleep_duration_s: float = 0.0
    expected_sleep_duration_s: float = 0.0
    event_loop_delay_s: float = 0.0
    num_asyncio_tasks: int = 0
    handle_ingest_duration_ms: DurationStats | None = None
    replica_ingest_duration_ms: DurationStats | None = None
    metrics_decompress_duration_ms: DurationStats | None = None
    columnar_decode_duration_ms: DurationStats | None = None
    handle_reports_received: int = 0
    replica_reports_received: int = 0
    ingest_reports_received: int = 0
    ingest_cpu_fraction: float = 0.0
    deployment_state_update_duration_s: DurationStats | None = None
    application_state_update_duration_s: DurationStats | None = None
    proxy_state_update_duration_s: DurationStats | None = None
    node_update_duration_s: DurationStats | None = None
    handle_metrics_delay_ms: DurationStats | None = None
    replica_metrics_delay_ms: DurationStats | None = None
    process_memory_mb: float = 0.0
