"""Session folders: where the sockets, logs and shared memory of a node lie, and who cleans up."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from typing import Any, NamedTuple

from skate._engine.local import segments

SHM = "/dev/shm"
LOCK = "lock"
SPILL = "spill"
DRAFT = "new-"  # in front of the name of a folder that is being made
DRAFT_SECONDS = 60.0
INLINE = "inline-"  # begins the folder of a session that is one process, whose number comes next
HOME = ".session"  # in a session's folder for shared memory: leads to its other folder


class Session(NamedTuple):
    """The folders of one node."""

    folder: str
    shm: str
    claim: int = -1  # descriptor of the lock, for the process that makes the session and for its node

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

    def remove(self) -> None:
        """Remove everything of the session."""
        import shutil  # it takes a while to load, and is needed at the end only

        shutil.rmtree(self.shm, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def python_version() -> str:
    """Return the version of this interpreter, as `platform` does, which takes long to load."""
    return "{}.{}.{}".format(*sys.version_info[:3])


def root() -> str:
    """Return the folder of this user's sessions, made if need be."""
    base = os.environ.get("SKATE_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    if not os.access(base, os.W_OK | os.X_OK) and "SKATE_TMPDIR" not in os.environ:
        import tempfile  # knows where else to look, but takes a while to load

        base = tempfile.gettempdir()
    return _private(os.path.join(base, f"skate-{os.getuid()}"))


def shared_memory_folder() -> str:
    """Return the folder in which sessions of all users have their shared memory, if it is there."""
    return os.environ.get("SKATE_SHMDIR") or SHM


def shm_root() -> str:
    """Return the folder for shared memory: SKATE_SHMDIR or /dev/shm, else the sessions' own."""
    base = shared_memory_folder()
    if os.path.isdir(base) and os.access(base, os.W_OK):
        return _private(os.path.join(base, f"skate-{os.getuid()}"))
    return root()


def _private(path: str) -> str:
    os.makedirs(path, mode=0o700, exist_ok=True)
    status = os.lstat(path)
    if status.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user; set SKATE_TMPDIR to a folder of your own")
    return path


def create() -> Session:
    """Make the folders of a new session, locked until this process or its node lets go of `claim`."""
    name = f"session-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{os.urandom(3).hex()}"
    folder = os.path.join(root(), name)
    shm = os.path.join(shm_root(), name)
    if shm == folder:
        shm = os.path.join(folder, "shm")
    # Under another name first: who finds a session finds it locked, or its makers are dead.
    draft = os.path.join(root(), DRAFT + name)
    os.mkdir(draft, 0o700)
    os.mkdir(os.path.join(draft, "logs"), 0o700)
    os.mkdir(os.path.join(draft, SPILL), 0o700)
    claim = os.open(os.path.join(draft, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(draft, folder)
    if os.path.dirname(shm) == folder:
        os.mkdir(shm, 0o700)
    else:
        os.symlink(shm, os.path.join(folder, "shm"))
        draft = os.path.join(os.path.dirname(shm), DRAFT + name)
        os.mkdir(draft, 0o700)
        os.symlink(folder, os.path.join(draft, HOME))
        os.rename(draft, shm)
    return Session(folder, shm, claim)


def at(folder: str) -> Session:
    """Return the session with this folder."""
    return Session(folder, os.path.realpath(os.path.join(folder, "shm")))


def lock(session: Session, about: dict[str, Any]) -> int:
    """Say what the session's node is; the session is alive for as long as the returned descriptor is open."""
    os.set_inheritable(session.claim, False)
    os.pwrite(session.claim, json.dumps(about).encode(), 0)
    return session.claim


def about(folder: str) -> dict[str, Any] | None:
    """Return what the node of a session said of itself; None if there is no node."""
    if not is_alive(folder):
        return None
    try:
        with open(os.path.join(folder, LOCK), "rb") as file:
            found: dict[str, Any] = json.loads(file.read())
        os.kill(found["pid"], 0)  # a process that was forked in a worker may still have the lock
    except (FileNotFoundError, ProcessLookupError, ValueError):  # ended, or not begun
        return None
    return found


def sweep() -> None:
    """Remove sessions whose node is gone: kill -9 of everything leaves their folders behind."""
    import shutil

    from skate._engine.local.descendants import end_members

    for base in (shm_root(), root()):
        for name in os.listdir(base):
            path = os.path.join(base, name)
            if name.startswith("session-"):
                home = _home_of(path)
                if is_alive(home):
                    continue
                end_members(home)
            elif name.startswith(DRAFT):
                if _is_young(path):
                    continue
            elif not name.startswith(INLINE) or _is_running(name.split("-")[1]):
                continue
            shutil.rmtree(path, ignore_errors=True)


def _home_of(path: str) -> str:
    """Return a session's folder; with another SKATE_TMPDIR it is not where ours are."""
    try:
        return os.readlink(os.path.join(path, HOME))
    except OSError:
        return path


def is_alive(folder: str) -> bool:
    """Tell whether a session has a node, or is about to have one."""
    try:
        descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process has the number now
        return True
    return True


def _is_young(path: str) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime < DRAFT_SECONDS
    except FileNotFoundError:
        return True  # finished just now
