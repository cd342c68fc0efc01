"""Session folders: where the sockets, logs and shared memory of a node lie, and who cleans up.

A session has two folders, because files and shared memory lie in different places, and containers may share one of
the places without the other. The node claims both, and each is judged by its own claim alone.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any, NamedTuple

from skate._engine.common import session_folders as folders
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
INLINE = "inline-"  # begins the folder of a session of the inline engine
SPILL = "spill"
HOME = ".session"  # in a session's folder for shared memory: leads to its other folder
CONNECT_TIMEOUT_S = 5.0


class Session(NamedTuple):
    """The folders of one node."""

    folder: str
    shm: str
    claims: tuple[int, ...] = ()  # descriptors, for the process that makes the session and for its node

    @property
    def socket(self) -> str:
        """Path of the node's socket."""
        return os.path.join(self.folder, "node.sock")

    @property
    def logs(self) -> str:
        """Folder of the workers' logs."""
        return os.path.join(self.folder, "logs")

    @property
    def spill(self) -> str:
        """Folder of objects for which shared memory has no room."""
        return os.path.join(self.folder, SPILL)

    def path_of(self, segment: str) -> str:
        """Return the path of a segment, which is a file in shared memory or on disk."""
        if segments.is_on_disk(segment):
            return f"{self.folder}/{SPILL}/{segments.file_name(segment)}"
        return f"{self.shm}/{segment}"

    @property
    def is_left(self) -> bool:
        """Whether anything of the session exists."""
        return folders.is_left(self.shm) or folders.is_left(self.folder)

    def remove(self) -> None:
        """Remove everything of the session."""
        if os.path.dirname(self.shm) != self.folder:
            folders.remove(self.shm)
        folders.remove(self.folder)

    def close(self) -> None:
        """Give up the claims of this process."""
        for claim in self.claims:
            os.close(claim)


def python_version() -> str:
    """Return the version of this interpreter, as `platform` does, which takes long to load."""
    return "{}.{}.{}".format(*sys.version_info[:3])


def create() -> Session:
    """Make the folders of a new session, claimed until this process and its node have closed `claims`."""
    name = f"{PREFIX}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{os.urandom(3).hex()}"
    here, memory = root(), shm_root()
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
    """Describe the session's node; the session is alive for as long as this process has its claims."""
    for claim in session.claims:
        os.set_inheritable(claim, False)
    os.pwrite(session.claims[0], json.dumps(about).encode(), 0)


def about(folder: str) -> dict[str, Any] | None:
    """Return the description of a session's node, with its pid in this process' namespace; None if there is no node.

    The pid is 0 for a node that cannot be seen from here: it runs in another container.
    """
    if not is_alive(folder):
        return None
    try:
        with open(os.path.join(folder, folders.LOCK), "rb") as file:
            found: dict[str, Any] = json.loads(file.read())
        found["pid"] = _listener_pid(Session(folder, "").socket, found["pid"])
    except (FileNotFoundError, ConnectionRefusedError, ValueError):  # ended, or not begun
        return None
    return found


def _listener_pid(path: str, recorded: int) -> int:
    """Return the pid of the process that listens on a socket, as the kernel translates it for this process.

    A process that was forked while the session was made may have its claim, but it does not listen.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(CONNECT_TIMEOUT_S)
        try:
            connect(sock, path)
        except TimeoutError:  # alive, but with too many callers
            return 0
        if not hasattr(socket, "SO_PEERCRED"):  # no namespaces on this system
            return recorded
        size = 12  # pid, uid and gid
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return int.from_bytes(credentials[:4], sys.byteorder, signed=True)


def sweep() -> None:
    """Remove sessions whose node is gone: kill -9 of everything leaves their folders behind."""
    from skate._engine.local.session.descendants import end_members

    for base in {shm_root(), root()}:
        for path in folders.leftovers(base, (PREFIX, INLINE)):
            end_members(_home_of(path))


def _home_of(path: str) -> str:
    """Return a session's folder, given any of its folders; with another SKATE_TMPDIR it is not where ours are."""
    try:
        return os.readlink(os.path.join(path, HOME))
    except OSError:
        return path


def is_alive(folder: str) -> bool:
    """Return whether a session has a node, or is about to have one."""
    return folders.is_claimed(folder)
