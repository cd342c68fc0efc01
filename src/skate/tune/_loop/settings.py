"""The settings of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from skate._api import variables
from skate.tune._experiment.folder import ExperimentFolder
from skate.tune._experiment.recorder import Recorder
from skate.tune._workers.messages import Assignment, RemoteStorage, WorkerSettings
from skate.tune._workers.output import log_files
from skate.tune.callback import Callback
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.experiment import Trial
from skate.tune.impl.config import CheckpointConfig, FailureConfig, RunConfig
from skate.tune.result import TIME_TOTAL_S, TRAINING_ITERATION
from skate.tune.schedulers import TrialScheduler
from skate.tune.search import SearchAlgorithm
from skate.tune.search._placeholders import ObjectTable
from skate.tune.stopper import Stopper

_NO_LOGGERS = "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"  # the variable that keeps `params.json` from being written
_RESTORE_RETRIES = (
    "TUNE_RESTORE_RETRY_NUM"  # the variable with the number of further attempts to load a checkpoint
)


@dataclass(eq=False)
class ExperimentSettings:
    """The trainable of one experiment, and how its trials run and are stored.

    Attributes:
        trainable: A function, or a subclass of `Trainable`.
        resources_of: Returns the resources of a trial by its configuration.
        stopper: Ends trials, or the whole run.
        run: Storage, failures and checkpoints.
        objects: The objects of the search space.
        folder: The experiment's folder.
        recorder: Records the events.
        export_formats: The formats in which a trial exports its model at its end.
    """

    trainable: Any
    resources_of: Callable[[dict[str, Any]], PlacementGroupFactory]
    stopper: Stopper
    run: RunConfig
    objects: ObjectTable
    folder: ExperimentFolder
    recorder: Recorder
    export_formats: Sequence[str] = ()

    @property
    def checkpoint_config(self) -> CheckpointConfig:
        """Which checkpoints are saved and kept."""
        assert self.run.checkpoint_config is not None
        return self.run.checkpoint_config

    def worker_settings(self, settings: Settings) -> WorkerSettings:
        """Return the settings that the workers of the experiment share.

        Args:
            settings: The settings of the run.
        """
        folder = self.folder
        return WorkerSettings(
            folder.name,
            storage=None
            if folder.is_local
            else RemoteStorage(folder.filesystem, folder.path, str(folder.local)),
            checkpoint_frequency=self.checkpoint_config.checkpoint_frequency,
            checkpoint_at_end=bool(self.checkpoint_config.checkpoint_at_end),
            reuse_trainable=settings.reuse_trainables,
            restore_retries=int(os.environ.get(_RESTORE_RETRIES, 0)),
            export_formats=tuple(self.export_formats),
            log_to_file=log_files(self.run.log_to_file),
            writes_params=os.environ.get(_NO_LOGGERS) != "1",
            changes_folder=variables.flag("CHDIR_TO_TRIAL_DIR", True),
        )

    def assignment(self, trial: Trial) -> Assignment:
        """Return the assignment of a trial for a worker."""
        config = trial._stored_config
        checkpoint = trial.checkpoint
        is_here = checkpoint is not None and checkpoint.filesystem == self.folder.filesystem
        assert trial.local_path is not None
        return Assignment(
            trial.trial_id,
            str(trial),
            trial.experiment_tag,
            config,
            trial.local_path,
            checkpoint=checkpoint.path if checkpoint is not None and is_here else checkpoint,
            next_checkpoint=trial.next_checkpoint,
            iteration=trial.checkpoint_metrics.get(TRAINING_ITERATION, 0),
            time_total_s=trial.checkpoint_metrics.get(TIME_TOTAL_S, 0.0),
            objects=None if trial.objects is None else trial.objects.references(config),
        )

    @property
    def failure_config(self) -> FailureConfig:
        """How failed trials are handled."""
        assert self.run.failure_config is not None
        return self.run.failure_config


@dataclass
class Settings:
    """One experiment, or several whose trials share the search and the scheduler.

    Attributes:
        experiments: The experiments. A trial has the index of its experiment. The first one stores the search state.
        search: Creates the trials.
        scheduler: Decides about them.
        metric: The metric to optimize.
        max_concurrent: The maximum number of concurrent trials; None for no limit.
        reuse_trainables: Whether an instance of a class is kept for the next trial.
        reuse_workers: Whether a worker is kept for the next trial.
        callbacks: Receive the events.
    """

    experiments: Sequence[ExperimentSettings]
    search: SearchAlgorithm
    scheduler: TrialScheduler
    metric: str | None = None
    max_concurrent: int | None = None
    reuse_trainables: bool = False
    reuse_workers: bool = True
    callbacks: Sequence[Callback] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """Return the state of the search, the scheduler and the callbacks, which a restored experiment continues."""
        return {
            "search": self.search,
            "scheduler": self.scheduler,
            "callbacks": [callback.get_state() for callback in self.callbacks],
        }
