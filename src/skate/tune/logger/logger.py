"""The base class of callbacks that log the results of trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.tune.callback import Callback

if TYPE_CHECKING:
    from skate.tune.experiment import Trial

__all__ = ["LoggerCallback"]


class LoggerCallback(Callback):
    """A callback with one method per event of a trial; subclasses override those they need."""

    def log_trial_start(self, trial: Trial) -> None:
        """Handle the start of a trial."""

    def log_trial_restore(self, trial: Trial) -> None:
        """Handle a trial that continues from a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """Handle a checkpoint of a trial."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Handle a result of a trial."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Handle the end of a trial."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Forward the event."""
        self.log_trial_result(iteration, trial, result)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Forward the event."""
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Forward the event."""
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Forward the event."""
        self.log_trial_save(trial)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Forward the event."""
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Forward the event."""
        self.log_trial_end(trial, failed=True)
