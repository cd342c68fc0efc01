"""The median stopping rule, which stops trials that are worse than the average of others.

Golovin et al., Google Vizier: A Service for Black-Box Optimization (2017): a trial stops at time t if its best score
until t is worse than the median of the average scores that other trials had until t.
"""

from __future__ import annotations

import bisect
import math
import statistics
from typing import TYPE_CHECKING, Any

from skate.tune.schedulers._controller import waiting_trials
from skate.tune.schedulers._objective import Measurement, ObjectiveScheduler
from skate.tune.schedulers.trial_scheduler import TrialScheduler

if TYPE_CHECKING:
    from skate.tune.experiment import Trial
    from skate.tune.schedulers._controller import TuneController

__all__ = ["MedianStoppingRule"]


class MedianStoppingRule(ObjectiveScheduler):
    """Stop a trial whose best result is worse than the median of the averages of other trials.

    Args:
        time_attr: The key of results that measures progress, such as "training_iteration" or "time_total_s". It must
            not decrease.
        metric: The metric to compare. The default is that of `TuneConfig`.
        mode: "min" or "max". The default is that of `TuneConfig`.
        grace_period: The time before which no trial stops, and from which on averages count.
        min_samples_required: The number of other trials that must have reached the time of a result to judge it.
        min_time_slice: How long a trial runs before it is paused for waiting trials, which happens only when there
            are too few others to judge it.
        hard_stop: Whether trials stop. Otherwise they pause, and run to their end when no other trial is pending.

    Raises:
        ValueError: `mode` is neither "min" nor "max".
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        self._grace_period = grace_period
        self._min_samples_required = min_samples_required
        self._min_time_slice = min_time_slice
        self._hard_stop = hard_stop
        self._curves: dict[str, _Curve] = {}
        self._stopped: set[str] = set()
        self._paused_at: dict[str, float] = {}

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Stop the trial if its best result is worse than the median."""
        measured = self._measure(result)
        name = trial.trial_id
        if measured is None or name in self._stopped:
            return TrialScheduler.CONTINUE
        curve = self._record(name, measured)
        if measured.time < self._grace_period or not curve.times:
            return TrialScheduler.CONTINUE
        averages = [
            average
            for other, others_curve in self._curves.items()
            if other != name and (average := others_curve.average_until(measured.time)) is not None
        ]
        if len(averages) < max(self._min_samples_required, 1):
            return self._give_way(tune_controller, name, measured.time)
        if curve.bests[-1] >= statistics.median(averages):
            return TrialScheduler.CONTINUE
        self._stopped.add(name)
        return TrialScheduler.STOP if self._hard_stop else TrialScheduler.PAUSE

    def on_trial_complete(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Record the last result for the comparison with others."""
        if self._metric and self._mode and self._missing_key(result) is None:
            measured = self._measure(result)
            assert measured is not None, "no key is missing"
            self._record(trial.trial_id, measured)

    def debug_string(self) -> str:
        """Return how many trials were stopped."""
        return f"Using MedianStoppingRule: num_stopped={len(self._stopped)}."

    def _record(self, name: str, measured: Measurement) -> _Curve:
        curve = self._curves.setdefault(name, _Curve(self._grace_period))
        curve.append(*measured)
        return curve

    def _give_way(self, tune_controller: TuneController, name: str, time: float) -> str:
        """Pause a trial that cannot be judged if others are waiting, so that there will be trials to compare with."""
        if time - self._paused_at.get(name, -math.inf) <= self._min_time_slice:
            return TrialScheduler.CONTINUE
        if next(waiting_trials(tune_controller), None) is None:
            return TrialScheduler.CONTINUE
        self._paused_at[name] = time
        return TrialScheduler.PAUSE


class _Curve:
    """The scores of a trial over time.

    Args:
        start: The time from which on scores count for averages.
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self.times: list[float] = []
        self.bests: list[float] = []  # the best score until each time
        self._sums: list[float] = []  # of the scores from `start` until each time
        self._counts: list[int] = []

    def append(self, time: float, score: float) -> None:
        """Add a score. A trial that was restored reports times again, which replace the earlier ones."""
        if math.isnan(score):
            return
        repeated = bisect.bisect_left(self.times, time)
        for values in (self.times, self.bests, self._sums, self._counts):
            del values[repeated:]
        counts = time >= self._start
        self.bests.append(max(score, self.bests[-1]) if self.times else score)
        self._sums.append((self._sums[-1] if self.times else 0.0) + (score if counts else 0.0))
        self._counts.append((self._counts[-1] if self.times else 0) + counts)
        self.times.append(time)

    def average_until(self, time: float) -> float | None:
        """Return the average score until a time; None if the trial has not trained that long."""
        if not self.times or self.times[-1] < time:
            return None
        index = bisect.bisect_right(self.times, time) - 1
        if index < 0 or not self._counts[index]:
            return None
        average = self._sums[index] / self._counts[index]
        return None if math.isnan(average) else average
