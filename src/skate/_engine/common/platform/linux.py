"""The platform layer of Linux."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate._engine.common.platform.interface import Poller, Wakeup

assert sys.platform == "linux"  # for the type checker

NAME = "linux"
READ = select.EPOLLIN
WRITE = select.EPOLLOUT
SHARED_MEMORY = "/dev/shm"
LONGEST_SOCKET_PATH = 107
ADOPTS_ORPHANS = True
FORKS_AFTER_IMPORTS = True
CHECKS_FORKS = True

_DESCRIPTORS = "/proc/self/fd"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ARG_START = 47  # positions in /proc/self/stat, counted from 0; see proc(5)
_ARG_END = 48
_PAGE = os.sysconf("SC_PAGE_SIZE")


# ---------------------------------------------------------------- waiting


def poller() -> Poller:
    """Return an epoll object."""
    return select.epoll()


class _EventFile:
    """A flag in an eventfd."""

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self._descriptor

    def set(self) -> None:
        try:
            os.eventfd_write(self._descriptor, 1)
        except ValueError:  # closed
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def clear(self) -> None:
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return

    def close(self) -> None:
        # First the number is forgotten: it may belong to another file as soon as this one is closed.
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def wakeup() -> Wakeup:
    """Return a flag in an eventfd."""
    return _EventFile()


def pipe() -> tuple[int, int]:
    """Return the ends of a new pipe."""
    return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)


# ---------------------------------------------------------------- sockets


def message_pair() -> tuple[socket.socket, socket.socket]:
    """Return two sockets that preserve the boundaries of messages."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def message_socket(descriptor: int) -> socket.socket:
    """Return the socket of an inherited descriptor."""
    return socket.socket(fileno=descriptor)


@contextmanager
def short_path(folder: str) -> Iterator[str]:
    """Yield a path that leads to the folder through an open descriptor, however long its own path is."""
    if not os.path.isdir(_DESCRIPTORS):
        raise OSError(f"{folder} is too long for a socket. Set SKATE_TMPDIR to a folder with a shorter path.")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{_DESCRIPTORS}/{descriptor}"
    finally:
        os.close(descriptor)


def listener_pid(sock: socket.socket, recorded: int) -> int:
    """Return the pid of the process at the other end, translated into this process' namespace."""
    size = 12  # pid, uid and gid
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int.from_bytes(credentials[:4], sys.byteorder, signed=True)


# ---------------------------------------------------------------- parents and children


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def lead() -> None:
    """Become the parent of all descendants whose parents die."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def survive_parent() -> None:
    """Revoke `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def prepare_to_fork() -> None:
    """Do nothing: this layer has no threads."""


def input_of_child() -> int:
    """Return the standard input of this process."""
    return 0


def adopt_input() -> None:
    """Do nothing: the kernel knows the parent."""


def close_others(kept: Iterable[int]) -> None:
    """Close all descriptors but the standard streams and `kept`."""
    for name in os.listdir(_DESCRIPTORS):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:  # the descriptor that listed the folder
                continue


def reap() -> tuple[int, int] | None:
    """Collect a child that has ended, and kill the process group that it led."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    pid = ended.si_pid
    try:
        os.killpg(pid, signal.SIGKILL)  # the number cannot be reused yet
    except ProcessLookupError:
        pass  # it ended before it led a group, or never would have
    _, status = os.waitpid(pid, 0)
    return pid, os.waitstatus_to_exitcode(status)


def descendants(top: int, spare: int) -> list[int]:
    """Return the pids of all descendants of a process except its child `spare` and the descendants of that."""
    if not _proc_is_ours():
        return []
    children_of = _children if os.path.exists(f"/proc/{top}/task/{top}/children") else _children_by_parent()
    found: list[int] = []
    pending = [top]
    while pending:
        below = [pid for pid in children_of(pending.pop()) if pid != spare]
        found += below
        pending += below
    return found


def members(variable: str, value: str) -> list[int]:
    """Return the pids of other processes of this user that have an environment variable with this value."""
    needle = f"{variable}={value}".encode()
    found = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if needle in file.read().split(b"\0") and pid != os.getpid():
                    found.append(pid)
        except OSError:  # ended, or of another user
            continue
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if _proc_is_ours() else []


def _proc_is_ours() -> bool:
    """Return whether /proc shows the pids of this process' own namespace; other pids would be wrong here."""
    try:
        with open("/proc/self/status", "rb") as file:
            # The pid in the namespace of /proc, and in each namespace below it, down to that of the process.
            return any(line.startswith(b"NSpid:") and len(line.split()) == 2 for line in file)
    except FileNotFoundError:  # not available, or this process has no pid in the namespace of /proc
        return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:  # it has just ended
        return found
    return found


def _children_by_parent() -> Callable[[int], list[int]]:
    """Return the equivalent of `_children` for kernels that only show the parent of a process."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name in parentheses may contain anything; the parent is the second field after it.
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(pid)
    return lambda pid: children.get(pid, [])


def exit_descriptor(pid: int) -> int:
    """Return a pidfd; -1 where the kernel has none to give."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return -1


def wait_for_end(pid: int, timeout: float) -> bool:
    """Wait for the end of any process; return False after the timeout."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return True
    try:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(max(0.0, timeout) * 1000))
    finally:
        os.close(descriptor)


def process_memory() -> Iterator[tuple[int, int, int]]:
    """Yield the pid, the process group and the memory of all processes."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                group = int(file.read().rpartition(b")")[2].split()[2])
            with open(f"/proc/{name}/statm", "rb") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except (OSError, ValueError):  # it has just ended
            continue
        # Shared pages belong to the object store or to files.
        yield int(name), group, (resident - shared) * _PAGE


def command_of(pid: int) -> str:
    """Return the name of the program of a process."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "ended"


def prefer_in_oom_kill() -> None:
    """Make the kernel's OOM killer prefer this process to all others."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        return  # not allowed


def command_line_memory() -> tuple[int, int]:
    """Return the address and the size of the memory that holds this process' command line."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name of the program, in parentheses, may contain spaces.
            fields = [b"", b"", *file.read().rpartition(b")")[2].split()]
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    except (OSError, IndexError, ValueError):
        return 0, 0
    return (start, end - start) if 0 < start < end else (0, 0)


# ---------------------------------------------------------------- files


def reserve(descriptor: int, size: int) -> None:
    """Allocate the pages of a file."""
    os.posix_fallocate(descriptor, 0, size)


def copy(write: int, read: int, position: int, size: int) -> int:
    """Copy bytes from one file to another in the kernel."""
    return os.sendfile(write, read, position, size)
