"""The platform layer of other POSIX systems, such as macOS.

It uses nothing that only one system has. `SKATE_PLATFORM=portable` selects it on Linux, where the same code is tested.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skate._engine.common.platform import parent_watch, process_tree
from skate._engine.common.platform.framed_sockets import FramedSocket
from skate._engine.common.platform.poll_poller import PipeFlag, PollPoller, nonblocking_pipe

if TYPE_CHECKING:
    from skate._engine.common.platform.interface import Poller, Wakeup

NAME = "portable"
READ = select.POLLIN
WRITE = select.POLLOUT
SHARED_MEMORY = ""
LONGEST_SOCKET_PATH = 103
ADOPTS_ORPHANS = False
FORKS_AFTER_IMPORTS = sys.platform != "darwin"
CHECKS_FORKS = False

_DESCRIPTORS = "/dev/fd"
_MOST_DESCRIPTORS = 65_536  # as many are closed one by one
_LONGEST_PAUSE = 0.02  # seconds between two looks at a process
_ZEROS = bytes(1 << 20)


# ---------------------------------------------------------------- waiting


def poller() -> Poller:
    """Return a poller on `select.poll`."""
    return PollPoller()


def wakeup() -> Wakeup:
    """Return a flag in a pipe."""
    return PipeFlag()


def pipe() -> tuple[int, int]:
    """Return the ends of a new pipe."""
    return nonblocking_pipe()


# ---------------------------------------------------------------- sockets


def message_pair() -> tuple[socket.socket, socket.socket]:
    """Return two stream sockets with a length in front of each message."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return FramedSocket(fileno=one.detach()), FramedSocket(fileno=other.detach())


def message_socket(descriptor: int) -> socket.socket:
    """Return the socket of an inherited descriptor."""
    return FramedSocket(fileno=descriptor)


@contextmanager
def short_path(folder: str) -> Iterator[str]:
    """Yield a path that leads to the folder through a link, however long its own path is."""
    import shutil
    import tempfile

    place = tempfile.mkdtemp(prefix="skate-", dir="/tmp")  # no other user can enter it
    try:
        link = os.path.join(place, "f")
        os.symlink(os.path.abspath(folder), link)
        yield link
    finally:
        shutil.rmtree(place, ignore_errors=True)


def listener_pid(sock: socket.socket, recorded: int) -> int:
    """Return the recorded pid: other systems have no namespaces."""
    return recorded


# ---------------------------------------------------------------- parents and children

lead = parent_watch.open_pipe
survive_parent = parent_watch.stop
prepare_to_fork = parent_watch.stop
input_of_child = parent_watch.read_end
adopt_input = parent_watch.adopt_input
descendants = process_tree.descendants
members = process_tree.members
process_memory = process_tree.process_memory


def die_with_parent(parent: int) -> None:
    """Kill this process when its parent dies, from a thread."""
    parent_watch.start()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def close_others(kept: Iterable[int]) -> None:
    """Close all descriptors but the standard streams, those in `kept`, and the pipe of the parent."""
    spared = {0, 1, 2, *kept, parent_watch.parent_pipe()}
    try:
        opened = [int(name) for name in os.listdir(_DESCRIPTORS)]
    except OSError:  # not mounted
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        opened = list(range(min(limit, _MOST_DESCRIPTORS) if limit > 0 else _MOST_DESCRIPTORS))
    for descriptor in opened:
        if descriptor not in spared:
            try:
                os.close(descriptor)
            except OSError:  # the descriptor that listed the folder, or a number that is not in use
                continue


def reap() -> tuple[int, int] | None:
    """Collect a child that has ended, and kill the process group that it led."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    if not pid:
        return None
    try:
        os.killpg(pid, signal.SIGKILL)  # a group keeps its number while it has members
    except (ProcessLookupError, PermissionError):
        pass  # it had none; macOS refuses to signal a group of which only a zombie is left
    return pid, os.waitstatus_to_exitcode(status)


def exit_descriptor(pid: int) -> int:
    """Return -1: there is no such descriptor."""
    return -1


def wait_for_end(pid: int, timeout: float) -> bool:
    """Look at a process until it has ended or is a zombie; return False after the timeout."""
    import psutil

    deadline = time.monotonic() + timeout
    pause = 0.001
    try:
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    except psutil.NoSuchProcess:
        return True
    return True


def command_of(pid: int) -> str:
    """Return the name of the program of a process."""
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "ended"


def prefer_in_oom_kill() -> None:
    """Do nothing: a process cannot ask for it."""


def command_line_memory() -> tuple[int, int]:
    """Return 0 and 0: a process cannot replace its command line."""
    return 0, 0


# ---------------------------------------------------------------- files


def reserve(descriptor: int, size: int) -> None:
    """Write zeros up to the size, since not every system can allocate pages without."""
    end = os.fstat(descriptor).st_size
    while end < size:
        end += os.pwrite(descriptor, _ZEROS[: size - end], end)


def copy(write: int, read: int, position: int, size: int) -> int:
    """Copy bytes through this process."""
    data = memoryview(os.pread(read, min(size, len(_ZEROS)), position))
    written = 0
    while written < len(data):
        written += os.write(write, data[written:])
    return written
