"""The session of a worker: its ranks, its reports, and the checkpoint that it resumes from."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from skate.air import _arguments as arguments
from skate.train._config.validation_config import ValidationTaskConfig, validation_settings
from skate.train._failures.errors import SessionMisuseError
from skate.train._reports import positions
from skate.train._reports.messages import CheckpointStored, Message, Reported, Request
from skate.train._reports.metrics import check_metrics
from skate.train._storage import folders
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.run_folder import Storage
from skate.train._workers.report_arguments import (
    CheckpointUploadMode,
    check_checkpoint,
    check_upload,
    checkpoint_name,
)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a worker, and the numbers of workers."""

    world_rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0


@dataclass(frozen=True)
class TrialInfo:
    """The trial of Tune that a run belongs to.

    Attributes:
        trial_id: Its id.
        trial_name: Its name.
        trial_dir: Its folder.
        experiment_name: The name of its experiment.
        resources: Its resources, as Tune describes them.
        next_checkpoint: The number of its next checkpoint.
    """

    trial_id: str
    trial_name: str
    trial_dir: str
    experiment_name: str
    resources: Any = None
    next_checkpoint: int = 0


@dataclass(frozen=True)
class Assignment:
    """The inputs of a worker.

    Attributes:
        ranks: Its ranks.
        storage: The run's folder.
        first_index: The number of its first report.
        checkpoint: The checkpoint to resume from.
        shards: Its part of each dataset.
        metadata: The user's metadata for each checkpoint.
        validates: Whether checkpoints can be validated.
        trial: The trial that the run belongs to, if Tune runs it.
    """

    ranks: Ranks
    storage: Storage
    first_index: int = 0
    checkpoint: Checkpoint | None = None
    shards: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    validates: bool = False
    trial: TrialInfo | None = None


