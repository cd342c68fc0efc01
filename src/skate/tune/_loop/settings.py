"""The settings of a run, in one place for the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from skate.tune._experiment.folder import ExperimentFolder
from skate.tune._experiment.recorder import Recorder
from skate.tune.callback import Callback
from skate.tune.execution.placement_groups import PlacementGroupFactory
from skate.tune.impl.config import CheckpointConfig, FailureConfig, RunConfig
from skate.tune.schedulers import TrialScheduler
from skate.tune.search import SearchAlgorithm
from skate.tune.search._placeholders import ObjectTable
from skate.tune.stopper import Stopper


@dataclass(eq=False)
class ExperimentSettings:
    """What the trials of one experiment run, and where they are stored.

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

    @property
    def failure_config(self) -> FailureConfig:
        """How failed trials are handled."""
        assert self.run.failure_config is not None
        return self.run.failure_config


@dataclass
class Settings:
    """What a run consists of: one experiment, or several whose trials share the search and the scheduler.

    Attributes:
        experiments: The experiments; a trial has the index of its own. The first one stores the state of the search.
        search: Creates the trials.
        scheduler: Decides about them.
        metric: The metric to optimize.
        max_concurrent: How many trials run at a time at most; None for no limit.
        reuse_trainables: Whether an instance of a class is kept for the next trial.
        callbacks: Receive the events.
    """

    experiments: Sequence[ExperimentSettings]
    search: SearchAlgorithm
    scheduler: TrialScheduler
    metric: str | None = None
    max_concurrent: int | None = None
    reuse_trainables: bool = False
    callbacks: Sequence[Callback] = field(default_factory=list)
