"""Store the checkpoints of a trial in its worker, which imports this module with the first checkpoint."""

from __future__ import annotations

import pyarrow.fs as pafs

from skate.train import Checkpoint
from skate.train._storage import folders
from skate.tune._workers.messages import Assignment, RemoteStorage


class CheckpointStore:
    """Copies checkpoints to the folder of a trial, and numbers them.

    Args:
        assignment: The trial.
        storage: The storage of the experiment; None for local disks.
    """

    def __init__(self, assignment: Assignment, storage: RemoteStorage | None) -> None:
        if storage is None:
            self._folder, self._filesystem = assignment.folder, pafs.LocalFileSystem()
        else:
            self._folder, self._filesystem = storage.path_of(assignment.folder), storage.filesystem
        self._first = self._next = assignment.next_checkpoint

    def store(self, checkpoint: Checkpoint) -> str:
        """Copy a checkpoint to the trial's folder, unless it is already there, and return its name."""
        if checkpoint.filesystem == self._filesystem and checkpoint.path.startswith(f"{self._folder}/"):
            return checkpoint.path.removeprefix(f"{self._folder}/")
        name = f"checkpoint_{self._next:06d}"
        target = f"{self._folder}/{name}"
        if self._next == self._first:  # a worker that was killed may have left a part of it
            folders.delete(self._filesystem, target)
        self._next += 1
        self._filesystem.create_dir(target, recursive=True)
        folders.copy(checkpoint.filesystem, checkpoint.path, self._filesystem, target)
        return name

    def path_of(self, name: str) -> str:
        """Return the path of a checkpoint of the trial."""
        return f"{self._folder}/{name}"

    def open(self, checkpoint: str | Checkpoint) -> Checkpoint:
        """Return a checkpoint, which may be given as a path in the storage of the experiment."""
        if isinstance(checkpoint, Checkpoint):
            return checkpoint
        return Checkpoint(checkpoint, self._filesystem)
