"""What the controller and the workers of trials send each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

from skate.tune.execution.placement_groups import PlacementGroupFactory


@dataclass(frozen=True)
class Assignment:
    """A trial for a worker.

    Attributes:
        trial_id: The id of the trial.
        trial_name: Its name.
        experiment_name: The name of its experiment.
        config: Its configuration.
        folder: The trial's folder.
        filesystem: The filesystem of the folder.
        checkpoint: The path of the checkpoint to resume from.
        next_checkpoint: The number of the next checkpoint.
        iteration: The number of reports so far.
        time_total_s: The training time so far, in seconds.
        resources: The resources of the trial.
    """

    trial_id: str
    trial_name: str
    experiment_name: str
    config: dict[str, Any]
    folder: str
    filesystem: pafs.FileSystem
    checkpoint: str | None = None
    next_checkpoint: int = 0
    iteration: int = 0
    time_total_s: float = 0.0
    resources: PlacementGroupFactory | None = None


@dataclass(frozen=True)
class Report:
    """The metrics of one report, and the name of the checkpoint that came with it."""

    metrics: dict[str, Any]
    checkpoint: str | None = None


@dataclass(frozen=True)
class Step:
    """What a trial did until it needs a decision: at most one report, and whether it has ended."""

    report: Report | None
    done: bool
