"""Detection of idle threads."""

from __future__ import annotations

from types import FrameType

_POOL = "concurrent/futures/thread.py"


def is_pool_worker(frame: FrameType) -> bool:
    """Return whether a frame is the loop of a ThreadPoolExecutor's thread."""
    return frame.f_code.co_name == "_worker" and frame.f_code.co_filename.endswith(_POOL)


def rests_in_pool(frame: FrameType | None) -> bool:
    """Return whether a thread, by its innermost frame, waits in a ThreadPoolExecutor without work."""
    if frame is None or not is_pool_worker(frame):
        return False
    variables = frame.f_locals
    queue = variables.get("work_queue")
    return queue is not None and queue.empty() and variables.get("work_item") is None
