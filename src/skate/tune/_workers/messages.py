"""The messages between the controller and the workers of trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from skate.train import Checkpoint


@dataclass(frozen=True)
class RemoteStorage:
    """The storage of an experiment that is not on a local disk.

    Attributes:
        filesystem: The filesystem.
        path: The experiment's folder there.
        staging: The experiment's folder on the machine of the driver.
    """

    filesystem: pafs.FileSystem
    path: str
    staging: str

    def path_of(self, folder: str) -> str:
        """Return the path in the storage of a folder below `staging`."""
        return self.path + folder.removeprefix(self.staging)


@dataclass(frozen=True)
class WorkerSettings:
    """The settings that all trials of an experiment share.

    Attributes:
        experiment_name: The name of the experiment.
        storage: Its storage; None for local disks, so that workers need not import PyArrow.
        checkpoint_frequency: Steps between two checkpoints of a class; 0 for none.
        checkpoint_at_end: Whether a class saves a checkpoint when it ends.
        reuse_trainable: Whether an instance of a class is kept for the next trial.
        restore_retries: The number of further attempts of a class to load a checkpoint before its trial fails.
        writes_params: Whether the folder of each trial has a file with its configuration.
        export_formats: The formats in which a class exports its model when a trial ends.
        log_to_file: The files in the folder of a trial for its output and its errors; None to write no files.
        changes_folder: Whether a worker in a separate process changes to the folder of its trial.
    """

    experiment_name: str
    storage: RemoteStorage | None = None
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
    """A trial for a worker. It is sent as a dictionary of plain values, which is faster to pickle.

    Attributes:
        trial_id: The id of the trial.
        trial_name: Its name.
        experiment_tag: A string that identifies the trial by its sampled values.
        config: Its configuration.
        folder: The trial's folder on the machine of the driver.
        checkpoint: The checkpoint to resume from; its path if it is in the storage of the experiment.
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
    checkpoint: str | Checkpoint | None = None
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
    """The outcome of a step, after which the trial waits for a decision: at most one report, and whether it ended."""

    report: Report | None
    done: bool
