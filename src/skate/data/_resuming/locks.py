"""An exclusive lock on the folder of a resumable or checkpointed write."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs as pafs

from skate.data.exceptions import ResumeError

_held: set[str] = set()
_guard = threading.Lock()


@contextmanager
def exclusive(filesystem: pafs.FileSystem, folder: str, create_folders: bool = True) -> Iterator[None]:
    """Lock a folder against other programs on this machine and other threads of this process.

    The system releases the lock when the program ends in any way. Remote filesystems have no lock.

    Raises:
        ResumeError: Another program or thread holds the lock.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        yield
        return
    with _guard:
        if folder in _held:
            raise _busy(folder)
        _held.add(folder)
    try:
        Path(folder).mkdir(parents=create_folders, exist_ok=True)
        # A lock of the process, not of the open file: forked workers do not inherit it.
        opened = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise _busy(folder) from error
            yield
        finally:
            os.close(opened)
    finally:
        with _guard:
            _held.discard(folder)


def _busy(folder: str) -> ResumeError:
    return ResumeError(
        f"another program is writing to {os.path.dirname(folder)} with resume=True or a checkpoint_config: wait for it "
        f"to end, or write to another folder"
    )
