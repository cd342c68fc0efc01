"""Session folders: the location of a node's sockets, logs and shared memory, and their removal.

A session has two folders, because files and shared memory have different locations, and containers may share one of
them without the other. The node claims both folders, and each is alive as long as its own claim.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any, NamedTuple

from skate._engine.common import session_folders as folders
from skate._engine.common.platform import system
from skate._engine.common.session_roots import root, shm_root
from skate._engine.local.session import segments
from skate._engine.local.wire.unix_sockets import connect

__all__ = [
    "Session",
    "about",
    "at",
    "create",
    "is_alive",
    "lock",
    "python_version",
    "root",
    "shm_root",
    "sweep",
]

PREFIX = "session-"
INLINE = "inline-"  # prefix of the session folders of the inline engine
SPILL = "spill"
HOME = ".session"  # a link in the folder for shared memory to the session's other folder
CONNECT_TIMEOUT_S = 5.0


class Session(NamedTuple):
    """The folders of one node."""

    folder: str
    shm: str
    claims: tuple[int, ...] = ()  # descriptors, in the process that creates the session and in its node

    @property
    def socket(self) -> str:
        """The path of the node's socket."""
        return os.path.join(self.folder, "node.sock")

    @property
    def logs(self) -> str:
        """The folder of the workers' logs."""
        return os.path.join(self.folder, "logs")

    @property
    def spill(self) -> str:
        """The folder of objects that do not fit into shared memory."""
        return os.path.join(self.folder, SPILL)

    def path_of(self, segment: str) -> str:
        """Return the path of a segment, which is a file in shared memory or on disk."""
        if segments.is_on_disk(segment):
            return f"{self.folder}/{SPILL}/{segments.file_name(segment)}"
        return f"{self.shm}/{segment}"

    @property
    def is_left(self) -> bool:
        """Whether any file of the session exists."""
        return folders.is_left(self.shm) or folders.is_left(self.folder)

    def remove(self) -> None:
        """Remove all files of the session."""
        if os.path.dirname(self.shm) != self.folder:
            folders.remove(self.shm)
        folders.remove(self.folder)

    def close(self) -> None:
        """Give up the claims of this process."""
        for claim in self.claims:
            os.close(claim)


def python_version() -> str:
    """Return the version of this interpreter like `platform`, which takes long to load."""
    return "{}.{}.{}".format(*sys.version_info[:3])


def create(base: str | None = None) -> Session:
    """Create the folders of a new session, claimed until this process and its node have closed `claims`.

    Args:
        base: The folder for its files, instead of the one for temporary files.
    """
    name = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{os.urandom(3).hex()}"
    here, memory = root(base), shm_root()
    folder, claim = folders.make(here, name)
    made = Session(folder, os.path.join(folder, "shm"), (claim,))
    try:
        os.mkdir(made.logs, 0o700)
        os.mkdir(made.spill, 0o700)
        if memory == here:
            os.mkdir(made.shm, 0o700)
            return made
        shm, claim = folders.make(memory, name)
        made = Session(folder, shm, (*made.claims, claim))
        os.symlink(folder, os.path.join(shm, HOME))
        os.symlink(shm, os.path.join(folder, "shm"))
    except BaseException:
        made.remove()
        made.close()
        raise
    return made


def at(folder: str) -> Session:
    """Return the session with this folder."""
    return Session(folder, os.path.realpath(os.path.join(folder, "shm")))


def lock(session: Session, about: dict[str, Any]) -> None:
    """Write the description of the session's node; the session is alive while this process holds the claims."""
    for claim in session.claims:
        os.set_inheritable(claim, False)
    os.pwrite(session.claims[0], json.dumps(about).encode(), 0)


def about(folder: str) -> dict[str, Any] | None:
    """Return the description of a session's node with its pid in this process' namespace; None without a node.

    The pid is 0 for a node in another container, which is not visible here.
    """
    if not is_alive(folder):
        return None
    try:
        found = description(folder)
        found["pid"] = _listener_pid(Session(folder, "").socket, found["pid"])
    except (FileNotFoundError, ConnectionRefusedError, ValueError):  # ended, or not started
        return None
    return found


def description(folder: str) -> dict[str, Any]:
    """Return the description of a session's node that the node has written, with the pid in its own namespace."""
    with open(os.path.join(folder, folders.LOCK), "rb") as file:
        found: dict[str, Any] = json.loads(file.read())
    return found


def _listener_pid(path: str, recorded: int) -> int:
    """Return the pid of the process that listens on a socket, translated into this process' namespace.

    A process that was forked during the creation of the session may hold the claim, but it does not listen.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(CONNECT_TIMEOUT_S)
        try:
            connect(sock, path)
        except TimeoutError:  # alive, but with a full backlog
            return 0
        return system.listener_pid(sock, recorded)


def sweep() -> None:
    """Remove sessions whose node is gone, for example after `kill -9` of all their processes."""
    from skate._engine.local.session.descendants import end_members

    for base in {shm_root(), root()}:
        for path in folders.leftovers(base, (PREFIX, INLINE)):
            end_members(_home_of(path))


def _home_of(path: str) -> str:
    """Return the session folder of any folder of a session; SKATE_TMPDIR or `_temp_dir` may have been different."""
    try:
        return os.readlink(os.path.join(path, HOME))
    except OSError:
        return path


def is_alive(folder: str) -> bool:
    """Return whether a session has a node, or is about to have one."""
    return folders.is_claimed(folder)
