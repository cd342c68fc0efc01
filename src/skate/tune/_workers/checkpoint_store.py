"""The checkpoints of a trial as its worker stores them. A worker imports this module with the first checkpoint."""

from __future__ import annotations

import pyarrow.fs as pafs

from skate.train import Checkpoint
from skate.train._storage import folders
from skate.tune._workers.messages import Assignment


class CheckpointStore:
    """Copies checkpoints to the folder of a trial, and numbers them.

    Args:
        assignment: The trial.
        filesystem: The filesystem of its folder; None for the local one.
    """

    def __init__(self, assignment: Assignment, filesystem: pafs.FileSystem | None) -> None:
        self._folder, self._filesystem = assignment.folder, filesystem or pafs.LocalFileSystem()
        self._next = assignment.next_checkpoint

    def store(self, checkpoint: Checkpoint) -> str:
        """Copy a checkpoint to the trial's folder, unless it is there; return its name."""
        if checkpoint.filesystem == self._filesystem and checkpoint.path.startswith(f"{self._folder}/"):
            return checkpoint.path.removeprefix(f"{self._folder}/")
        name = f"checkpoint_{self._next:06d}"
        target = f"{self._folder}/{name}"
        self._next += 1
        self._filesystem.create_dir(target, recursive=True)
        folders.copy(checkpoint.filesystem, checkpoint.path, self._filesystem, target)
        return name

    def open(self, path: str) -> Checkpoint:
        """Return the checkpoint at a path."""
        return Checkpoint(path, self._filesystem)
