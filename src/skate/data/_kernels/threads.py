"""The number of threads of the kernels in this process."""

from __future__ import annotations

import os
import sys

_VARIABLE = "POLARS_MAX_THREADS"
# The value set by this module: a worker may become an actor with more CPUs before it imports Polars.
_own_limit: str | None = None


def limit(count: int) -> bool:
    """Limit the kernels of this process to `count` threads.

    Polars creates one thread pool per process and reads its size when it is imported, so call this at the start of a
    worker. A number that the user set in the environment stays.

    Args:
        count: Number of threads, at least one; for a task, its number of CPUs.

    Returns:
        Whether the limit took effect: False if Polars was already imported, or the user set the number.
    """
    global _own_limit
    if "polars" in sys.modules or os.environ.get(_VARIABLE) != _own_limit:
        return False
    os.environ[_VARIABLE] = _own_limit = str(max(1, count))
    return True
