"""Processes as psutil shows them, on every system that it supports."""

from __future__ import annotations

import os
from collections.abc import Iterator


def descendants(top: int, spare: int) -> list[int]:
    """Return the pids of all descendants of a process except its child `spare` and the descendants of that.

    Descendants whose parents died are not among them: the system has given them to another process.
    """
    import psutil

    children: dict[int, list[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process.pid)
    found: list[int] = []
    pending = [top]
    while pending:
        below = [pid for pid in children.get(pending.pop(), ()) if pid != spare]
        found += below
        pending += below
    return found


def members(variable: str, value: str) -> list[int]:
    """Return the pids of other processes of this user that have an environment variable with this value."""
    import psutil

    me = os.getpid()
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != me and process.environ().get(variable) == value:
                found.append(process.pid)
        except (psutil.Error, OSError):  # ended, or of another user
            continue
    return found


def process_memory() -> Iterator[tuple[int, int, int]]:
    """Yield the pid, the process group and the memory of all processes."""
    import psutil

    for process in psutil.process_iter():
        try:
            memory = process.memory_info()
            # Not every system says how much of it is shared.
            yield process.pid, os.getpgid(process.pid), memory.rss - getattr(memory, "shared", 0)
        except (psutil.Error, OSError):  # ended, or of another user
            continue
