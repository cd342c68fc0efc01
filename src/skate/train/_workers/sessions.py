"""A worker's side of a run: its rank, its reports, the checkpoint it goes on from."""

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
from skate.train._config.validation import ValidationTaskConfig, as_wanted
from skate.train._failures.errors import SessionMisuseError
from skate.train._reports import positions
from skate.train._reports.messages import Announced, Asked, Message, Stored
from skate.train._reports.metrics import checked
from skate.train._storage import folders
from skate.train._storage.checkpoint import Checkpoint
from skate.train._storage.run_folder import Storage
from skate.train._workers.arguments import (
    CheckpointUploadMode,
    check_checkpoint,
    check_upload,
    checkpoint_name,
)


@dataclass(frozen=True)
class Place:
    """Where a worker stands among the others."""

    world_rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0


@dataclass(frozen=True)
class Assignment:
    """What a worker is told before it trains.

    Attributes:
        place: Its ranks.
        storage: The run's folder.
        first_index: The number of its first report.
        checkpoint: What it goes on from.
        shards: Its part of each dataset.
        metadata: What to note on each checkpoint.
        validates: Whether checkpoints can be validated.
    """

    place: Place
    storage: Storage
    first_index: int = 0
    checkpoint: Checkpoint | None = None
    shards: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    validates: bool = False


