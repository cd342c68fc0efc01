"""Callbacks, which receive the events of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.air.config import RunCallback

if TYPE_CHECKING:
    from skate.train import Checkpoint
    from skate.tune.experiment import Trial
    from skate.tune.stopper import Stopper

__all__ = ["Callback"]


class Callback(RunCallback):
    """The base class of callbacks; subclasses override the events they need.

    All methods are called in the process of the driver. `iteration` counts the steps of the loop, `trials` are all
    trials of the experiment, and `trial` is the one that the event concerns.

    Example:
        >>> class PrintLoss(Callback):
        ...     def on_trial_result(self, iteration, trials, trial, result, **info):
        ...         print(trial, result["loss"])
    """

    def setup(
        self,
        stop: Stopper | None = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Called when the experiment begins."""

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Called before the loop waits for an event."""

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Called after the loop has handled an event."""

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial starts, or continues after a pause."""

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial continues from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called after a trial has saved a checkpoint."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Called after a trial has reported a result."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called after a trial has ended without an error."""

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called after a trial has failed, before it is restarted."""

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called after a trial has failed."""

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        """Called after a trial has saved a checkpoint."""

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Called after the experiment has ended."""

    def get_state(self) -> dict[str, Any] | None:
        """Return the state that a restored experiment needs."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the state to one that `get_state` returned."""
