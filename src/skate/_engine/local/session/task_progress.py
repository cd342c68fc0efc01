"""Which run of which task a worker has begun, written where the node can read it when the worker is dead.

Results of short tasks travel together, so a worker that dies takes some with it. What it wrote here tells
them from the task that it died of, and from those that it had not begun.
"""

from __future__ import annotations

import mmap
import os

from skate._base.ids import TASK_SIZE
from skate._engine.local.session.folders import Session
from skate._engine.local.session.shared_memory import is_full, map_file

_SIZE = TASK_SIZE + 4


def run_id(task: bytes, attempt: int) -> bytes:
    """Return what tells a run of a task from an earlier one, which may have been on the same worker."""
    return task + attempt.to_bytes(4, "little")


def _paths(session: Session, number: int) -> list[str]:
    """Return where a worker's file may be: in shared memory, or on disk if that is full."""
    name = f"task-of-{number}"
    return [os.path.join(session.shm, name), os.path.join(session.folder, name)]


class TaskProgress:
    """A worker's end: one write to memory for each task."""

    def __init__(self, session: Session, number: int) -> None:
        self._paths = _paths(session, number)
        self._memory: mmap.mmap | None = None

    def begin(self, task: bytes, attempt: int) -> None:
        """The worker is about to run a task."""
        if self._memory is None:
            self._memory = self._map()
        self._memory[:_SIZE] = run_id(task, attempt)

    def _map(self) -> mmap.mmap:
        for path in self._paths:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # A page that is not reserved is a SIGBUS when shared memory is full.
                os.posix_fallocate(descriptor, 0, _SIZE)
                return map_file(mmap.mmap, descriptor, _SIZE, private=False)
            except OSError as error:
                if not is_full(error):
                    raise
            finally:
                os.close(descriptor)
        return mmap.mmap(-1, _SIZE)  # the empty files say that nothing is known


def last_begun(session: Session, number: int) -> bytes | None:
    """Return the last run that a dead worker has begun, b"" if there was none, None if that is unknown; forget it."""
    found: bytes | None = b""
    for path in _paths(session, number):
        try:
            with open(path, "rb") as file:
                found = file.read() or None
            os.unlink(path)
        except FileNotFoundError:
            continue
    return found
