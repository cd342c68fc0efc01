"""Stop the experiment when its best results no longer differ."""

from __future__ import annotations

import bisect
import math
import statistics
from typing import Any

from skate.tune.stopper.stopper import Stopper, read_metric

__all__ = ["ExperimentPlateauStopper"]


class ExperimentPlateauStopper(Stopper):
    """Stop all trials when the best results of the experiment no longer differ.

    Args:
        metric: The metric to compare.
        std: The standard deviation of the best results at or below which they count as equal.
        top: The number of best results to compare.
        mode: "min" if small values are good, "max" if large ones are.
        patience: The number of consecutive results after which the best results must still be equal.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', not {mode!r}.")
        if not isinstance(top, int) or top <= 1:
            raise ValueError(f"top must be an integer greater than 1, not {top!r}.")
        if not isinstance(patience, int) or patience < 0:
            raise ValueError(f"patience must be a non-negative integer, not {patience!r}.")
        if not isinstance(std, int | float) or not std > 0:
            raise ValueError(f"std must be a number greater than 0, not {std!r}.")
        self._metric = metric
        self._std = std
        self._top = top
        self._sign = 1.0 if mode == "min" else -1.0
        self._patience = patience
        self._best: list[float] = []  # the best costs, in ascending order
        self._plateau_length = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Add a result, and return whether the experiment should stop."""
        value = read_metric(result, self._metric, type(self).__name__)
        if not math.isnan(value):
            bisect.insort(self._best, self._sign * value)
            del self._best[self._top :]
        self._plateau_length = self._plateau_length + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """Return whether the best results are equal up to `std`."""
        if len(self._best) < self._top or not all(map(math.isfinite, self._best)):
            return False
        return statistics.pstdev(self._best) <= self._std

    def stop_all(self) -> bool:
        """Return whether the best results have been equal for longer than `patience`."""
        return self._plateau_length >= max(self._patience, 1)
