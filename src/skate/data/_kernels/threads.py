"""How many threads the kernels of this process use."""

from __future__ import annotations

import os
import sys

_VARIABLE = "POLARS_MAX_THREADS"


def limit(count: int) -> bool:
    """Have the kernels of this process use at most `count` threads.

    Polars makes one pool of threads for a process, and reads its size when it is imported. So this is for the start
    of a worker; a number that the user has set in the environment stays.

    Args:
        count: How many; for a task, as many as it has CPUs.

    Returns:
        Whether it had an effect: not if Polars has been imported, or if the user has set the number.
    """
    if "polars" in sys.modules or _VARIABLE in os.environ:
        return False
    os.environ[_VARIABLE] = str(count)
    return True
