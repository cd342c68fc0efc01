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

__all__ = ["read_sites", "record_calls", "record_references", "records_calls", "records_references"]

FOLDER: Final = "sites"
MOST_BYTES: Final = 64 << 20  # of one file, after which a process records nothing
_OWN: Final = os.path.join(IMPORT_ROOT, "skate") + os.sep


def records_references() -> bool:
    """Return whether references record the line that creates them."""
    return variables.flag("record_ref_creation_sites", False)


def records_calls() -> bool:
    """Return whether tasks, actors and their calls record the stack that submits them."""
    return variables.flag("record_task_actor_creation_sites", False)


def record_references(references: Any, makers: Iterable[str], session: str, process: int) -> None:
    """Make methods that create a reference with an id record the line that called them.

    Args:
        references: Has the methods.
        makers: The names of the methods.
        session: The folder of the session.
        process: The number of this process: references that others have made are not recorded.
    """
    file = _SiteFile(session, process)
    for name in makers:
        setattr(references, name, _recording(getattr(references, name), file))


def _recording(make: Callable[[bytes], Any], file: _SiteFile) -> Callable[[bytes], Any]:
    def make_and_record(id: bytes) -> Any:
        reference = make(id)
        if process_of(id) == file.process:
            file.append(id, _site(sys._getframe(1)))
        return reference

    return make_and_record


def record_calls(ids: IdFactory, session: str) -> None:
    """Make a factory of ids record the stack of user code for each new task, call and actor."""
    file = _SiteFile(session, ids.process)

    def recording(make: Callable[..., bytes]) -> Callable[..., bytes]:
        def make_and_record(*args: bytes) -> bytes:
            id = make(*args)
            file.append(id, _stack(sys._getframe(1)))
            return id

        return make_and_record

    for name in ("task", "call", "actor"):
        setattr(ids, name, recording(getattr(ids, name)))


class _SiteFile:
    """The file to which a process appends what it records."""

    def __init__(self, session: str, process: int) -> None:
        self.process = process
        folder = os.path.join(session, FOLDER)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._path = os.path.join(folder, str(process))
        self._written = 0

    def append(self, id: bytes, site: str) -> None:
        """Record where an id was made, unless the file is full."""
        if self._written < MOST_BYTES:
            with open(self._path, "ab", buffering=0) as file:  # not kept open: a session may end at any time
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
