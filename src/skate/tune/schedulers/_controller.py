"""The interface of the loop that runs trials, as schedulers use it, and its optional parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from skate.tune.experiment import Trial

if TYPE_CHECKING:
    from skate.train import Checkpoint


class TrainingResult(Protocol):
    """A checkpoint and the metrics that were reported with it."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint, if one was saved."""

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The metrics that were reported with it."""


@runtime_checkable
class PendingCheckpoint(Protocol):
    """A checkpoint that is being saved."""

    def resolve(self, block: bool = True) -> TrainingResult | None:
        """Wait for the checkpoint, and return it with its metrics; None if nothing was saved."""


class TuneController(Protocol):
    """The loop that runs trials. Schedulers tell it to pause and stop trials other than the reporting one."""

    @property
    def search_alg(self) -> object:
        """The search algorithm that creates the trials, if any."""

    def get_trials(self) -> Sequence[Trial]:
        """Return all trials, in the order in which they were added."""

    def get_live_trials(self) -> Collection[Trial]:
        """Return the trials that have not ended."""

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Pause a running trial, after a checkpoint unless `should_checkpoint` is false."""

    def stop_trial(self, trial: Trial) -> None:
        """End a trial.

        Calls `on_trial_remove` of the scheduler if the trial was waiting, and `on_trial_complete` if it ran.
        """

    def _schedule_trial_save(
        self, trial: Trial, result: dict[str, Any] | None = None
    ) -> PendingCheckpoint | None:
        """Start saving a checkpoint of a running trial, and return a handle of it."""


@runtime_checkable
class Exploits(Protocol):
    """A controller that can continue a trial from the checkpoint of another one."""

    def exploit(
        self, trial: Trial, source: Trial, config: dict[str, Any], checkpoint: Checkpoint | PendingCheckpoint
    ) -> bool:
        """Pause a trial, give it a checkpoint of `source` and a configuration, and run it again later.

        Args:
            trial: The trial that changes; running or paused.
            source: The trial that the checkpoint belongs to.
            config: The new configuration.
            checkpoint: The checkpoint, or the handle that `_schedule_trial_save` returned for it.

        Returns:
            Whether the trial has changed; False if `source` has saved nothing.
        """


@runtime_checkable
class HasExperimentPath(Protocol):
    """A controller that has a local folder for the files of its experiment, or None."""

    experiment_path: str | PathLike[str] | None


@runtime_checkable
class ReusesActors(Protocol):
    """A controller that may keep the process of one trial for the next."""

    _reuse_actors: bool


class ResourceUpdater(Protocol):
    """Knows the resources of the machines that trials run on."""

    def get_num_cpus(self) -> float:
        """Return the number of CPUs."""

    def get_num_gpus(self) -> float:
        """Return the number of GPUs."""


@runtime_checkable
class HasResources(Protocol):
    """A controller that knows the resources of the machines that trials run on."""

    _resource_updater: ResourceUpdater


@runtime_checkable
class HasSearcher(Protocol):
    """A search algorithm that wraps a searcher, which learns from results."""

    searcher: object


@runtime_checkable
class PausableSearcher(Protocol):
    """A searcher that counts running trials, so it has to know which trials pause."""

    def on_pause(self, trial_id: str) -> None:
        """Handle the pause of a trial."""

    def on_unpause(self, trial_id: str) -> None:
        """Handle the end of a pause."""


WAITING = (Trial.PENDING, Trial.PAUSED)  # in the order in which they start


def waiting_trials(controller: TuneController) -> Iterator[Trial]:
    """Return the pending trials, then the paused ones, each in the order in which they were added."""
    listed = getattr(controller, "get_waiting_trials", None)  # which does not iterate over all trials
    if listed is not None:
        return iter(listed())
    return (trial for status in WAITING for trial in controller.get_trials() if trial.status == status)


def exploit(
    controller: TuneController,
    trial: Trial,
    source: Trial,
    config: dict[str, Any],
    checkpoint: Checkpoint | PendingCheckpoint | None,
) -> bool:
    """Continue a trial from a checkpoint of another one, with a new configuration.

    Args:
        controller: The loop that runs both.
        trial: The trial that changes.
        source: The trial that the checkpoint belongs to.
        config: The new configuration.
        checkpoint: The checkpoint, or a handle of it; None if there is none.

    Returns:
        Whether the trial has changed; False if there is no checkpoint.
    """
    if checkpoint is None:
        return False
    if isinstance(controller, Exploits):
        return controller.exploit(trial, source, config, checkpoint)
    if isinstance(checkpoint, PendingCheckpoint):
        result = checkpoint.resolve()
        checkpoint = None if result is None else result.checkpoint
        if checkpoint is None:
            return False
    if trial.status != Trial.PAUSED:
        controller.pause_trial(trial, should_checkpoint=False)
    trial.set_config(config)
    trial.checkpoint = checkpoint
    return True


def experiment_path_of(controller: TuneController) -> str | PathLike[str] | None:
    """Return the local folder of an experiment, or None if it has none."""
    return controller.experiment_path if isinstance(controller, HasExperimentPath) else None


def searcher_of(controller: TuneController) -> PausableSearcher | None:
    """Return the searcher of an experiment if it has to know which trials pause."""
    if isinstance(controller.search_alg, HasSearcher):
        searcher = controller.search_alg.searcher
        return searcher if isinstance(searcher, PausableSearcher) else None
    return None


def total_resources(controller: TuneController) -> Mapping[str, float]:
    """Return the CPUs and GPUs of the machines that trials run on.

    Raises:
        TypeError: The controller does not know them.
    """
    if not isinstance(controller, HasResources):
        raise TypeError(f"{type(controller).__name__} does not know how many CPUs and GPUs there are.")
    updater = controller._resource_updater
    return {"CPU": updater.get_num_cpus(), "GPU": updater.get_num_gpus()}
