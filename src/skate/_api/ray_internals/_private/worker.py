"""Replaces `ray._private.worker`: the kind of this process."""

from __future__ import annotations

import skate._engine as engines
from skate._api.modes import SCRIPT_MODE, WORKER_MODE
from skate._base.ids import JobID, NodeID
from skate.runtime_context import worker_id


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

    @property
    def current_job_id(self) -> JobID:
        """The job of this process."""
        return JobID(engines.current().context().job)

    @property
    def current_node_id(self) -> NodeID:
        """The node that this process runs on."""
        return NodeID(engines.current().context().node)

    @property
    def worker_id(self) -> bytes:
        """The id of this process."""
        return bytes.fromhex(worker_id(engines.current().context().worker))


global_worker = Worker()

__all__ = ["SCRIPT_MODE", "WORKER_MODE", "Worker", "global_worker"]
