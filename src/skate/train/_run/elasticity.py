"""Runs whose number of workers may change: how many fit, and when it is time for more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import skate
from skate.train._config.shared import ScalingConfig
from skate.train._run.journal import Journal


def fitting(scaling: ScalingConfig, free: Mapping[str, float]) -> int:
    """Return how many workers free resources are enough for, at most as many as there may be.

    >>> fitting(ScalingConfig(num_workers=(1, 8), resources_per_worker={"CPU": 2}), {"CPU": 5.0})
    2
    """
    each = [int(free.get(name, 0.0) // amount) for name, amount in scaling.bundle.items() if amount]
    return min([scaling.max_workers, *each])


def size_now(scaling: ScalingConfig) -> int:
    """Return with how many workers to start: as many as there is room for, if that may vary."""
    if not scaling.elasticity_enabled:
        return scaling.max_workers
    return max(scaling.min_workers, fitting(scaling, skate.available_resources()))


class Growth:
    """Looks, while a group trains, whether there is room for more workers.

    A larger group starts from the latest checkpoint. So that no work is done twice, the one that trains is given up
    when it has completed a checkpoint, not when the room is found.

    Args:
        scaling: How many workers there may be, and what each has.
        size: How many train now.
        journal: Has the checkpoints.
    """

    refs: tuple[Any, ...] = ()

    def __init__(self, scaling: ScalingConfig, size: int, journal: Journal) -> None:
        self._scaling = scaling
        self._size = size
        self._journal = journal
        self._interval = scaling.elastic_resize_monitor_interval_s
        can_grow = scaling.elasticity_enabled and size < scaling.max_workers
        self._next = time.monotonic() + self._interval if can_grow else None
        self._found_at: int | None = None  # how many checkpoints had been completed when room was found
        self.target = size

    @property
    def due(self) -> float | None:
        """When to look, on the monotonic clock."""
        return self._next

    def came(self, ref: Any) -> None:
        """Nothing is waited for."""

    def look(self) -> None:
        """See whether there is room, from time to time."""
        if self._next is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._interval
        more = fitting(self._scaling, skate.available_resources())
        self.target = min(self._size + more, self._scaling.max_workers)
        if self.target == self._size:
            self._found_at = None  # somebody else has taken it
        elif self._found_at is None:
            self._found_at = self._journal.checkpoints_completed

    @property
    def is_due(self) -> bool:
        """Whether a larger group should take over now."""
        return self._found_at is not None and self._journal.checkpoints_completed > self._found_at
