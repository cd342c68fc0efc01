"""The number of CPUs that this process may use."""

from __future__ import annotations

import os

_LIMIT = "/sys/fs/cgroup/cpu.max"


def cpus() -> int:
    """Return the number of CPUs that this process may use, by affinity and by cgroup."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        count = os.cpu_count() or 1
    quota = _cgroup_cpus()
    return max(1, min(count, quota) if quota else count)


def _cgroup_cpus() -> int:
    try:
        with open(_LIMIT, encoding="utf-8") as file:
            quota, period = file.read().split()
    except OSError:
        return 0
    return 0 if quota == "max" else max(1, int(quota) // int(period))
