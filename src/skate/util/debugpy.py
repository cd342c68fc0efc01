"""Breakpoints for editors that use debugpy, such as Visual Studio Code."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

from skate.util.node import LOOPBACK

__all__ = ["set_trace"]

_log = logging.getLogger(__name__)
_address: tuple[str, int] | None = None  # the address on which debugpy listens, in this process


def set_trace(breakpoint_uuid: str | None = None) -> None:
    """Wait until an editor attaches, and stop in the caller. Without debugpy, log an error and return, as in Ray.

    The logged address is on this machine. `skate.util.rpdb.set_trace`, which ``breakpoint()`` calls in a worker, needs
    no editor.

    Args:
        breakpoint_uuid: Accepted as in Ray, without effect.
    """
    global _address
    try:
        debugpy: Any = importlib.import_module("debugpy")
    except ImportError:
        _log.error("The breakpoint has no effect, because debugpy is not installed: pip install debugpy")
        return
    if _address is None:
        _address = debugpy.listen((LOOPBACK, 0))
    _log.warning("A breakpoint waits for a debugger to attach to %s:%s", *_address)
    debugpy.wait_for_client()
    importlib.import_module("pydevd").settrace(stop_at_frame=sys._getframe(1))
