"""Counters and timers shared by the functions of a `LocalIterator`."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, Self

__all__ = ["MetricsContext", "SharedMetrics"]


class _Timer:
    """Measure the duration of its `with` blocks in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._begun = 0.0

    def __enter__(self) -> Self:
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.count += 1
        self.total += time.perf_counter() - self._begun

    @property
    def mean(self) -> float:
        """The mean duration in seconds."""
        return self.total / self.count if self.count else 0.0


class MetricsContext:
    """Metrics that the functions of an iterator can access through `LocalIterator.get_metrics()`.

    Attributes:
        counters: Counters, which start at 0.
        timers: Timers, for use in `with` statements.
        info: Other values.
        current_actor: The actor that produced the current item, for items from `gather_async`.
    """

    def __init__(self) -> None:
        self.counters: defaultdict[str, int] = defaultdict(int)
        self.timers: defaultdict[str, _Timer] = defaultdict(_Timer)
        self.info: dict[str, Any] = {}
        self.current_actor: Any = None

    def save(self) -> dict[str, Any]:
        """Return the counters and info as a dictionary; timers are reset by `restore`."""
        return {"counters": dict(self.counters), "info": dict(self.info), "timers": None}

    def restore(self, values: dict[str, Any]) -> None:
        """Restore the values that `save` returned."""
        self.counters.clear()
        self.counters.update(values["counters"])
        self.timers.clear()
        self.info = dict(values["info"])


class SharedMetrics:
    """A reference to metrics that several iterators share after a union.

    Args:
        metrics: The metrics; new ones by default.
        parents: References that must point to the same metrics.
    """

    def __init__(
        self, metrics: MetricsContext | None = None, parents: list[SharedMetrics] | None = None
    ) -> None:
        self.parents = parents or []
        self.metrics = metrics or MetricsContext()
        self.set(self.metrics)

    def set(self, metrics: MetricsContext) -> None:
        """Point to other metrics, together with the parents."""
        self.metrics = metrics
        for parent in self.parents:
            parent.set(metrics)

    def get(self) -> MetricsContext:
        """Return the metrics."""
        return self.metrics
