"""What the controller and the workers of trials send each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.fs as pafs


@dataclass(frozen=True)
class WorkerSettings:
    """What all trials of an experiment have in common.

    Attributes:
        experiment_name: The name of the experiment.
        filesystem: The filesystem of its folder; None for the local one, so that workers need not import PyArrow.
        checkpoint_frequency: Steps between two checkpoints of a class; 0 for none.
        checkpoint_at_end: Whether a class saves a checkpoint when it ends.
        reuse_trainable: Whether an instance of a class is kept for the next trial.
        restore_retries: How often a class tries again to load a checkpoint before its trial fails.
        writes_params: Whether the folder of each trial has a file with its configuration.
        export_formats: The formats in which a class exports its model when a trial ends.
        log_to_file: The files in the folder of a trial for its output and its errors; None to write no files.
        changes_folder: Whether a worker in a process of its own works in the folder of its trial.
    """

    experiment_name: str
    filesystem: pafs.FileSystem | None = None
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    reuse_trainable: bool = False
    restore_retries: int = 0
    writes_params: bool = True
    export_formats: tuple[str, ...] = ()
    log_to_file: tuple[str | None, str | None] | None = None
    changes_folder: bool = True


@dataclass(frozen=True)
class Assignment:
    """A trial for a worker. It travels as a dictionary of plain values, which are faster to pickle.

    Attributes:
        trial_id: The id of the trial.
        trial_name: Its name.
        experiment_tag: A text that names it by its sampled values.
        config: Its configuration.
        folder: The trial's folder.
        checkpoint: The path of the checkpoint to resume from.
        next_checkpoint: The number of the next checkpoint.
        iteration: The number of reports so far.
        time_total_s: The training time so far, in seconds.
        objects: The objects that the placeholders of `config` stand for, as `ObjectTable.references` returns them.
    """

    trial_id: str
    trial_name: str
    experiment_tag: str
    config: dict[str, Any]
    folder: str
    checkpoint: str | None = None
    next_checkpoint: int = 0
    iteration: int = 0
    time_total_s: float = 0.0
    objects: dict[str, Any] | None = None

    def to_fields(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dict(vars(self))


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
