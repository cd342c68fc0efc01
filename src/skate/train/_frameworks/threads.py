"""Lets a worker compute with as many threads as it has CPUs, where a library would take all there are."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import skate

_MAPS = Path("/proc/self/maps")
_RUNTIMES = ("libgomp", "libomp", "libiomp5")  # of OpenMP


def cpus() -> int | None:
    """Return how many CPUs this worker has been given; None if it has none, as where the run is in the driver."""
    given = skate.get_runtime_context().get_assigned_resources().get("CPU", 0)
    return max(1, int(given)) if given else None


def limit_openmp() -> None:
    """Let OpenMP, in this thread, use as many threads as `OMP_NUM_THREADS` says, or as this worker has CPUs.

    A library that was imported before the worker was forked has read the variable already: it has to be told.
    """
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    threads = int(given) if given.isdecimal() else cpus()
    if threads is None:
        return
    for path in _loaded():
        ctypes.CDLL(path).omp_set_num_threads(threads)


def _loaded() -> set[str]:
    """Return the files of the runtimes of OpenMP in this process; a library may have brought its own."""
    if not _MAPS.exists():
        return set()
    paths = {line.split(maxsplit=5)[-1] for line in _MAPS.read_text().splitlines() if ".so" in line}
    return {path for path in paths if os.path.basename(path).startswith(_RUNTIMES)}
