"""Names that users give to folders of a run."""

from __future__ import annotations

from typing import Any

from skate.air import _arguments as arguments


def check_folder(option: str, name: Any) -> str:
    """Return a name of a folder, which may have further folders in it: `sweep/first`.

    Args:
        option: What the user calls it, for the error.
        name: The name.

    Raises:
        TypeError: It is neither text nor a path.
        ValueError: It leads out of the folder that it is joined to, or to that folder itself, or has characters that
            no file name should have.

    >>> check_folder("name", "sweep/first")
    'sweep/first'
    """
    found = arguments.path(option, name)
    if reason := _objection(found):
        raise ValueError(f"`{option}` is {found!r}: {reason}.")
    return found


def _objection(name: str) -> str | None:
    if name.startswith("/"):
        return "it must be relative to its parent folder; RunConfig(storage_path=…) says where runs are kept"
    if ".." in name.split("/"):
        return "it must not lead out of its parent folder with '..'"
    if not any(part not in ("", ".") for part in name.split("/")):
        return "it names no folder"
    if any(not character.isprintable() for character in name):
        return "it must not have line breaks or other control characters"
    return None
