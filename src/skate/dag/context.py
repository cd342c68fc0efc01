"""Settings that compiled graphs take when they are not given any."""

from __future__ import annotations

import threading

from skate._base import variables

_lock = threading.Lock()
_current: DAGContext | None = None


class DAGContext:
    """The defaults of compiled graphs in this process.

    Each can be set in the environment as `SKATE_CGRAPH_<name>` or `RAY_CGRAPH_<name>`.

    Args:
        submit_timeout: Seconds that `execute` waits for room; -1 is for ever.
        get_timeout: Seconds that `get` waits for a result; -1 is for ever.
        teardown_timeout: Seconds that `teardown` may take.
        read_iteration_timeout: Accepted for Ray's sake; Skate has no channels to poll.
        buffer_size_bytes: Accepted for Ray's sake; Skate's objects have the size they need.
        max_inflight_executions: How many executions may wait for somebody to get their results.
        max_buffered_results: How many results may be kept for executions that were overtaken.
        overlap_gpu_communication: Accepted for Ray's sake.
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
        """Return the settings of this process; changing them changes graphs compiled later."""
        global _current
        with _lock:
            if _current is None:
                _current = DAGContext()
            return _current


def _setting(name: str, given: float | None, default: float) -> float:
    if given is not None:
        return given
    return variables.number(f"CGRAPH_{name}", default)
