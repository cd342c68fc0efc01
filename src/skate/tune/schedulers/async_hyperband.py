"""Asynchronous successive halving, which stops trials that are behind at fixed times.

Li et al., A System for Massively Parallel Hyperparameter Tuning (2018), https://arxiv.org/abs/1810.05934. This is the
stopping variant: a trial that reaches a rung is compared with those that reached it before, and stops unless it is
among the best 1/reduction_factor of them. Thus no trial waits for slower ones.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skate.tune.schedulers._objective import ObjectiveScheduler, check_halving, make_random
from skate.tune.schedulers.trial_scheduler import TrialScheduler

if TYPE_CHECKING:
    from skate.tune.experiment import Trial
    from skate.tune.schedulers._controller import TuneController

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler"]

_ROUNDING = 1e-9  # for powers of a fractional factor


class AsyncHyperBandScheduler(ObjectiveScheduler):
    """Stop trials that are behind at the rungs of asynchronous successive halving.

    The rungs are at `grace_period`, `grace_period * reduction_factor`, and so on up to `max_t`.

    Args:
        time_attr: The key of results that measures progress, such as "training_iteration" or "time_total_s". It must
            not decrease.
        metric: The metric to compare. The default is that of `TuneConfig`.
        mode: "min" or "max". The default is that of `TuneConfig`.
        max_t: The time at which all trials stop.
        grace_period: The time before which no trial stops.
        reduction_factor: At each rung, about one in this many trials continues.
        brackets: The number of sets of rungs. Each set starts one rung later than the previous one. Trials are
            assigned at random, more often to sets with more rungs.
        stop_last_trials: Whether trials stop at `max_t`.
        seed: The seed of the assignment of trials to brackets.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_halving(max_t, reduction_factor)
        if not 0 < grace_period <= max_t:
            raise ValueError(
                f"grace_period must be greater than 0 and at most max_t={max_t!r}, not {grace_period!r}."
            )
        if brackets < 1:
            raise ValueError(f"brackets must be at least 1, not {brackets!r}.")
        self._max_t = max_t
        self._stop_last_trials = stop_last_trials
        self._random = make_random(seed)
        self._brackets = [
            _Bracket.create(grace_period, max_t, reduction_factor, skipped) for skipped in range(brackets)
        ]
        self._trials: dict[str, _Progress] = {}
        self._num_stopped = 0

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Assign the trial to a bracket."""
        super().on_trial_add(tune_controller, trial)
        if trial.trial_id not in self._trials:
            self._trials[trial.trial_id] = _Progress(self._choose_bracket())

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Stop the trial if it is behind at a rung, or has reached `max_t`."""
        measured = self._measure(result)
        if measured is None:
            return TrialScheduler.CONTINUE
        is_over = self._stop_last_trials and measured.time >= self._max_t
        if is_over or not self._progress(trial).may_continue(*measured):
            self._num_stopped += 1
            return TrialScheduler.STOP
        return TrialScheduler.CONTINUE

    def on_trial_complete(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Record the last result for the comparison with others, and forget the trial."""
        if self._missing_key(result) is None:
            measured = self._measure(result)
            assert measured is not None, "no key is missing"
            self._progress(trial).may_continue(*measured)
        self._trials.pop(trial.trial_id, None)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """Forget the trial."""
        self._trials.pop(trial.trial_id, None)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """Forget the trial."""
        self._trials.pop(trial.trial_id, None)

    def debug_string(self) -> str:
        """Return the scores that trials need at each rung."""
        lines = [f"Using AsyncHyperBand: num_stopped={self._num_stopped}"]
        return "\n".join(lines + [bracket.describe() for bracket in self._brackets])

    def _progress(self, trial: Trial) -> _Progress:
        if trial.trial_id not in self._trials:
            self._trials[trial.trial_id] = _Progress(self._choose_bracket())
        return self._trials[trial.trial_id]

    def _choose_bracket(self) -> _Bracket:
        if len(self._brackets) == 1:
            return self._brackets[0]
        longest = len(self._brackets[0].rungs)
        weights = [math.exp(len(bracket.rungs) - longest) for bracket in self._brackets]
        return self._random.choices(self._brackets, weights)[0]


class _Rung:
    """The scores that trials had when they reached a time."""

    def __init__(self, time: float, reduction_factor: float) -> None:
        self.time = time
        self._quantile = 1 - 1 / reduction_factor
        self._scores: list[float] = []  # in ascending order

    def cutoff(self) -> float:
        """Return the score that a trial needs to continue, interpolated between the scores of others."""
        if not self._scores:
            return -math.inf
        position = self._quantile * (len(self._scores) - 1)
        below = math.floor(position)
        low, high = self._scores[below], self._scores[min(below + 1, len(self._scores) - 1)]
        if low == high or not math.isfinite(high - low):
            return low
        return low + (high - low) * (position - below)

    def admits(self, score: float) -> bool:
        """Record a score, and return whether the trial may continue."""
        cutoff = self.cutoff()
        bisect.insort(self._scores, score)
        return score >= cutoff


@dataclass
class _Bracket:
    """Rungs, with increasing times."""

    rungs: list[_Rung]

    @classmethod
    def create(cls, first: float, max_t: float, reduction_factor: float, skipped: int) -> _Bracket:
        """Return the rungs up to `max_t`, without the first `skipped` ones."""
        count = math.floor(math.log(max_t / first) / math.log(reduction_factor) + _ROUNDING) + 1
        times = [first * reduction_factor**step for step in range(skipped, count)]
        return cls([_Rung(time, reduction_factor) for time in times])

    def describe(self) -> str:
        """Return the times of the rungs and their cutoffs, the last rung first."""
        cutoffs = [f"Iter {rung.time:.3f}: {rung.cutoff()}" for rung in reversed(self.rungs)]
        return "Bracket: " + " | ".join(cutoffs)


@dataclass
class _Progress:
    """How far a trial has climbed."""

    bracket: _Bracket
    climbed: int = field(default=0)  # rungs below this index are behind the trial

    def may_continue(self, time: float, score: float) -> bool:
        """Return whether a trial may continue. It is judged once at each rung; of several that it passes, at the last.

        A score that is not a number is ignored, and the trial is judged by its next one.
        """
        rungs = self.bracket.rungs
        reached = bisect.bisect_right(rungs, time, key=lambda rung: rung.time)
        if reached <= self.climbed or math.isnan(score):
            return True
        self.climbed = reached
        return rungs[reached - 1].admits(score)


ASHAScheduler = AsyncHyperBandScheduler