class Session:
    """The run as the training function on one worker sees it.

    Args:
        assignment: What the worker was told.
        tell: Takes messages for whoever drives the run.
        is_local: Whether this is the process that drives the run, and there are no workers.
    """

    def __init__(
        self, assignment: Assignment, tell: Callable[[Message], None], *, is_local: bool = False
    ) -> None:
        self.is_local = is_local
        self.assignment = assignment
        self.place = assignment.place
        self.storage = assignment.storage
        self.checkpoint = assignment.checkpoint
        self._tell = tell
        self._index = itertools.count(assignment.first_index)
        self._number = itertools.count()
        self._answers: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._uploads: ThreadPoolExecutor | None = None
        self._mistake: Exception | None = None  # of the user's, found while a checkpoint was uploaded
        self.moved = 0  # bytes of checkpoints that have been stored

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
        """Tell metrics, and store a checkpoint."""
        self._raise_mistake()
        metrics = checked(metrics)
        check_upload(mode, deletes, upload)
        name = checkpoint_name(name)
        check_checkpoint(checkpoint, is_written=upload is None)
        wanted = self._wanted(validation, checkpoint)
        if deletes is None:
            deletes = mode._default_delete_local_checkpoint_after_upload()
        if checkpoint is not None and mode is CheckpointUploadMode.NO_UPLOAD:
            name = self._name_of(checkpoint, "report() was given with CheckpointUploadMode.NO_UPLOAD")
        elif checkpoint is not None and deletes:
            self._keep_from_deleting_the_run(checkpoint)
        with self._lock:
            index = next(self._index)
            where, rows = positions.now(self.assignment.shards), positions.rows(self.assignment.shards)
            if checkpoint is None:
                self._tell(Announced(metrics, positions=where, rows=rows))
                return
            name = name or f"checkpoint_{index:06d}"
            self._tell(Announced(metrics, name, wanted, where, rows))
        arguments = (index, checkpoint, name, mode, deletes, upload)
        if mode is CheckpointUploadMode.ASYNC:
            self._uploader().submit(self._store, *arguments)
        else:
            self._store(*arguments)
            self._raise_mistake()

    def _wanted(
        self, validation: bool | ValidationTaskConfig, checkpoint: Checkpoint | None
    ) -> dict[str, Any] | None:
        """Return how to validate a checkpoint, if that is asked for."""
        wanted = as_wanted(validation)
        if wanted is not None and checkpoint is None:
            raise ValueError(
                "Validation requires a checkpoint to be provided. Give report() one, or leave out `validation`."
            )
        if wanted is not None and not self.assignment.validates:
            raise ValueError(
                "`validation_config` was not set on the trainer, but a validation was requested. Give the trainer "
                "validation_config=ValidationConfig(fn=…)."
            )
        return wanted

    def _keep_from_deleting_the_run(self, checkpoint: Checkpoint) -> None:
        run, folder = self.storage.experiment_fs_path, checkpoint.path.rstrip("/")
        if checkpoint.filesystem == self.storage.storage_filesystem and f"{run}/".startswith(f"{folder}/"):
            raise ValueError(
                f"the checkpoint {folder} would be deleted after its upload, and the run's folder {run} is in it: "
                "write checkpoints to folders of their own, or report with delete_local_checkpoint_after_upload=False"
            )

    def _name_of(self, checkpoint: Checkpoint, whose: str) -> str:
        """Return where in the run's folder a checkpoint is that the user has stored.

        Where the run is in the driver it may be anywhere on this machine: a validation that is a small run itself
        reports the checkpoint that it was given.

        Raises:
            ValueError: It is elsewhere, where it would neither be deleted nor found again with the run.
        """
        run = self.storage
        name = run.name_of(checkpoint.filesystem, checkpoint.path)
        if name is None and self.is_local and checkpoint.filesystem == run.storage_filesystem:
            name = os.path.abspath(checkpoint.path) if folders.is_here(checkpoint.filesystem) else None
        if name is None:
            raise ValueError(
                f"the checkpoint that {whose} is in {checkpoint.path} ({checkpoint.filesystem.type_name}), and the "
                f"run's folder is {run.experiment_fs_path} ({run.storage_filesystem.type_name}): write it to a folder "
                "below train.get_context().get_storage().experiment_fs_path, or report a small checkpoint that tells "
                "where the large one is"
            )
        return name

    def _raise_mistake(self) -> None:
        if self._mistake is not None:
            raise self._mistake

    def _store(
        self,
        index: int,
        checkpoint: Checkpoint,
        name: str,
        mode: CheckpointUploadMode,
        deletes: bool,
        upload: Callable[[Checkpoint, str], Any] | None,
    ) -> None:
        """Bring this worker's part of a checkpoint to the storage. What fails loses the checkpoint, not the run."""
        try:
            if mode is CheckpointUploadMode.NO_UPLOAD:
                stored = checkpoint
            elif upload is not None:
                stored = upload(checkpoint, name)
                try:
                    name = self._name_of_uploaded(stored)
                except (TypeError, ValueError) as error:
                    self._mistake = error
                    raise
            else:
                self.storage.store(name, checkpoint.filesystem, checkpoint.path, self._has_moved)
                stored = Checkpoint(self.storage.path_of(name), self.storage.storage_filesystem)
            if self.assignment.metadata and self.place.world_rank == 0:
                stored.update_metadata(dict(self.assignment.metadata))
        except Exception as error:
            self._mistake = self._mistake or (
                _deleted_too_early(checkpoint, error) if upload is None else None
            )
            self._tell(Stored(index, lost=f"rank {self.place.world_rank}: {type(error).__name__}: {error}"))
            return
        self.checkpoint = stored
        self._tell(Stored(index, name=name))
        if deletes and folders.is_here(checkpoint.filesystem) and stored.path != checkpoint.path:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _name_of_uploaded(self, stored: Any) -> str:
        if not isinstance(stored, Checkpoint):
            raise TypeError(
                "checkpoint_upload_fn must return a `ray.train.Checkpoint`, the one that it has stored, got "
                f"{arguments.shown(stored)}."
            )
        return self._name_of(stored, "checkpoint_upload_fn has returned")

    def _has_moved(self, size: int) -> None:
        with self._lock:
            self.moved += size

    def _uploader(self) -> ThreadPoolExecutor:
        if self._uploads is None:
            # One at a time: checkpoints arrive in their order, and the training keeps its processors.
            self._uploads = ThreadPoolExecutor(1, thread_name_prefix="skate-checkpoints")
        return self._uploads

    def finish(self) -> None:
        """Wait until all checkpoints are stored."""
        if self._uploads is not None:
            self._uploads.shutdown(wait=True)
            self._uploads = None
        self._raise_mistake()

    # ------------------------------------------------------------ questions

    def ask(self, question: str, value: Any = None) -> Any:
        """Ask whoever drives the run, and wait for the answer."""
        answer: Future[Any] = Future()
        number = next(self._number)
        self._answers[number] = answer
        self._tell(Asked(number, question, value))
        return answer.result()

    def answer(self, number: int, value: Any) -> None:
        """Hand over the answer to a question."""
        self._answers.pop(number).set_result(value)


def _deleted_too_early(checkpoint: Checkpoint, error: Exception) -> Exception | None:
    """Return the user's mistake if storing a checkpoint failed because its folder is not there any more."""
    if not isinstance(error, FileNotFoundError):
        return None
    try:
        check_checkpoint(checkpoint, is_written=True)
    except FileNotFoundError as mistake:
        return mistake
    return None


_current: Session | None = None
_creator: int | None = None


def enter(session: Session | None) -> None:
    """Make this the session of the process; None when it has ended."""
    global _current, _creator
    _current, _creator = session, os.getpid()


def current(call: str) -> Session:
    """Return the session of this process.

    Args:
        call: What needs it, for the error.

    Raises:
        SessionMisuseError: There is none: this is not a training function. It is a RuntimeError.
    """
    if _current is None or _creator != os.getpid():
        raise SessionMisuseError(f"{call} works only inside of a training function that a trainer runs.")
    return _current


def is_active() -> bool:
    """Tell whether this process runs a training function."""
    return _current is not None and _creator == os.getpid()
