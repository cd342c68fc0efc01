"""Control groups for programs of a test: a limit on processes or on memory, where the user is allowed to set one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
LIMITS = {  # the names of the files of version 1 and version 2
    "pids": ("pids.max", "pids.max"),
    "memory": ("memory.limit_in_bytes", "memory.max"),
}


class ControlGroup:
    """A group with a limit."""

    def __init__(self, folder: Path, file: str) -> None:
        self.folder = folder
        self._file = file

    def limit(self, value: int) -> None:
        """Set the limit."""
        (self.folder / self._file).write_text(str(value))

    def enter(self) -> None:
        """Move the calling process into the group: for `preexec_fn`."""
        (self.folder / "cgroup.procs").write_text("0")


@contextmanager
def control_group(kind: str, value: int) -> Iterator[ControlGroup]:
    """Make a control group that limits "pids" or "memory"; skip the test if this user may not."""
    first, second = LIMITS[kind]
    version_1 = (ROOT / kind).is_dir()
    folder = (ROOT / kind if version_1 else ROOT) / f"skate-test-{uuid.uuid4().hex[:8]}"
    group = ControlGroup(folder, first if version_1 else second)
    try:
        folder.mkdir()
        group.limit(value)
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"needs a control group of its own for {kind}: {error}")
    try:
        yield group
    finally:
        # Those that ended may count for a moment longer.
        from tests.chaos.arena import eventually

        eventually(lambda: _remove(folder), "the control group is empty")


def _remove(folder: Path) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True
