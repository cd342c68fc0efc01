"""Cancellation on Ray, delayed while a module is being imported.

Ray cancels a running task with an interrupt in the main thread of its worker, which then runs other tasks. An
interrupted import would leave half a module behind, and each later task that needs the module would fail.
"""

from __future__ import annotations

import _thread
import signal
import time
from types import FrameType

from skate._base.alias import real_ray
from skate._engine.common import signals


class _Interrupts:
    """Passes SIGINT on to Python while no module is being imported."""

    def __init__(self) -> None:
        self._task: str | None = None  # whose interrupt is delayed
        self._since = 0.0

    def arrived(self, number: int, frame: FrameType | None) -> None:
        task = real_ray().get_runtime_context().get_task_id()
        if self._task is not None and self._task != task:
            self._task = None  # it has ended; the interrupt was not meant for the next task
            return
        now = time.monotonic()
        if self._task is None:
            self._since = now
        if signals.is_importing(frame) and now - self._since < signals.IMPORT_TIMEOUT_S:
            self._task = task
            _thread.start_new_thread(_send_again, ())
            return
        self._task = None
        signal.default_int_handler(number, frame)


def spare_imports() -> None:
    """Handle SIGINT if this is the main thread of a worker of Ray and no other handler is installed."""
    worker = real_ray("ray._private.worker")
    if worker.global_worker.mode != worker.WORKER_MODE:
        return
    if signals.is_free(signal.SIGINT, signal.default_int_handler):
        signals.install(signal.SIGINT, _Interrupts().arrived, signal.default_int_handler)


def _send_again() -> None:
    time.sleep(signals.RESEND_INTERVAL_S)
    _thread.interrupt_main()
