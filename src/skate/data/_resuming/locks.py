"""One program at a time may go on with a write."""

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
def exclusive(filesystem: pafs.FileSystem, folder: str, makes_folders: bool = True) -> Iterator[None]:
    """Keep other programs on this machine, and other threads of this one, from writing to the same folder.

    The system lets go of the lock when the program ends, however it ends. Other filesystems have none.

    Raises:
        ResumeError: Somebody else writes to it.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        yield
        return
    with _guard:
        if folder in _held:
            raise _busy(folder)
        _held.add(folder)
    try:
        Path(folder).mkdir(parents=makes_folders, exist_ok=True)
        # A lock of the process, and not of the open file: workers that it forks do not keep it.
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
        f"somebody else is writing to {os.path.dirname(folder)}, with resume=True or a checkpoint_config, at this "
        f"moment: wait for it to end, or write to another folder"
    )
