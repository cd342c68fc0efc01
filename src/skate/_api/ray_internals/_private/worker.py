"""Stands for `ray._private.worker`: what kind of process this is."""

from __future__ import annotations

import skate._engine as engines
from skate._api.modes import SCRIPT_MODE, WORKER_MODE


class Worker:
    """This process, as a part of the session."""

    @property
    def connected(self) -> bool:
        """Whether a session is running in this process."""
        return engines.running() is not None

    @property
    def mode(self) -> int | None:
        """`SCRIPT_MODE` in a driver, `WORKER_MODE` in a worker, None without a session."""
        engine = engines.running()
        if engine is None:
            return None
        return WORKER_MODE if engine.is_worker else SCRIPT_MODE


global_worker = Worker()

__all__ = ["SCRIPT_MODE", "WORKER_MODE", "Worker", "global_worker"]
