"""Stop trials whose metric no longer changes."""

from __future__ import annotations

import logging
import math
import statistics
from collections import deque
from typing import Any

from skate.tune.stopper.stopper import Stopper, describe_missing, read_metric

__all__ = ["TrialPlateauStopper"]

logger = logging.getLogger(__name__)


class TrialPlateauStopper(Stopper):
    """Stop a trial when the standard deviation of its last results is small.

    Results without the metric do not count; the first one logs an error.

    Args:
        metric: The metric to watch.
        std: The standard deviation below which the trial stops.
        num_results: The number of last results to compare.
        grace_period: The number of results that a trial reports before it can stop.
        metric_threshold: The value that the metric must have reached before the trial can stop.
        mode: With `metric_threshold`, "min" if the metric must not be above it, "max" if not below.

    Raises:
        ValueError: `metric_threshold` is given without a valid `mode`.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(f"metric_threshold needs mode='min' or mode='max', not {mode!r}.")
        if num_results < 1:
            raise ValueError(f"num_results must be at least 1, not {num_results!r}.")
        self._metric = metric
        self._std = std
        self._num_results = num_results
        self._grace_period = grace_period
        self._threshold = metric_threshold
        self._mode = mode
        self._counts: dict[str, int] = {}
        self._recent: dict[str, deque[float]] = {}
        self._has_logged = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Add a result, and return whether the trial has reached a plateau."""
        if self._metric not in result:
            if not self._has_logged:
                self._has_logged = True
                logger.error(describe_missing(result, self._metric, type(self).__name__))
            return False
        value = read_metric(result, self._metric, type(self).__name__)
        count = self._counts[trial_id] = self._counts.get(trial_id, 0) + 1
        recent = self._recent.setdefault(trial_id, deque(maxlen=self._num_results))
        recent.append(value)
        if count < self._grace_period or len(recent) < self._num_results:
            return False
        if not self._has_reached_threshold(value) or not all(map(math.isfinite, recent)):
            return False
        return statistics.pstdev(recent) < self._std

    def stop_all(self) -> bool:
        """Return False, because each trial stops on its own."""
        return False

    def _has_reached_threshold(self, value: float) -> bool:
        if self._threshold is None:
            return True
        return value <= self._threshold if self._mode == "min" else value >= self._threshold
