"""A worker's side of a run: its rank, its reports, the checkpoint it goes on from."""

from __future__ import annotations

import enum
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from skate.air import _filesystems as filesystems
from skate.train._checkpoint import Checkpoint
from skate.train._messages import Announced, Asked, Message, Stored
from skate.train._metrics import checked
from skate.train._storage import Storage


class CheckpointUploadMode(enum.Enum):
    """When a reported checkpoint is brought to the run's storage."""

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def _default_delete_local_checkpoint_after_upload(self) -> bool:
        return self is CheckpointUploadMode.ASYNC


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
    """

    place: Place
    storage: Storage
    first_index: int = 0
    checkpoint: Checkpoint | None = None
    shards: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Session:
    """The run as the training function on one worker sees it.

    Args:
        assignment: What the worker was told.
        tell: Takes messages for whoever drives the run.
    """

    def __init__(self, assignment: Assignment, tell: Callable[[Message], None]) -> None:
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

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None,
        name: str | None,
        mode: CheckpointUploadMode,
        deletes: bool | None,
        upload: Callable[[Checkpoint, str], Checkpoint] | None,
        validation: Any,
    ) -> None:
        """Tell metrics, and store a checkpoint."""
        metrics = checked(metrics)
        with self._lock:
            index = next(self._index)
            if checkpoint is None:
                self._tell(Announced(metrics))
                return
            name = name or f"checkpoint_{index:06d}"
            path = checkpoint.path if mode is CheckpointUploadMode.NO_UPLOAD else None
            self._tell(Announced(metrics, name, path, validation))
        if deletes is None:
            deletes = mode._default_delete_local_checkpoint_after_upload()
        arguments = (index, checkpoint, name, mode, deletes, upload)
        if mode is CheckpointUploadMode.ASYNC:
            self._uploader().submit(self._store, *arguments)
        else:
            self._store(*arguments)

    def _store(
        self,
        index: int,
        checkpoint: Checkpoint,
        name: str,
        mode: CheckpointUploadMode,
        deletes: bool,
        upload: Callable[[Checkpoint, str], Checkpoint] | None,
    ) -> None:
        """Bring this worker's part of a checkpoint to the storage. What fails loses the checkpoint, not the run."""
        try:
            if mode is CheckpointUploadMode.NO_UPLOAD:
                stored = checkpoint
            elif upload is not None:
                stored = upload(checkpoint, name)
            else:
                self.storage.store(name, checkpoint.filesystem, checkpoint.path)
                stored = Checkpoint(self.storage.path_of(name), self.storage.storage_filesystem)
            if self.assignment.metadata and self.place.world_rank == 0:
                stored.update_metadata(dict(self.assignment.metadata))
        except Exception as error:
            self._tell(Stored(index, lost=f"rank {self.place.world_rank}: {type(error).__name__}: {error}"))
            return
        self.checkpoint = stored
        self._tell(Stored(index))
        if deletes and filesystems.is_local(checkpoint.filesystem) and stored.path != checkpoint.path:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _uploader(self) -> ThreadPoolExecutor:
        if self._uploads is None:
            # One at a time: checkpoints arrive in their order, and the training keeps its processors.
            self._uploads = ThreadPoolExecutor(1, thread_name_prefix="skate-checkpoints")
        return self._uploads

    def finish(self) -> None:
        """Wait until all checkpoints are stored."""
        if self._uploads is not None:
            self._uploads.shutdown(wait=True)

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
        RuntimeError: There is none: this is not a training function.
    """
    if _current is None or _creator != os.getpid():
        raise RuntimeError(f"{call} works only inside of a training function that a trainer runs")
    return _current


def is_active() -> bool:
    """Tell whether this process runs a training function."""
    return _current is not None and _creator == os.getpid()
