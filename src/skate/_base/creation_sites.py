"""The lines of user code that create references, recorded only if an environment variable enables it.

Each process appends to its own file in the session's folder `sites`. Without the variable nothing is wrapped, and a
reference costs the same as before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from skate._base import variables
from skate._base.ids import process_of
from skate._base.locations import IMPORT_ROOT

__all__ = ["is_enabled", "read_sites", "recording"]

FOLDER: Final = "sites"
MOST_BYTES: Final = 64 << 20  # of one file, after which a process records nothing
_OWN: Final = os.path.join(IMPORT_ROOT, "skate") + os.sep


def is_enabled() -> bool:
    """Return whether references record their line."""
    return variables.flag("record_ref_creation_sites", False)


def recording(make: Callable[[bytes], Any], session: str, process: int) -> Callable[[bytes], Any]:
    """Return a function that makes a reference and records the line that called it.

    Args:
        make: Makes a reference with an id.
        session: The folder of the session.
        process: The number of this process: references that others have made are not recorded.
    """
    folder = os.path.join(session, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    descriptor = -1
    written = 0

    def make_and_record(id: bytes) -> Any:
        nonlocal descriptor, written
        reference = make(id)
        if process_of(id) == process and written < MOST_BYTES:
            if descriptor < 0:
                path = os.path.join(folder, str(process))
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            written += os.write(descriptor, f"{id.hex()} {_site()}\n".encode("utf-8", "replace"))
        return reference

    return make_and_record


def _site() -> str:
    """Return file and line of the nearest frame outside of Skate."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def read_sites(session: str, wanted: Iterable[bytes]) -> dict[bytes, str]:
    """Return the recorded lines of objects; objects without one are left out."""
    by_process: dict[int, set[str]] = {}
    for id in wanted:
        by_process.setdefault(process_of(id), set()).add(id.hex())
    found: dict[bytes, str] = {}
    for process, ids in by_process.items():
        try:
            with open(
                os.path.join(session, FOLDER, str(process)), encoding="utf-8", errors="replace"
            ) as file:
                for line in file:
                    name, _, site = line.rstrip("\n").partition(" ")
                    if name in ids:
                        found[bytes.fromhex(name)] = site
        except FileNotFoundError:
            continue  # not recorded
    return found
