"""Which run of which task a worker has begun, written where the node can read it when the worker is dead.

Results of short tasks travel together, so a worker that dies takes some with it. What it wrote here tells
them from the task that it died of, and from those that it had not begun.
"""

from __future__ import annotations

import mmap
import os

from skate._base.ids import TASK_SIZE

_SIZE = TASK_SIZE + 4


def run_id(task: bytes, attempt: int) -> bytes:
    """Return what tells a run of a task from an earlier one, which may have been on the same worker."""
    return task + attempt.to_bytes(4, "little")


def _path(shm: str, number: int) -> str:
    return os.path.join(shm, f"task-of-{number}")


class Progress:
    """A worker's end: one write to memory for each task."""

    def __init__(self, shm: str, number: int) -> None:
        self._path = _path(shm, number)
        self._memory: mmap.mmap | None = None

    def begin(self, task: bytes, attempt: int) -> None:
        """The worker is about to run a task."""
        if self._memory is None:
            self._memory = self._map()
        self._memory[:_SIZE] = run_id(task, attempt)

    def _map(self) -> mmap.mmap:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, _SIZE)
            return mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)


def last_begun(shm: str, number: int) -> bytes:
    """Return the last run that a dead worker has begun, b"" if there was none; forget it."""
    path = _path(shm, number)
    try:
        with open(path, "rb") as file:
            run = file.read()
        os.unlink(path)
    except FileNotFoundError:
        return b""
    return run
