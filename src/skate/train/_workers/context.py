"""What a training function asks and tells."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skate.air import _arguments as arguments
from skate.train._config.preemption import PreemptionInfo
from skate.train._config.validation import ValidationTaskConfig
from skate.train._reports.messages import CHECKPOINTS
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers import sessions
from skate.train._workers.arguments import CheckpointUploadMode

if TYPE_CHECKING:
    from skate.data import DataIterator
    from skate.train._storage.run_folder import Storage

TRAIN_DATASET_KEY = "train"


class TrainContext:
    """Where a worker stands in its run; `get_context()` returns it."""

    def __init__(self, session: sessions.Session) -> None:
        self._session = session

    def get_world_size(self) -> int:
        """Return how many workers train."""
        return self._session.place.world_size

    def get_world_rank(self) -> int:
        """Return this worker's number among all."""
        return self._session.place.world_rank

    def get_local_rank(self) -> int:
        """Return this worker's number among those of its node."""
        return self._session.place.local_rank

    def get_local_world_size(self) -> int:
        """Return how many workers train on this node."""
        return self._session.place.local_world_size

    def get_node_rank(self) -> int:
        """Return the number of this worker's node."""
        return self._session.place.node_rank

    def get_experiment_name(self) -> str:
        """Return the name of the run."""
        return self._session.storage.experiment_dir_name

    def get_trial_name(self) -> str:
        """Return the name of the trial, which is the run's where nothing is tuned."""
        return self._session.storage.experiment_dir_name

    def get_trial_id(self) -> str:
        """Return the id of the trial, which is the run's name where nothing is tuned."""
        return self._session.storage.experiment_dir_name

    def get_trial_dir(self) -> str:
        """Return the run's folder."""
        return self._session.storage.experiment_fs_path

    def get_trial_resources(self) -> dict[str, float]:
        """Return what this worker has been given."""
        import skate

        return dict(skate.get_runtime_context().get_assigned_resources())

    def get_storage(self) -> Storage:
        """Return where the run is kept."""
        return self._session.storage

    def get_metadata(self) -> dict[str, Any]:
        """Return what the trainer was given as `metadata`."""
        return dict(self._session.assignment.metadata)


class LocalTrainContext(TrainContext):
    """The context of a training function that runs in the process that called `fit`, without workers."""


def get_context() -> TrainContext:
    """Return where this worker stands in its run.

    Raises:
        RuntimeError: This is not a training function.
    """
    session = sessions.current("get_context()")
    return LocalTrainContext(session) if session.is_local else TrainContext(session)


def get_preemption_info() -> PreemptionInfo | None:
    """Return which nodes are about to be taken away: None, as no node announces its end here.

    In Ray it is a barrier of all workers; here it waits for nobody.

    Raises:
        RuntimeError: This is not a training function.
    """
    sessions.current("get_preemption_info()")
    return None


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint to go on from: the latest one that this run has; None at the beginning."""
    return sessions.current("get_checkpoint()").checkpoint


def get_dataset_shard(dataset_name: str | None = None) -> DataIterator:
    """Return this worker's part of a dataset.

    Args:
        dataset_name: Its name in the trainer's `datasets`; "train" if not given.

    Raises:
        KeyError: There is no such dataset; says which there are.
    """
    shards = sessions.current("get_dataset_shard()").assignment.shards
    name = (
        arguments.instance("dataset_name", dataset_name, str, "a string", optional=True) or TRAIN_DATASET_KEY
    )
    if name not in shards:
        known = (
            f"its `datasets` are {', '.join(map(repr, shards))}" if shards else "it was given no `datasets`"
        )
        raise KeyError(f"the trainer has no dataset {name!r}: {known}.")
    found: DataIterator = shards[name]
    return found


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Tell metrics, and hand over a checkpoint.

    Any worker may report at any time, and none waits for the others. The n-th reports of all workers belong together:
    if several give a checkpoint, their files together are the checkpoint.

    Args:
        metrics: Names and values.
        checkpoint: A folder with the state to go on from. It may be deleted as soon as this returns, unless it is
            uploaded asynchronously.
        checkpoint_dir_name: The name of the checkpoint in the run's folder; if it is not given, or empty, the number of
            the report.
        checkpoint_upload_mode: SYNC: return when the checkpoint is stored. ASYNC: store it while training goes on.
            NO_UPLOAD: it is in the run's folder already, and stays where it is.
        delete_local_checkpoint_after_upload: Delete the folder when it is stored; done by default when it is uploaded
            asynchronously.
        checkpoint_upload_fn: Stores the checkpoint in place of Skate: given it and its name, returns the stored one,
            which has to be in the run's folder.
        validation: Whether to run the trainer's validation on this checkpoint, or with which settings.

    Raises:
        RuntimeError: This is not a training function.
        TypeError: A metric cannot be serialised, the checkpoint is no Checkpoint, or another argument has a wrong type.
        FileNotFoundError: The checkpoint's folder does not exist. If it was deleted during an asynchronous upload, the
            next call raises this error, or the end of the training function.
        NotADirectoryError: The checkpoint is a file.
        PermissionError: The checkpoint cannot be read.
        ValueError: A validation is asked for, and there is no checkpoint, or nothing that validates; or a checkpoint
            that was stored by others than Skate is not in the run's folder; or `checkpoint_dir_name` leads out of it.
    """
    sessions.current("report()").report(
        metrics,
        checkpoint,
        checkpoint_dir_name,
        checkpoint_upload_mode,
        delete_local_checkpoint_after_upload,
        checkpoint_upload_fn,
        validation,
    )


class ReportedCheckpointStatus(enum.Enum):
    """How far a reported checkpoint is."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


class CheckpointConsistencyMode(enum.Enum):
    """What `get_all_reported_checkpoints` waits for."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint that is stored, and what was reported with it."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Return all checkpoints of the run that are kept, oldest first.

    It waits until the reports that this worker has made are complete: the other workers have made theirs, and all
    parts of the checkpoints are stored. A worker that does not report is waited for once, for ten seconds.

    Args:
        consistency_mode: VALIDATED: wait for the validations too. COMMITTED: do not.
        timeout_s: Seconds after which what is there is returned; never if None.
    """
    session = sessions.current("get_all_reported_checkpoints()")
    must = " or ".join(str(each) for each in CheckpointConsistencyMode)
    arguments.instance("consistency_mode", consistency_mode, CheckpointConsistencyMode, must)
    arguments.real("timeout_s", timeout_s, unit="seconds", optional=True)
    validated = consistency_mode is CheckpointConsistencyMode.VALIDATED
    found = session.ask(CHECKPOINTS, (validated, timeout_s))
    return [
        ReportedCheckpoint(checkpoint, metrics, ReportedCheckpointStatus(status))
        for checkpoint, metrics, status in found
    ]
