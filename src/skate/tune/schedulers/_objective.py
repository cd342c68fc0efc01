"""The base class of schedulers that compare trials by a metric over time."""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from skate._base.suggestions import did_you_mean
from skate.tune.result import DEFAULT_METRIC
from skate.tune.schedulers.trial_scheduler import FIFOScheduler

if TYPE_CHECKING:
    from skate.tune.experiment import Trial
    from skate.tune.schedulers._controller import TuneController

SIGNS = {"max": 1.0, "min": -1.0}


class Measurement(NamedTuple):
    """The numbers of a result that a scheduler decides by."""

    time: float
    score: float  # larger is better in both modes; may be NaN


class ObjectiveScheduler(FIFOScheduler):
    """A scheduler with an objective: a metric, whether to minimize it, and the time it is compared at.

    Args:
        time_attr: The key of results that measures progress.
        metric: The metric to compare.
        mode: "min" or "max".

    Raises:
        ValueError: `mode` is neither.
    """

    def __init__(self, time_attr: str, metric: str | None, mode: str | None) -> None:
        super().__init__()
        check_mode(mode)
        self._time_attr = time_attr
        self._metric = metric
        self._mode = mode
        self._logged: set[str] = set()  # the keys whose absence was logged

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the objective of the experiment.

        Args:
            metric: The metric to optimize.
            mode: "min" or "max".
            spec: Additional properties of the experiment.

        Returns:
            Whether it was set; False if the scheduler has its own objective.

        Raises:
            ValueError: `mode` is neither "min" nor "max".
        """
        check_mode(mode)
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._mode = mode or self._mode
        self._metric = metric or self._metric or (DEFAULT_METRIC if self._mode else None)
        return True

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Check that there is an objective.

        Raises:
            ValueError: Neither the scheduler nor the experiment has one.
        """
        if not self._metric or not self._mode:
            raise ValueError(
                f"{type(self).__name__} has metric={self._metric!r} and mode={self._mode!r}, but needs both: "
                "pass them to the scheduler, or to TuneConfig(metric=, mode=)."
            )

    def _measure(self, result: dict[str, Any]) -> Measurement | None:
        """Return the time and the score of a result. If one is missing, log it once and return None."""
        missing = self._missing_key(result)
        if missing is not None:
            if missing not in self._logged:
                self._logged.add(missing)
                logging.getLogger(type(self).__module__).error(
                    "%s Results without it are ignored.", self._describe_missing(missing, result)
                )
            return None
        assert self._metric is not None, "checked when the first trial was added"
        assert self._mode is not None, "checked when the first trial was added"
        score = SIGNS[self._mode] * self._to_float(self._metric, result)
        return Measurement(self._to_float(self._time_attr, result), score)

    def _missing_key(self, result: dict[str, Any]) -> str | None:
        """Return the first key that decisions need and a result lacks."""
        return next((key for key in (self._time_attr, self._metric) if result.get(str(key)) is None), None)

    def _describe_missing(self, key: str, result: dict[str, Any]) -> str:
        keys = sorted(str(name) for name, value in result.items() if value is not None)
        option = "time_attr" if key == self._time_attr else "metric"
        return (
            f"{type(self).__name__} has {option}={key!r}, but a trial reported only {keys}.{did_you_mean(key, keys)} "
            f"Report it, or set `{option}` to a key that is reported."
        )

    def _to_float(self, key: str, result: dict[str, Any]) -> float:
        try:
            return float(result[key])
        except (TypeError, ValueError):
            raise TypeError(
                f"{type(self).__name__} needs a number as {key!r}, but a trial reported {result[key]!r}."
            ) from None


def check_mode(mode: str | None) -> None:
    """Raise ValueError unless a mode is "min", "max" or None."""
    if mode is not None and mode not in SIGNS:
        raise ValueError(f"mode must be 'min' or 'max', not {mode!r}.{did_you_mean(str(mode), SIGNS)}")


def check_halving(max_t: float, reduction_factor: float) -> None:
    """Raise ValueError unless the arguments of successive halving are in range."""
    if not max_t > 0:
        raise ValueError(f"max_t must be greater than 0, not {max_t!r}.")
    if not 1 < reduction_factor < math.inf:
        raise ValueError(f"reduction_factor must be greater than 1, not {reduction_factor!r}.")


def make_random(seed: int | None) -> random.Random:
    """Return a generator with a seed. Without one, `random.seed()` determines it."""
    return random.Random(random.getrandbits(64) if seed is None else seed)
