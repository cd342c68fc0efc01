"""Information about the running session, for the utilities. No function here starts a session."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import skate
import skate._engine as engines

if TYPE_CHECKING:
    from skate._base.remote_pdb import Breakpoint  # which imports pdb
    from skate._engine.abc import Engine

__all__ = ["announce_breakpoint", "engine_name", "on_shutdown", "session_folder", "worker_folder"]

_last_seen: tuple[weakref.ref[Engine] | None, str | None] = (None, None)


def engine_name() -> str | None:
    """Return the name of the running engine, or None."""
    engine = engines.running()
    return None if engine is None else engine.name


def session_folder() -> str | None:
    """Return the folder of this session, which all its processes share; None if there is none."""
    global _last_seen
    engine = engines.running()
    if engine is None or engine.name != "local":
        return None
    seen, folder = _last_seen
    if seen is None or seen() is not engine:
        folder = engine.context().session
        _last_seen = weakref.ref(engine), folder
    return folder


def worker_folder() -> str | None:
    """Return the folder of the session if this process is one of its workers; None in the driver."""
    folder = session_folder()
    if folder is None:
        return None
    context = skate.get_runtime_context()
    return None if context.get_task_id() is None and context.get_actor_id() is None else folder


def announce_breakpoint(stop: Breakpoint) -> bool:
    """Tell the driver that this worker has stopped; return whether the driver has a terminal to connect."""
    engine = engines.running()
    return engine is not None and engine.announce_breakpoint(stop)


def on_shutdown(callback: Callable[[], None]) -> None:
    """Call `callback` when the running session ends in this process."""
    engine = engines.running()
    if engine is not None:
        engine.on_shutdown(callback)
