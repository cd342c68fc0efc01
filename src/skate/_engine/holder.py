"""Holds the running engine of this process."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate._engine.abc import Engine

_engine: Engine | None = None
_lock = threading.RLock()


def current() -> Engine:
    """Return the running engine; start the default one if none is running."""
    engine = _engine
    return _start() if engine is None else engine


def _start() -> Engine:
    with _lock:
        if _engine is None:
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
