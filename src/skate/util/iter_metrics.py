"""Counters and timers shared by the functions of a `LocalIterator`."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, Self

__all__ = ["MetricsContext", "SharedMetrics"]

_SAVED: Final = ("counters", "info")


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


@dataclass
class MetricsContext:
    """Metrics that the functions of an iterator can access through `LocalIterator.get_metrics()`.

    Attributes:
        counters: Counters, which start at 0.
        timers: Timers, for use in `with` statements.
        info: Other values.
        current_actor: The actor that produced the current item, for items from `gather_async`.
    """

    counters: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    timers: defaultdict[str, _Timer] = field(default_factory=lambda: defaultdict(_Timer))
    info: dict[str, Any] = field(default_factory=dict)
    current_actor: Any = None

    def save(self) -> dict[str, Any]:
        """Return a copy of the counters and info, without the timers."""
        return {name: dict(getattr(self, name)) for name in _SAVED}

    def restore(self, values: dict[str, Any]) -> None:
        """Restore the values that `save` returned, and reset the timers."""
        self.timers.clear()
        for name in _SAVED:
            current = getattr(self, name)
            current.clear()
            current.update(values[name])


class SharedMetrics:
    """A reference to metrics that several iterators share after a union.

    Args:
        metrics: The metrics; new ones by default.
        parents: References that must point to the same metrics.
    """

    metrics: MetricsContext

    def __init__(
        self, metrics: MetricsContext | None = None, parents: list[SharedMetrics] | None = None
    ) -> None:
        self.parents = list(parents or ())
        self.set(metrics or MetricsContext())

    def set(self, metrics: MetricsContext) -> None:
        """Point to other metrics, together with all ancestors."""
        waiting = [self]
        while waiting:
            reference = waiting.pop()
            reference.metrics = metrics
            waiting += reference.parents

    def get(self) -> MetricsContext:
        """Return the metrics."""
        return self.metrics
