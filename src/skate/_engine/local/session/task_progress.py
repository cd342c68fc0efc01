"""The last task that a worker has started, stored where the node can read it after the worker's death.

Results of short tasks are sent together, so a dying worker may lose some. This record distinguishes them from the task
that was running, and from those that had not started.
"""

from __future__ import annotations

import mmap
import os

from skate._base.ids import TASK_SIZE
from skate._engine.common.platform import system
from skate._engine.local.session.folders import Session
from skate._engine.local.session.shared_memory import is_full, map_file

_SIZE = TASK_SIZE + 4


def run_id(task: bytes, attempt: int) -> bytes:
    """Return the id of one attempt of a task."""
    return task + attempt.to_bytes(4, "little")


def _paths(session: Session, number: int) -> list[str]:
    """Return the possible paths of a worker's file: in shared memory, or on disk if that is full."""
    name = f"task-of-{number}"
    return [os.path.join(session.shm, name), os.path.join(session.folder, name)]


class TaskProgress:
    """The worker's side: one write to memory per task."""

    def __init__(self, session: Session, number: int) -> None:
        self._paths = _paths(session, number)
        self._memory: mmap.mmap | None = None

    def begin(self, task: bytes, attempt: int) -> None:
        """Record that the worker starts a task."""
        if self._memory is None:
            self._memory = self._map()
        self._memory[:_SIZE] = run_id(task, attempt)

    def _map(self) -> mmap.mmap:
        for path in self._paths:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # Writing to an unreserved page raises SIGBUS when shared memory is full.
                system.reserve(descriptor, _SIZE)
                return map_file(mmap.mmap, descriptor, _SIZE, private=False)
            except OSError as error:
                if not is_full(error):
                    raise
            finally:
                os.close(descriptor)
        return mmap.mmap(-1, _SIZE)  # the empty files mean that nothing is known


def last_begun(session: Session, number: int) -> bytes | None:
    """Remove and return the last attempt that a dead worker has started, b"" for none, None if unknown."""
    found: bytes | None = b""
    for path in _paths(session, number):
        try:
            with open(path, "rb") as file:
                found = file.read() or None
            os.unlink(path)
        except FileNotFoundError:
            continue
    return found
