"""Elastic runs: how many workers fit, and when to switch to a larger group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import skate
from skate.air.config import ScalingConfig
from skate.train._run.run_state import RunState


def count_fitting(scaling: ScalingConfig, free: Mapping[str, float]) -> int:
    """Return how many workers fit into free resources, at most `max_workers`.

    >>> count_fitting(ScalingConfig(num_workers=(1, 8), resources_per_worker={"CPU": 2}), {"CPU": 5.0})
    2
    """
    each = [int(free.get(name, 0.0) // amount) for name, amount in scaling.bundle.items() if amount]
    return min([scaling.max_workers, *each])


def choose_size(scaling: ScalingConfig) -> int:
    """Return how many workers to start: as many as fit, if the number may vary."""
    if not scaling.elasticity_enabled:
        return scaling.max_workers
    return max(scaling.min_workers, count_fitting(scaling, skate.available_resources()))


class GrowthMonitor:
    """Checks, while a group trains, whether more workers would fit; an event source.

    A larger group starts from the latest checkpoint. To repeat no work, the controller replaces the current group right
    after it has completed a checkpoint, not when the resources become free.

    Args:
        scaling: The allowed numbers of workers, and the resources of each.
        size: How many train now.
        run_state: Counts the checkpoints.

    Attributes:
        target: How many workers fit now.
    """

    refs: tuple[Any, ...] = ()

    def __init__(self, scaling: ScalingConfig, size: int, run_state: RunState) -> None:
        self._scaling = scaling
        self._size = size
        self._run_state = run_state
        self._interval = scaling.elastic_resize_monitor_interval_s
        can_grow = scaling.elasticity_enabled and size < scaling.max_workers
        self._next = time.monotonic() + self._interval if can_grow else None
        self._completed_before: int | None = None  # completed checkpoints when free resources were found
        self.target = size

    @property
    def wake_at(self) -> float | None:
        """When to check next, on the monotonic clock."""
        return self._next

    def on_ready(self, ref: Any) -> None:
        """Do nothing: the monitor waits for no references."""

    def poll(self) -> None:
        """Check the free resources, once per interval."""
        if self._next is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._interval
        more = count_fitting(self._scaling, skate.available_resources())
        self.target = min(self._size + more, self._scaling.max_workers)
        if self.target == self._size:
            self._completed_before = None  # another program took the resources
        elif self._completed_before is None:
            self._completed_before = self._run_state.checkpoints_completed

    @property
    def should_resize(self) -> bool:
        """Whether to replace the group with a larger one now."""
        before = self._completed_before
        return before is not None and self._run_state.checkpoints_completed > before