class Session:
    """The run, as the training function on one worker sees it.

    Args:
        assignment: The inputs of the worker.
        send: Sends a message to the controller.
        is_local: Whether the training function runs in the controller's process.
    """

    def __init__(
        self, assignment: Assignment, send: Callable[[Message], None], *, is_local: bool = False
    ) -> None:
        self.is_local = is_local
        self.assignment = assignment
        self.ranks = assignment.ranks
        self.storage = assignment.storage
        self.checkpoint = assignment.checkpoint
        self._send = send
        self._index = itertools.count(assignment.first_index)
        self._number = itertools.count()
        self._replies: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._uploads: ThreadPoolExecutor | None = None
        self._upload_error: Exception | None = None  # a mistake of the user's, found during an upload
        self.uploaded_bytes = 0

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None,
        name: str | None,
        mode: CheckpointUploadMode,
        deletes: bool | None,
        upload: Callable[[Checkpoint, str], Checkpoint] | None,
        validation: bool | ValidationTaskConfig,
    ) -> None:
        """Send metrics, and store a checkpoint."""
        self._raise_upload_error()
        metrics = check_metrics(metrics)
        check_upload(mode, deletes, upload)
        name = checkpoint_name(name)
        is_stored_by_caller = upload is not None or mode is CheckpointUploadMode.NO_UPLOAD
        check_checkpoint(checkpoint, is_written=not is_stored_by_caller)
        settings = self._validation_settings(validation, checkpoint)
        if deletes is None:
            deletes = mode._default_delete_local_checkpoint_after_upload()
        if checkpoint is not None and mode is CheckpointUploadMode.NO_UPLOAD:
            name = self._name_of(checkpoint, "the reported checkpoint is")
        elif checkpoint is not None and deletes:
            self._check_outside_run_folder(checkpoint)
        with self._lock:
            index = next(self._index)
            where, rows = (
                positions.current(self.assignment.shards),
                positions.rows_read(self.assignment.shards),
            )
            if checkpoint is None:
                self._send(Reported(metrics, positions=where, rows=rows))
                return
            name = name or self.storage.checkpoint_name(index)
            self._send(Reported(metrics, name, settings, where, rows))
        arguments = (index, checkpoint, name, mode, deletes, upload)
        if mode is CheckpointUploadMode.ASYNC:
            self._uploader().submit(self._store, *arguments)
        else:
            self._store(*arguments)
            self._raise_upload_error()

    def _validation_settings(
        self, validation: bool | ValidationTaskConfig, checkpoint: Checkpoint | None
    ) -> dict[str, Any] | None:
        """Return the settings of the checkpoint's validation; None without one."""
        settings = validation_settings(validation)
        if settings is not None and checkpoint is None:
            raise ValueError(
                "Validation requires a checkpoint to be provided. Give report() one, or leave out `validation`."
            )
        if settings is not None and not self.assignment.validates:
            raise ValueError(
                "`validation_config` was not set on the trainer, but a validation was requested. Give the trainer "
                "validation_config=ValidationConfig(fn=…)."
            )
        return settings

    def _check_outside_run_folder(self, checkpoint: Checkpoint) -> None:
        filesystem = self.storage.storage_filesystem
        if checkpoint.filesystem != filesystem:
            return
        run, folder = (
            folders.real_path(filesystem, path) for path in (self.storage.experiment_fs_path, checkpoint.path)
        )
        if f"{run}/".startswith(f"{folder}/"):
            raise ValueError(
                f"the experiment directory {run} is contained within the checkpoint {folder}, which would be deleted "
                "after its upload: write checkpoints to separate folders, or report with "
                "delete_local_checkpoint_after_upload=False"
            )

    def _name_of(self, checkpoint: Checkpoint, what_is: str) -> str:
        """Return the name, within the run's folder, of a checkpoint that the user has stored.

        A training function in the controller's process may report any folder of this machine: a validation that is a
        small run itself reports the checkpoint that it was given.

        Raises:
            ValueError: The checkpoint is outside the run's folder, where it would neither be deleted nor found again.
        """
        run = self.storage
        name = run.name_of(checkpoint.filesystem, checkpoint.path)
        if name is None and self.is_local and checkpoint.filesystem == run.storage_filesystem:
            name = (
                os.path.abspath(checkpoint.path) if folders.uses_local_paths(checkpoint.filesystem) else None
            )
        if name is None:
            raise ValueError(
                f"{what_is} outside the experiment directory: it is in {checkpoint.path} "
                f"({checkpoint.filesystem.type_name}), and the run's folder is {run.experiment_fs_path} "
                f"({run.storage_filesystem.type_name}). Write it to a folder below "
                "train.get_context().get_storage().experiment_fs_path, or report a small checkpoint that contains the "
                "path of the large one"
            )
        return name

    def _raise_upload_error(self) -> None:
        if self._upload_error is not None:
            raise self._upload_error

    def _store(
        self,
        index: int,
        checkpoint: Checkpoint,
        name: str,
        mode: CheckpointUploadMode,
        deletes: bool,
        upload: Callable[[Checkpoint, str], Any] | None,
    ) -> None:
        """Store this worker's part of a checkpoint. A failure loses the checkpoint, not the run."""
        try:
            if mode is CheckpointUploadMode.NO_UPLOAD:
                stored = checkpoint
            elif upload is not None:
                stored = upload(checkpoint, name)
                try:
                    name = self._name_of_uploaded(stored)
                except ValueError as error:
                    self._upload_error = error
                    raise
            else:
                self.storage.store(name, checkpoint.filesystem, checkpoint.path, self._count_uploaded)
                path = self.storage.build_checkpoint_path_from_name(name)
                stored = Checkpoint(path, self.storage.storage_filesystem)
            if self.assignment.metadata and self.ranks.world_rank == 0:
                stored.update_metadata(dict(self.assignment.metadata))
        except Exception as error:
            self._upload_error = self._upload_error or (
                _early_deletion(checkpoint, error) if upload is None else None
            )
            self._send(
                CheckpointStored(index, lost=f"rank {self.ranks.world_rank}: {type(error).__name__}: {error}")
            )
            return
        self.checkpoint = stored
        self._send(CheckpointStored(index, name=name))
        if deletes and folders.uses_local_paths(checkpoint.filesystem) and stored.path != checkpoint.path:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _name_of_uploaded(self, stored: Any) -> str:
        if not isinstance(stored, Checkpoint):
            raise ValueError(  # as in Ray
                "checkpoint_upload_fn must return a `ray.train.Checkpoint`, which is skate.train.Checkpoint, got "
                f"{arguments.shown(stored)}."
            )
        return self._name_of(stored, "checkpoint_upload_fn returned a checkpoint")

    def _count_uploaded(self, size: int) -> None:
        with self._lock:
            self.uploaded_bytes += size

    def _uploader(self) -> ThreadPoolExecutor:
        if self._uploads is None:
            # One thread: checkpoints arrive in order, and the training keeps its processors.
            self._uploads = ThreadPoolExecutor(1, thread_name_prefix="skate-checkpoints")
        return self._uploads

    def finish(self) -> None:
        """Wait until all checkpoints are stored."""
        if self._uploads is not None:
            self._uploads.shutdown(wait=True)
            self._uploads = None
        self._raise_upload_error()

    # ------------------------------------------------------------ requests

    def request(self, kind: str, value: Any = None) -> Any:
        """Send a request to the controller, and wait for the reply."""
        reply: Future[Any] = Future()
        number = next(self._number)
        self._replies[number] = reply
        self._send(Request(number, kind, value))
        return reply.result()

    def reply(self, number: int, value: Any) -> None:
        """Deliver the reply to a request."""
        self._replies.pop(number).set_result(value)


def _early_deletion(checkpoint: Checkpoint, error: Exception) -> Exception | None:
    """Return the error to raise if the upload failed because the user has deleted the checkpoint's folder."""
    if not isinstance(error, FileNotFoundError):
        return None
    try:
        check_checkpoint(checkpoint, is_written=True)
    except FileNotFoundError as mistake:
        return mistake
    return None


_current: Session | None = None
_creator: int | None = None


def set_current(session: Session | None) -> None:
    """Set the session of this process; None when it has ended."""
    global _current, _creator
    _current, _creator = session, os.getpid()


def current(call: str) -> Session:
    """Return the session of this process.

    Args:
        call: The call that needs it, for the error.

    Raises:
        SessionMisuseError: No training function runs in this process. It is a RuntimeError.
    """
    if _current is None or _creator != os.getpid():
        raise SessionMisuseError(f"{call} works only inside a training function that a trainer runs.")
    return _current


def is_active() -> bool:
    """Return whether this process runs a training function."""
    return _current is not None and _creator == os.getpid()
