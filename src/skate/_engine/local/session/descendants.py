"""The descendants of a node. None of them may outlive it.

A worker may start processes, and those may detach themselves. Three mechanisms find them: the node and the template
adopt orphaned descendants where the system has that (a "subreaper" in Linux), workers die with their template, and
every process has the session's folder in its environment.
"""

from __future__ import annotations

import os
import signal
import time

from skate._engine.common.platform import system

SESSION = "SKATE_SESSION"  # in the environment of the node, and so of all its descendants
KILL_TIMEOUT_S = 5.0  # seconds for the kernel to end killed processes


def end_descendants(spare: int = 0, *, session: str = "") -> None:
    """Kill all descendants except the child `spare` and its own, and wait for their end.

    With the folder of a session, which has only the node and its template left, also those that the system has given to
    another process.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while time.monotonic() < deadline:
        found = system.descendants(os.getpid(), spare)
        if session and not system.ADOPTS_ORPHANS:
            found = list({*found, *_members(session)} - {spare})
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


def _end(pids: list[int], deadline: float) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    for pid in pids:
        system.wait_for_end(pid, deadline - time.monotonic())


def _members(folder: str) -> list[int]:
    return system.members(SESSION, folder)
