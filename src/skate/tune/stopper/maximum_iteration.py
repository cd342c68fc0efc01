"""Stop trials after a number of results."""

from __future__ import annotations

from typing import Any

from skate.tune.stopper.stopper import Stopper

__all__ = ["MaximumIterationStopper"]


class MaximumIterationStopper(Stopper):
    """Stop each trial after a number of results.

    Args:
        max_iter: The number of results.
    """

    def __init__(self, max_iter: int) -> None:
        self._max_iter = max_iter
        self._counts: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Count a result, and return whether the trial has reached the limit."""
        count = self._counts[trial_id] = self._counts.get(trial_id, 0) + 1
        return count >= self._max_iter

    def stop_all(self) -> bool:
        """Return False, because each trial stops on its own."""
        return False
