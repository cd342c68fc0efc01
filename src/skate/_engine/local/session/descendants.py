"""The descendants of a node. None of them may outlive it.

A worker may start processes, and those may detach themselves. Three mechanisms find them: the node and the template
adopt orphaned descendants (a "subreaper" in Linux), the kernel kills workers whose template dies, and every process
has the session's folder in its environment.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable

SESSION = "SKATE_SESSION"  # in the environment of the node, and so of all its descendants
KILL_TIMEOUT_S = 5.0  # seconds for the kernel to end killed processes

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux); kill it now if the parent is dead."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def survive_parent() -> None:
    """Revoke `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parents die (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_descendants(spare: int = 0) -> None:
    """Kill all descendants except the child `spare` and its own, and wait for their end."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while time.monotonic() < deadline:
        found = _below(os.getpid(), spare)
        if not found:
            return
        _end(found, deadline)
        for pid in found:
            try:
                os.waitpid(pid, os.WNOHANG)  # own children, including adopted ones
            except ChildProcessError:
                continue


def end_members(folder: str) -> None:
    """Kill every process that has this session's folder in its environment, and wait for their end."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while time.monotonic() < deadline:
        members = _members(folder)
        if not members:
            return
        _end(members, deadline)


def wait_for_end(pid: int, timeout: float) -> bool:
    """Wait for the end of any process; return False after the timeout."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout) * 1000))
    finally:
        os.close(descriptor)


def _end(pids: list[int], deadline: float) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    for pid in pids:
        wait_for_end(pid, deadline - time.monotonic())


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


def _below(top: int, spare: int) -> list[int]:
    """Return the pids of all descendants of a process except the child `spare` and its own."""
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


def _members(folder: str) -> list[int]:
    needle = f"{SESSION}={folder}".encode()
    found = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if needle in file.read().split(b"\0") and pid != os.getpid():
                    found.append(pid)
        except OSError:  # ended, or of another user
            continue
    return found
