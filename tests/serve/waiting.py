"""Waiting for what nobody tells: it is asked for again and again, for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

EVENT_TIMEOUT_S = 60.0


def until(condition: Callable[[], Any], told: Callable[[], Any] = lambda: "") -> Any:
    """Wait until a condition holds, and return what it gave; fails with what `told` says."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, told()
        threading.Event().wait(0.02)
    return found
