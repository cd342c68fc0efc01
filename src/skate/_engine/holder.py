"""Holds the running engine of this process."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate._engine.protocol import Engine

_engine: Any = None
_lock = threading.RLock()


def current() -> Any:
    """Return the running engine, starting the default one if there is none."""
    if _engine is None:
        with _lock:
            if _engine is None:
                # The package loads what starts an engine when it is asked for it.
                sys.modules[__name__.partition(".")[0]].init()
    return _engine


def running() -> Any:
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
