"""The lines of user code that create references, tasks and actors, recorded only if environment variables enable it.

Each process appends to its own file in the session's folder `sites`. Without the variables nothing is wrapped, and a
reference or a task costs the same as before.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

from skate._base import variables
from skate._base.ids import IdFactory, process_of
from skate._base.locations import IMPORT_ROOT

__all__ = ["read_sites", "record"]

FOLDER: Final = "sites"
MOST_BYTES: Final = 64 << 20  # of one file, after which a process records nothing
_OWN: Final = os.path.join(IMPORT_ROOT, "skate") + os.sep


def record(references: Any, ids: IdFactory, session: str) -> None:
    """Record what creates references, tasks and actors from now on, if variables enable it.

    Args:
        references: Makes references with `new_reference` and `own_reference`. It records the line that called these,
            but not for references that other processes have made.
        ids: Makes the ids of tasks, calls and actors. It records the stack of user code that submits them.
        session: The folder of the session.
    """
    file = _SiteFile(session, ids.process)
    if variables.flag("record_ref_creation_sites", False):
        for name in ("new_reference", "own_reference"):
            setattr(references, name, _recording_reference(getattr(references, name), file))
    if variables.flag("record_task_actor_creation_sites", False):
        for name in ("task", "call", "actor"):
            setattr(ids, name, _recording_id(getattr(ids, name), file))


def _recording_reference(make: Callable[[bytes], Any], file: _SiteFile) -> Callable[[bytes], Any]:
    def make_and_record(id: bytes) -> Any:
        reference = make(id)
        if process_of(id) == file.process:
            file.append(id, _site(sys._getframe(1)))
        return reference

    return make_and_record


def _recording_id(make: Callable[..., bytes], file: _SiteFile) -> Callable[..., bytes]:
    def make_and_record(*args: bytes) -> bytes:
        id = make(*args)
        file.append(id, _stack(sys._getframe(1)))
        return id

    return make_and_record


class _SiteFile:
    """The file to which a process appends what it records."""

    def __init__(self, session: str, process: int) -> None:
        self.process = process
        self._folder = os.path.join(session, FOLDER)
        self._written = 0

    def append(self, id: bytes, site: str) -> None:
        """Record where an id was made, unless the file is full."""
        if not self._written:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if self._written < MOST_BYTES:
            path = os.path.join(self._folder, str(self.process))
            with open(path, "ab", buffering=0) as file:  # not kept open: a session may end at any time
                self._written += file.write(f"{id.hex()} {json.dumps(site)}\n".encode())


def _site(frame: FrameType) -> str:
    """Return file and line of the nearest frame outside of Skate."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _stack(frame: FrameType) -> str:
    """Return the frames outside of Skate as a traceback shows them, without its first line."""
    import traceback

    frames = [each for each in traceback.walk_stack(frame) if not each[0].f_code.co_filename.startswith(_OWN)]
    return "".join(traceback.StackSummary.extract(reversed(frames)).format())


def read_sites(session: str, wanted: Iterable[bytes]) -> dict[bytes, str]:
    """Return what was recorded of ids of objects, tasks or actors; ids without a record are left out."""
    by_process: dict[int, set[str]] = {}
    if not session or not os.path.isdir(os.path.join(session, FOLDER)):
        return {}
    for id in wanted:
        by_process.setdefault(process_of(id), set()).add(id.hex())
    found: dict[bytes, str] = {}
    for process, ids in by_process.items():
        try:
            with open(os.path.join(session, FOLDER, str(process)), encoding="utf-8") as file:
                for line in file:
                    name, _, site = line.partition(" ")
                    if name in ids:
                        found[bytes.fromhex(name)] = json.loads(site)
        except FileNotFoundError:
            continue  # not recorded
    return found
