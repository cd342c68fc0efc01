"""HyperBand with the order and the pauses that BOHB needs.

Falkner et al., BOHB: Robust and Efficient Hyperparameter Optimization at Scale (2018),
https://arxiv.org/abs/1807.01774. The model of the searcher learns from the results of full rungs, so brackets with
many short trials come first, and trials pause until their bracket is full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.tune.experiment import Trial
from skate.tune.schedulers._controller import searcher_of
from skate.tune.schedulers.hyperband import Bracket, HyperBandScheduler
from skate.tune.schedulers.trial_scheduler import TrialScheduler

if TYPE_CHECKING:
    from skate.tune.schedulers._controller import TuneController

__all__ = ["HyperBandForBOHB"]


class HyperBandForBOHB(HyperBandScheduler):
    """Run HyperBand for the searcher `TuneBOHB`.

    It differs from `HyperBandScheduler` in two ways. The bracket with the most trials fills first. Trials pause at
    the milestone until their bracket is full, so that the searcher can add more; a bracket that is not full halves
    when nothing else can run. Results at a milestone have the key "hyperband_info" with the "budget" of the rung.

    The arguments are those of `HyperBandScheduler`.
    """

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Pause the trial at the milestone of its bracket, and halve the bracket when it is full and complete."""
        action = super().on_trial_result(tune_controller, trial, result)
        result.setdefault("hyperband_info", {})
        return action

    def choose_trial_to_run(
        self, tune_controller: TuneController, allow_recurse: bool = True
    ) -> Trial | None:
        """Return a waiting trial, the earliest bracket first; halve brackets that are not full if nothing runs.

        Args:
            tune_controller: The controller.
            allow_recurse: Whether to return a trial of a bracket that this call has halved.
        """
        trial = self._first_runnable()
        if trial is not None:
            return trial
        if any(other.status == Trial.RUNNING for other in tune_controller.get_live_trials()):
            return None
        for band in self._bands:
            for bracket in band:
                if bracket.is_complete():
                    self._halve_if_complete(tune_controller, bracket, None)
                    trial = self._first_runnable()
                    if trial is not None:
                        return trial if allow_recurse else None
        return None

    def _on_milestone(
        self, tune_controller: TuneController, bracket: Bracket, trial: Trial, result: dict[str, Any]
    ) -> str:
        result["hyperband_info"] = {"budget": bracket.milestone}
        action: str = TrialScheduler.PAUSE
        if not bracket.has_room() and self._others_are_paused(bracket, trial):
            action = self._halve_if_complete(tune_controller, bracket, trial)
        searcher = searcher_of(tune_controller)
        if action == TrialScheduler.PAUSE and searcher is not None:
            searcher.on_pause(trial.trial_id)
        return action

    def _on_resume(self, tune_controller: TuneController, trial: Trial) -> None:
        searcher = searcher_of(tune_controller)
        if searcher is not None:
            searcher.on_unpause(trial.trial_id)

    def _bracket_order(self) -> list[int]:
        return super()._bracket_order()[::-1]

    def _first_runnable(self) -> Trial | None:
        return next(
            (trial for band in self._bands for bracket in band for trial in self._runnable_trials(bracket)),
            None,
        )

    def _others_are_paused(self, bracket: Bracket, trial: Trial) -> bool:
        others = (self._trials[name] for name in bracket.trial_ids() if name != trial.trial_id)
        return all(other.status == Trial.PAUSED for other in others)
