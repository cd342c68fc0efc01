"""Stoppers: rules that end single trials, or the whole experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skate._base.suggestions import did_you_mean

__all__ = ["CombinedStopper", "Stopper"]


class Stopper:
    """Decides when a trial or the experiment ends. Subclasses define `__call__` and `stop_all`."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial should stop.

        Args:
            trial_id: The trial that reported.
            result: Its newest result.
        """
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, trial_id, result).")

    def stop_all(self) -> bool:
        """Return whether all trials should stop, and no more should start."""
        raise NotImplementedError(f"{type(self).__name__} must define stop_all(self).")


class CombinedStopper(Stopper):
    """Stop as soon as one of several stoppers does.

    Args:
        stoppers: The stoppers to combine.

    Raises:
        TypeError: One of them is not a stopper.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        for stopper in stoppers:
            if not isinstance(stopper, Stopper):
                raise TypeError(
                    f"CombinedStopper takes instances of Stopper, not {stopper!r}: "
                    "wrap functions in FunctionStopper."
                )
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether one of the stoppers stops the trial."""
        # Every stopper must see every result, because some count them.
        answers = [stopper(trial_id, result) for stopper in self._stoppers]
        return any(answers)

    def stop_all(self) -> bool:
        """Return whether one of the stoppers stops the experiment."""
        answers = [stopper.stop_all() for stopper in self._stoppers]
        return any(answers)


def read_metric(result: Mapping[str, Any], metric: str, stopper: str) -> float:
    """Return the number that a result has for a metric.

    Args:
        result: The result.
        metric: The name of the metric.
        stopper: The class that needs it, for the error.

    Raises:
        ValueError: The result does not have the metric.
        TypeError: The value is not a number.
    """
    try:
        value = result[metric]
    except KeyError:
        raise ValueError(describe_missing(result, metric, stopper)) from None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{stopper} needs a number as {metric!r}, but the result has {value!r}.") from None


def describe_missing(result: Mapping[str, Any], metric: str, stopper: str) -> str:
    """Return an error message for a result without a metric. It lists the keys of the result."""
    keys = sorted(map(str, result))
    return (
        f"{stopper} needs the metric {metric!r}, but the result has only {keys}.{did_you_mean(metric, keys)} "
        "Report it, or set `metric` to a key that is reported."
    )
