"""The memory that this process may use: that of the machine, within the limits of control groups."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from typing import NamedTuple

_ROOT = "/sys/fs/cgroup"
_OWN = "/proc/self/cgroup"
_MACHINE = "/proc/meminfo"
# The files of a group: its limit, its usage, and the reclaimable pages in memory.stat.
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def total() -> int:
    """Return the bytes of memory that this process may use, by the machine and by its control groups."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        found = 8 << 30
    return min([found, *(limit for limit, _ in _groups())])


def free() -> int:
    """Return the unused bytes of it, including those that the system can reclaim at once."""
    import psutil  # imported here, because few programs need it

    return min([int(psutil.virtual_memory().available), *(max(0, limit - used) for limit, used in _groups())])


class Usage(NamedTuple):
    """The memory usage where it is closest to its limit."""

    used: int
    total: int
    where: str  # the folder of a control group, "" for the machine


def usage() -> Usage:
    """Return the memory usage of the machine or of a control group of this process.

    Unlike `free`, this only reads a few small files on Linux.
    """
    facts = dict(line.split(":", 1) for line in _read("", _MACHINE).splitlines())
    try:
        total, available = (int(facts[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    except KeyError:  # not Linux
        import psutil

        machine = psutil.virtual_memory()
        return Usage(int(machine.total - machine.available), int(machine.total), "")
    fullest = Usage(total - available, total, "")
    for folder, files in _folders():
        limit = _read(folder, files[0])
        if not limit.isdecimal() or int(limit) >= total:
            continue  # "max", or no such file
        used = _read(folder, files[1])
        share = fullest.used / fullest.total
        if int(used or 0) > share * int(limit):  # else the reclaimable part does not matter
            group = Usage(max(0, int(used) - _reclaimable(folder, files)), int(limit), folder)
            fullest = group if group.used > share * group.total else fullest
    return fullest


def _groups() -> Iterator[tuple[int, int]]:
    """Yield the limit and the usage of each control group of this process that has a limit."""
    for folder, files in _folders():
        limit = _read(folder, files[0])
        if not limit.isdecimal():
            continue  # "max", or no such file
        used = _read(folder, files[1])
        yield int(limit), max(0, int(used or 0) - _reclaimable(folder, files))


def _reclaimable(folder: str, files: tuple[str, str, str]) -> int:
    """Return the bytes of cached files, which the system drops before an allocation fails."""
    stat = dict(line.split() for line in _read(folder, "memory.stat").splitlines())
    return int(stat.get(files[2], "0"))


def _folders() -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield the folders of the groups of this process with the names of their files, each once."""
    found = {_ROOT: _V2, f"{_ROOT}/memory": _V1}  # all that is visible inside a container
    for line in _read("", _OWN).splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        root, files = (f"{_ROOT}/memory", _V1) if kinds else (_ROOT, _V2)
        while path.strip("/"):  # the limits of enclosing groups apply too
            found[root + path] = files
            path = posixpath.dirname(path)
    yield from found.items()


def _read(folder: str, name: str) -> str:
    try:
        with open(posixpath.join(folder, name), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
