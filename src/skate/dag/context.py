"""Default settings of compiled graphs."""

from __future__ import annotations

import threading

from skate._base import variables

_lock = threading.Lock()
_current: DAGContext | None = None


class DAGContext:
    """The default settings of compiled graphs in this process.

    Each can be set in the environment as `SKATE_CGRAPH_<name>` or `RAY_CGRAPH_<name>`.

    Args:
        submit_timeout: Seconds that `execute` waits for a free slot; -1 waits forever.
        get_timeout: Seconds that `get` waits for a result; -1 waits forever.
        teardown_timeout: Seconds that `teardown` may take.
        read_iteration_timeout: Accepted as in Ray; Skate has no channels to poll.
        buffer_size_bytes: Accepted as in Ray; Skate sizes objects as needed.
        max_inflight_executions: Maximum number of executions in flight.
        max_buffered_results: Maximum number of executions with buffered results.
        overlap_gpu_communication: Accepted as in Ray.
    """

    def __init__(
        self,
        submit_timeout: float | None = None,
        get_timeout: float | None = None,
        teardown_timeout: float | None = None,
        read_iteration_timeout: float | None = None,
        buffer_size_bytes: int | None = None,
        max_inflight_executions: int | None = None,
        max_buffered_results: int | None = None,
        overlap_gpu_communication: bool | None = None,
    ) -> None:
        self.submit_timeout = _setting("submit_timeout", submit_timeout, 10.0)
        self.get_timeout = _setting("get_timeout", get_timeout, 10.0)
        self.teardown_timeout = _setting("teardown_timeout", teardown_timeout, 30.0)
        self.read_iteration_timeout = _setting("read_iteration_timeout", read_iteration_timeout, 0.1)
        self.buffer_size_bytes = int(_setting("buffer_size_bytes", buffer_size_bytes, 1e6))
        self.max_inflight_executions = int(_setting("max_inflight_executions", max_inflight_executions, 10))
        self.max_buffered_results = int(_setting("max_buffered_results", max_buffered_results, 1000))
        self.overlap_gpu_communication = bool(
            _setting("overlap_gpu_communication", overlap_gpu_communication, 0)
        )

    @staticmethod
    def get_current() -> DAGContext:
        """Return the settings of this process; changes apply to graphs compiled later."""
        global _current
        with _lock:
            if _current is None:
                _current = DAGContext()
            return _current


def _setting(name: str, given: float | None, default: float) -> float:
    if given is not None:
        return given
    return variables.number(f"CGRAPH_{name}", default)
