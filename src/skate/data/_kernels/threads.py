"""How many threads the kernels of this process use."""

from __future__ import annotations

import os
import sys

_VARIABLE = "POLARS_MAX_THREADS"
# What was set here: a worker may become an actor, with more processors, before it needs Polars.
_limit: str | None = None


def limit(count: int) -> bool:
    """Have the kernels of this process use at most `count` threads.

    Polars makes one pool of threads for a process, and reads its size when it is imported. So this is for the start
    of a worker; a number that the user has set in the environment stays.

    Args:
        count: How many, at least one; for a task, as many as it has CPUs.

    Returns:
        Whether it had an effect: not if Polars has been imported, or if the user has set the number.
    """
    global _limit
    if "polars" in sys.modules or os.environ.get(_VARIABLE) != _limit:
        return False
    os.environ[_VARIABLE] = _limit = str(max(1, count))
    return True
