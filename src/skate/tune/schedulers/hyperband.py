"""Synchronous HyperBand: trials of a bracket wait for each other, and the worst of them stop.

Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization (2018),
https://arxiv.org/abs/1603.06560. With R = `max_t` and η = `reduction_factor`, a band has the brackets
s = 0 … ⌊log_η R⌋. Bracket s starts with ⌈(s_max + 1) / (s + 1) · η^s⌉ trials for R · η^-s units of time. Whenever all
its trials have trained that long, the best 1/η of them, rounded up (down in the paper), train η times as long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from skate.tune.experiment import Trial
from skate.tune.schedulers._objective import Measurement, ObjectiveScheduler, check_halving
from skate.tune.schedulers.trial_scheduler import TrialScheduler

if TYPE_CHECKING:
    from skate.tune.schedulers._controller import TuneController

__all__ = ["HyperBandScheduler"]

_ROUNDING = 1e-9  # for powers of a fractional factor


class HyperBandScheduler(ObjectiveScheduler):
    """Stop the worst trials of brackets that pause and halve together.

    New trials join the bracket with the fewest halvings first. When it is full, the next bracket opens; after the
    last bracket, a new band.

    Args:
        time_attr: The key of results that measures progress, such as "training_iteration" or "time_total_s". It must
            not decrease.
        metric: The metric to compare. The default is that of `TuneConfig`.
        mode: "min" or "max". The default is that of `TuneConfig`.
        max_t: The longest time of a trial.
        reduction_factor: At each halving, one in this many trials continues.
        stop_last_trials: Whether trials stop at `max_t`.

    Raises:
        ValueError: An argument is out of range.
    """

    _supports_buffered_results = False  # trials wait for each other at exact times

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_halving(max_t, reduction_factor)
        self._plans = plan_brackets(max_t, reduction_factor)
        self._stop_last_trials = stop_last_trials
        self._bands: list[list[Bracket]] = [[]]
        self._trials: dict[str, Trial] = {}
        self._bracket_of: dict[str, Bracket] = {}
        self._num_stopped = 0

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Add the trial to the open bracket, or to a new one."""
        super().on_trial_add(tune_controller, trial)
        self._trials[trial.trial_id] = trial
        if trial.trial_id in self._bracket_of:
            return
        bracket = self._open_bracket()
        bracket.add(trial.trial_id)
        self._bracket_of[trial.trial_id] = bracket

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Pause the trial at the milestone of its bracket, and halve the bracket when all its trials have arrived."""
        measured = self._measure(result)
        bracket = self._bracket_of.get(trial.trial_id)
        if measured is None or bracket is None:
            return TrialScheduler.CONTINUE
        bracket.record(trial.trial_id, measured)
        if bracket.can_run(trial.trial_id):
            return TrialScheduler.CONTINUE
        return self._on_milestone(tune_controller, bracket, trial, result)

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """Drop the trial from its bracket, which may have waited for it."""
        self._trials.pop(trial.trial_id, None)
        bracket = self._bracket_of.pop(trial.trial_id, None)
        if bracket is not None:
            bracket.remove(trial.trial_id)
            self._halve_if_complete(tune_controller, bracket, None)

    def on_trial_complete(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Drop the trial from its bracket."""
        self.on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """Drop the trial from its bracket."""
        self.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """Return a waiting trial of the first band that has one, from its bracket that has progressed the least."""
        for band in self._bands:
            brackets = [bracket for bracket in band if bracket.has_runnable()]
            for bracket in sorted(brackets, key=Bracket.progress):
                for trial in self._runnable_trials(bracket):
                    return trial
        return None

    def debug_string(self) -> str:
        """Return the sizes, milestones and progress of the brackets."""
        state = self.state()
        lines = [
            f"Using HyperBand: num_stopped={state['num_stopped']} total_brackets={state['num_brackets']}"
        ]
        for number, band in enumerate(self._bands):
            lines.append(f"Round #{number}:")
            for bracket in band:
                counts = Counter(self._trials[name].status for name in bracket.trial_ids())
                statuses = ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
                lines.append(f"  {bracket}: {{{statuses}}}")
        return "\n".join(lines)

    def state(self) -> dict[str, int]:
        """Return how many brackets there are, and how many trials were stopped early."""
        return {"num_brackets": sum(map(len, self._bands)), "num_stopped": self._num_stopped}

    def _on_milestone(
        self, tune_controller: TuneController, bracket: Bracket, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Return the decision for a trial that has reached the milestone of its bracket."""
        return self._halve_if_complete(tune_controller, bracket, trial)

    def _on_resume(self, tune_controller: TuneController, trial: Trial) -> None:
        """Handle that a paused trial may run again."""

    def _bracket_order(self) -> list[int]:
        """Return the brackets of a band in the order in which they fill, by their number of halvings."""
        return list(range(len(self._plans)))

    def _open_bracket(self) -> Bracket:
        """Return a bracket with room."""
        order = self._bracket_order()
        band = self._bands[-1]
        if band and band[-1].has_room():
            return band[-1]
        if len(band) == len(order):
            band = []
            self._bands.append(band)
        bracket = Bracket(self._plans[order[len(band)]], self._stop_last_trials)
        band.append(bracket)
        return bracket

    def _runnable_trials(self, bracket: Bracket) -> Iterator[Trial]:
        for name in bracket.runnable_ids():
            trial = self._trials[name]
            if trial.status in (Trial.PENDING, Trial.PAUSED):
                yield trial

    def _halve_if_complete(
        self, tune_controller: TuneController, bracket: Bracket, current: Trial | None
    ) -> str:
        """Halve a bracket whose trials have all reached its milestone.

        Args:
            tune_controller: The controller, which stops the other trials.
            bracket: The bracket.
            current: The trial that has just reported, if any.

        Returns:
            What `current` does.
        """
        if not bracket.is_complete():
            return TrialScheduler.PAUSE
        stopped: list[Trial] = []
        # Trials may have jumped over several milestones.
        while bracket.is_complete():
            is_last = bracket.is_last()
            losers = bracket.finish() if is_last else bracket.halve()
            self._num_stopped += 0 if is_last else len(losers)
            stopped += [self._trials[name] for name in losers]
        for trial in stopped:
            # Forgotten first: stopping a trial removes it, which must not halve the bracket again.
            self._bracket_of.pop(trial.trial_id, None)
        reporting = None if current is None else current.trial_id
        for trial in stopped:
            if trial.trial_id != reporting:
                tune_controller.stop_trial(trial)
        for name in bracket.runnable_ids():
            if name != reporting and self._trials[name].status == Trial.PAUSED:
                self._on_resume(tune_controller, self._trials[name])
        if reporting is None or reporting not in self._bracket_of:
            return TrialScheduler.STOP
        return TrialScheduler.CONTINUE if bracket.can_run(reporting) else TrialScheduler.PAUSE


class BracketPlan(NamedTuple):
    """How many trials train to which milestones."""

    sizes: list[int]
    milestones: list[float]

    def work(self) -> float:
        """Return the total training time of all trials of a full bracket."""
        earlier = [0.0, *self.milestones]
        return sum(
            size * (end - start)
            for size, start, end in zip(self.sizes, earlier, self.milestones, strict=False)
        )


def plan_brackets(max_t: float, reduction_factor: float) -> list[BracketPlan]:
    """Return the brackets of a band, by their number of halvings.

    >>> [(plan.sizes[0], plan.milestones[0]) for plan in plan_brackets(81, 3)]
    [(5, 81), (8, 27), (15, 9), (34, 3), (81, 1)]
    """
    most = max(math.floor(math.log(max_t) / math.log(reduction_factor) + _ROUNDING), 0)
    plans = []
    for halvings in range(most + 1):
        sizes = [math.ceil((most + 1) / (halvings + 1) * reduction_factor**halvings - _ROUNDING)]
        milestones = [max_t]
        for step in range(1, halvings + 1):
            sizes.append(math.ceil(sizes[-1] / reduction_factor - _ROUNDING))
            milestones.insert(0, math.floor(max_t / reduction_factor**step + _ROUNDING))
        plans.append(BracketPlan(sizes, milestones))
    return plans


class Bracket:
    """Trials that train to a milestone, halve, and train to the next one.

    Args:
        plan: The number of trials before each milestone.
        stop_last_trials: Whether the last trials stop at the last milestone.
    """

    def __init__(self, plan: BracketPlan, stop_last_trials: bool) -> None:
        self._plan = plan
        self._rung = 0
        self._stop_last_trials = stop_last_trials
        self._is_finished = False
        self._measured: dict[str, Measurement] = {}
        self._runnable: dict[str, None] = {}  # ordered; the trials that have not reached the milestone
        self._work_done = 0.0

    @property
    def size(self) -> int:
        """The number of trials that train to the milestone."""
        return self._plan.sizes[self._rung]

    @property
    def milestone(self) -> float:
        """The time that trials train to."""
        return self._plan.milestones[self._rung]

    def trial_ids(self) -> list[str]:
        """Return the trials that have not stopped."""
        return list(self._measured)

    def runnable_ids(self) -> list[str]:
        """Return the trials that have not reached the milestone, in the order in which they should run."""
        return list(self._runnable)

    def has_runnable(self) -> bool:
        """Return whether some trial has not reached the milestone."""
        return bool(self._runnable)

    def has_room(self) -> bool:
        """Return whether more trials can join."""
        return not self._is_finished and len(self._measured) < self.size

    def can_run(self, trial_id: str) -> bool:
        """Return whether a trial has to train before the bracket halves."""
        return trial_id in self._runnable

    def is_last(self) -> bool:
        """Return whether there is no halving left."""
        return self._rung == len(self._plan.milestones) - 1

    def is_complete(self) -> bool:
        """Return whether all trials have reached the milestone."""
        return bool(self._measured) and not self._runnable

    def add(self, trial_id: str) -> None:
        """Add a trial, which trains to the current milestone."""
        self._measured[trial_id] = Measurement(0.0, -math.inf)
        self._runnable[trial_id] = None

    def remove(self, trial_id: str) -> None:
        """Drop a trial."""
        self._measured.pop(trial_id, None)
        self._runnable.pop(trial_id, None)

    def record(self, trial_id: str, measured: Measurement) -> None:
        """Record a result. A score that is not a number is worse than every number."""
        time, score = measured
        self._work_done += max(time - self._measured[trial_id].time, 0.0)
        self._measured[trial_id] = Measurement(time, -math.inf if math.isnan(score) else score)
        self._update_runnable(trial_id)

    def halve(self) -> list[str]:
        """Go to the next milestone, and return the trials that stop. Earlier trials win ties."""
        self._rung += 1
        ranked = sorted(self._measured, key=lambda name: self._measured[name].score, reverse=True)
        losers = ranked[self.size :]
        for name in losers:
            self.remove(name)
        for name in self._measured:
            self._update_runnable(name)
        return losers

    def finish(self) -> list[str]:
        """Close the bracket, and return the trials that have reached the end."""
        self._is_finished = True
        winners = self.trial_ids()
        for name in winners:
            self.remove(name)
        return winners

    def progress(self) -> float:
        """Return the fraction of the planned work that is done, from 0 to 1."""
        return 1.0 if self._is_finished else min(self._work_done / self._plan.work(), 1.0)

    def _update_runnable(self, trial_id: str) -> None:
        never_stops = self.is_last() and not self._stop_last_trials
        if never_stops or self._measured[trial_id].time < self.milestone:
            self._runnable.setdefault(trial_id)
        else:
            self._runnable.pop(trial_id, None)

    def __repr__(self) -> str:
        return f"Bracket(Max Size (n)={self.size}, Milestone (r)={self.milestone:g}, completed={self.progress():.1%})"
