"""Holds the running engine of this process."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from skate._base import variables
from skate._base.errors import RaySystemError

if TYPE_CHECKING:
    from skate._engine.abc import Engine

_engine: Engine | None = None
_lock = threading.RLock()


def current() -> Engine:
    """Return the running engine; start the default one if none is running.

    Raises:
        RaySystemError: None is running, and RAY_ENABLE_AUTO_CONNECT forbids to start one.
    """
    engine = _engine
    return _start() if engine is None else engine


def _start() -> Engine:
    with _lock:
        if _engine is None:
            if not variables.flag("ENABLE_AUTO_CONNECT", True):
                raise RaySystemError(
                    "Ray has not been started yet. Call init() first: RAY_ENABLE_AUTO_CONNECT=0 forbids to start a "
                    "session implicitly."
                )
            # The package imports the modules that start an engine when `init` is looked up.
            sys.modules[__name__.partition(".")[0]].init()
        assert _engine is not None
        return _engine


def running() -> Engine | None:
    """Return the running engine, or None."""
    return _engine


def adopt(engine: Engine) -> None:
    """Make `engine` the running one."""
    global _engine
    _engine = engine


def leave() -> None:
    """Forget the running engine."""
    global _engine
    _engine = None
