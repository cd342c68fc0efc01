"""The running nodes of a user, and the file that names the latest long-lived node.

The file is called `current` and lies in the folder of the sessions. The lock in a session's folder shows whether its
node is alive.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from skate._engine.local.session import folders as sessions

CURRENT = "current"


@dataclass(frozen=True)
class NodeRecord:
    """A running node of this user."""

    folder: str
    pid: int  # 0 for a node in another container, which is not visible here
    private: bool
    python: str
    started: float
    tracing_startup_hook: str = ""  # of its drivers and workers

    @property
    def process(self) -> str:
        """A description of its process."""
        return f"pid {self.pid}" if self.pid else "in another container"


def nodes() -> list[NodeRecord]:
    """Return the running nodes of this user, the oldest first."""
    root = sessions.root()
    found = [
        read_record(os.path.join(root, name)) for name in os.listdir(root) if name.startswith("session-")
    ]
    return sorted((node for node in found if node is not None), key=lambda node: node.started)


def read_record(folder: str) -> NodeRecord | None:
    """Return the record of the node in a session folder, or None if it does not run."""
    about = sessions.about(folder)
    return None if about is None else NodeRecord(folder, **about)


def current() -> NodeRecord | None:
    """Return the latest long-lived node, if it is running."""
    try:
        with open(_current_path(), encoding="utf-8") as file:
            folder = file.read().strip()
    except FileNotFoundError:
        return None
    return read_record(folder)


def write_current(folder: str) -> None:
    """Record the node of a session folder as the latest one."""
    path = _current_path()
    descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(folder + "\n")
    os.rename(f"{path}.new", path)


def forget(folder: str) -> None:
    """Remove the record of a node that ends, unless a newer node has replaced it."""
    try:
        with open(_current_path(), encoding="utf-8") as file:
            mine = file.read().strip() == folder
        if mine:
            os.unlink(_current_path())
    except FileNotFoundError:
        return  # another process removed it


def _current_path() -> str:
    return os.path.join(sessions.root(), CURRENT)
