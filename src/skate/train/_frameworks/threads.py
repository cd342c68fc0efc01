"""Limits the threads of a worker to its CPUs, where a library would use all processors."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import skate

_MAPS = Path("/proc/self/maps")
_RUNTIMES = ("libgomp", "libomp", "libiomp5")  # of OpenMP


def cpus() -> int | None:
    """Return the number of CPUs of this worker; None if it has none, as in the driver's process."""
    given = skate.get_runtime_context().get_assigned_resources().get("CPU", 0)
    return max(1, int(given)) if given else None


def limit_openmp() -> None:
    """Set the number of OpenMP threads of this thread to `OMP_NUM_THREADS`, or to the worker's number of CPUs.

    A library that was imported before the worker was forked has read the variable already, and needs a call.
    """
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    threads = int(given) if given.isdecimal() else cpus()
    if threads is None:
        return
    for path in _loaded_runtimes():
        ctypes.CDLL(path).omp_set_num_threads(threads)


def _loaded_runtimes() -> set[str]:
    """Return the files of the OpenMP runtimes in this process; libraries may bundle their own."""
    if not _MAPS.exists():
        return set()
    paths = {line.split(maxsplit=5)[-1] for line in _MAPS.read_text().splitlines() if ".so" in line}
    return {path for path in paths if os.path.basename(path).startswith(_RUNTIMES)}
