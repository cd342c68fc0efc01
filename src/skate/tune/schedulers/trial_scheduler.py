"""Schedulers decide which trials run, pause and stop. They do no work themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle

from skate.tune.result import DEFAULT_METRIC
from skate.tune.schedulers._controller import waiting_trials

if TYPE_CHECKING:
    from skate.tune.experiment import Trial
    from skate.tune.schedulers._controller import TuneController

__all__ = ["FIFOScheduler", "TrialScheduler"]


class TrialScheduler:
    """The interface of schedulers.

    The controller calls a method for each event of a trial. `on_trial_result` returns one of the constants:
    `CONTINUE` to continue training, `PAUSE` to save a checkpoint and wait, `STOP` to end the trial, and `NOOP` if the
    scheduler has already told the controller what to do with the trial.
    """

    CONTINUE: ClassVar = "CONTINUE"
    PAUSE: ClassVar = "PAUSE"
    STOP: ClassVar = "STOP"
    NOOP: ClassVar = "NOOP"

    _metric: str | None = None
    _supports_buffered_results: ClassVar[bool] = True

    @property
    def metric(self) -> str | None:
        """The metric that decisions depend on."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether results may arrive several at a time, after the trial has continued."""
        return self._supports_buffered_results

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the objective of the experiment.

        Args:
            metric: The metric to optimize.
            mode: "min" or "max".
            spec: Additional properties of the experiment.

        Returns:
            Whether it was set; False if the scheduler has its own objective.
        """
        if self._metric and metric:
            return False
        self._metric = metric or self._metric or DEFAULT_METRIC
        return True

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Handle a new trial. After the experiment is restored, known trials are added again."""
        raise NotImplementedError

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """Handle the failure of a running trial."""
        raise NotImplementedError

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Decide what to do with a running trial that has reported a result.

        Returns:
            `CONTINUE`, `PAUSE`, `STOP` or `NOOP`.
        """
        raise NotImplementedError

    def on_trial_complete(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Handle the end of a running trial."""
        raise NotImplementedError

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """Handle the removal of a waiting trial."""
        raise NotImplementedError

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """Return the waiting trial to run next, or None if none should run now."""
        raise NotImplementedError

    def debug_string(self) -> str:
        """Return a description of the state, for the console."""
        raise NotImplementedError

    def save(self, checkpoint_path: str) -> None:
        """Save the state to a file.

        Args:
            checkpoint_path: The file to write.
        """
        Path(checkpoint_path).write_bytes(cloudpickle.dumps(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        """Continue with the state that `save` has written.

        Args:
            checkpoint_path: The file to read.
        """
        self.__dict__.update(cloudpickle.loads(Path(checkpoint_path).read_bytes()))


class FIFOScheduler(TrialScheduler):
    """Run trials in the order in which they were added, until they end by themselves."""

    def on_trial_add(self, tune_controller: TuneController, trial: Trial) -> None:
        """Do nothing."""

    def on_trial_error(self, tune_controller: TuneController, trial: Trial) -> None:
        """Do nothing."""

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Continue."""
        return TrialScheduler.CONTINUE

    def on_trial_complete(
        self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Do nothing."""

    def on_trial_remove(self, tune_controller: TuneController, trial: Trial) -> None:
        """Do nothing."""

    def choose_trial_to_run(self, tune_controller: TuneController) -> Trial | None:
        """Return the first pending trial; without one, the first paused trial."""
        return next(waiting_trials(tune_controller), None)

    def debug_string(self) -> str:
        """Return a description of the state, for the console."""
        return "Using FIFO scheduling algorithm."
