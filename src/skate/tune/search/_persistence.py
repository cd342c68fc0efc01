"""Store the state of searchers in files, which are written atomically."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import cloudpickle


def write_state(state: Any, path: str | os.PathLike[str]) -> None:
    """Write a state to a file, which is replaced as a whole."""
    target = Path(path)
    temporary = target.with_name(f".{uuid.uuid4().hex}-{target.name}")
    try:
        with temporary.open("wb") as file:
            cloudpickle.dump(state, file)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def read_state(path: str | os.PathLike[str]) -> Any:
    """Return the state in a file."""
    with Path(path).open("rb") as file:
        return cloudpickle.load(file)


def newest_file(folder: str | os.PathLike[str], pattern: str) -> Path | None:
    """Return the file of a folder whose name sorts last, because names end with the time of the session."""
    return max(Path(folder).glob(pattern), default=None)
