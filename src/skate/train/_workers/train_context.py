"""The functions and the context of training functions."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skate.air import _arguments as arguments
from skate.train._config.preemption import PreemptionInfo
from skate.train._config.validation_config import ValidationTaskConfig
from skate.train._reports.messages import CHECKPOINTS
from skate.train._storage.checkpoint import Checkpoint
from skate.train._workers import sessions
from skate.train._workers.report_arguments import CheckpointUploadMode

if TYPE_CHECKING:
    from skate.data import DataIterator
    from skate.train._storage.run_folder import Storage

TRAIN_DATASET_KEY = "train"


class TrainContext:
    """The ranks of a worker, and properties of its run; `get_context()` returns it."""

    def __init__(self, session: sessions.Session) -> None:
        self._session = session

    def get_world_size(self) -> int:
        """Return the number of workers."""
        return self._session.ranks.world_size

    def get_world_rank(self) -> int:
        """Return the rank of this worker among all workers."""
        return self._session.ranks.world_rank

    def get_local_rank(self) -> int:
        """Return the rank of this worker among the workers of its node."""
        return self._session.ranks.local_rank

    def get_local_world_size(self) -> int:
        """Return the number of workers on this node."""
        return self._session.ranks.local_world_size

    def get_node_rank(self) -> int:
        """Return the rank of this worker's node."""
        return self._session.ranks.node_rank

    def get_experiment_name(self) -> str:
        """Return the name of the run or, in a trial, of the experiment."""
        trial = self._session.assignment.trial
        return self._session.storage.experiment_dir_name if trial is None else trial.experiment_name

    def get_trial_name(self) -> str:
        """Return the name of the trial; without one, the name of the run."""
        trial = self._session.assignment.trial
        return self._session.storage.experiment_dir_name if trial is None else trial.trial_name

    def get_trial_id(self) -> str:
        """Return the id of the trial; without one, the name of the run."""
        trial = self._session.assignment.trial
        return self._session.storage.experiment_dir_name if trial is None else trial.trial_id

    def get_trial_dir(self) -> str:
        """Return the trial's folder; without one, the run's folder."""
        trial = self._session.assignment.trial
        return self._session.storage.experiment_fs_path if trial is None else trial.trial_dir

    def get_trial_resources(self) -> dict[str, float]:
        """Return the resources of this worker."""
        import skate

        return dict(skate.get_runtime_context().get_assigned_resources())

    def get_storage(self) -> Storage:
        """Return the storage of the run."""
        return self._session.storage

    def get_metadata(self) -> dict[str, Any]:
        """Return the trainer's `metadata`."""
        return dict(self._session.assignment.metadata)


class LocalTrainContext(TrainContext):
    """The context of a training function that runs in the process that called `fit`, without workers."""


def get_context() -> TrainContext:
    """Return the context of this worker: its ranks, and properties of its run.

    Raises:
        RuntimeError: No training function runs in this process.
    """
    session = sessions.current("get_context()")
    return LocalTrainContext(session) if session.is_local else TrainContext(session)


def get_preemption_info() -> PreemptionInfo | None:
    """Return the nodes that are about to be preempted: always None, since Skate's nodes are not preempted.

    In Ray this call is a barrier for all workers; here it returns at once.

    Raises:
        RuntimeError: No training function runs in this process.
    """
    sessions.current("get_preemption_info()")
    return None


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint to resume from, which is the latest one of the run; None at the beginning."""
    return sessions.current("get_checkpoint()").checkpoint


def get_dataset_shard(dataset_name: str | None = None) -> DataIterator:
    """Return this worker's part of a dataset.

    Args:
        dataset_name: Its name in the trainer's `datasets`; "train" if not given.

    Raises:
        KeyError: The trainer has no such dataset; the error names the existing ones.
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
    """Report metrics and, optionally, a checkpoint.

    Workers report independently, without waiting for each other. The n-th reports of all workers form one report: if
    several workers report a checkpoint, the checkpoint consists of all their files.

    Args:
        metrics: The metrics, by name.
        checkpoint: A folder with the state to resume from. It may be deleted as soon as this function returns, unless
            it is uploaded asynchronously.
        checkpoint_dir_name: The name of the checkpoint in the run's folder; the number of the report by default.
        checkpoint_upload_mode: SYNC returns when the checkpoint is stored. ASYNC stores it while training continues.
            NO_UPLOAD leaves a checkpoint in place that is in the run's folder already.
        delete_local_checkpoint_after_upload: Whether to delete the folder once it is stored; by default only for an
            asynchronous upload.
        checkpoint_upload_fn: Stores the checkpoint instead of Skate. It takes the checkpoint and its name, and returns
            the stored checkpoint, which must be in the run's folder.
        validation: Whether to run the trainer's validation on this checkpoint, or its settings.

    Raises:
        RuntimeError: No training function runs in this process.
        TypeError: A metric cannot be serialized, the checkpoint is no Checkpoint, or another argument has a wrong type.
        FileNotFoundError: The checkpoint's folder does not exist. If it was deleted during an asynchronous upload, the
            next call, or the end of the training function, raises this error.
        NotADirectoryError: The checkpoint is a file.
        PermissionError: The checkpoint cannot be read.
        ValueError: A validation is requested without a checkpoint or without a `validation_config`, a checkpoint that
            Skate did not store is outside the run's folder, or `checkpoint_dir_name` leads out of that folder.
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
    """The status of a reported checkpoint."""

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
    """A stored checkpoint, with its metrics and its status."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Return all kept checkpoints of the run, oldest first.

    The call waits until the reports of this worker are complete: the other workers have made theirs, and all parts of
    the checkpoints are stored. It waits for a worker that does not report once, for ten seconds.

    Args:
        consistency_mode: VALIDATED waits for the validations too; COMMITTED does not.
        timeout_s: Seconds after which to return the existing checkpoints; None for no limit.
    """
    session = sessions.current("get_all_reported_checkpoints()")
    must = " or ".join(str(each) for each in CheckpointConsistencyMode)
    arguments.instance("consistency_mode", consistency_mode, CheckpointConsistencyMode, must)
    arguments.real("timeout_s", timeout_s, unit="seconds", optional=True)
    validated = consistency_mode is CheckpointConsistencyMode.VALIDATED
    found = session.request(CHECKPOINTS, (validated, timeout_s))
    return [
        ReportedCheckpoint(checkpoint, metrics, ReportedCheckpointStatus(status))
        for checkpoint, metrics, status in found
    ]
