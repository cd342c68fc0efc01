"""Facts about this machine and its limits, for the libraries and the command line."""

from __future__ import annotations

from skate._base.memory import free as free_memory
from skate._engine.common.machine_facts import LITTLE_SHARED_MEMORY, MORE_SHARED_MEMORY, free_space
from skate._engine.common.open_files import attainable_limit

__all__ = [
    "LITTLE_SHARED_MEMORY",
    "MORE_SHARED_MEMORY",
    "attainable_limit",
    "free_memory",
    "free_space",
]
