"""A worker of Ray that runs Skate's tasks: it is a part of the session from its first one on."""

from __future__ import annotations

import threading
from typing import Any

from skate._engine import holder

_lock = threading.Lock()


def attach() -> Any:
    """Make Ray the engine of this worker; return the engine."""
    running = holder.running()
    if running is not None:
        return running
    with _lock:
        if holder.running() is None:
            from skate._engine.ray.engine import RayEngine

            holder.adopt(RayEngine(owns_connection=False))
    return holder.running()


def enter_actor(facts: dict[str, Any]) -> None:
    """Note what the actor of this process is, for its handles to itself."""
    attach().own_actor = facts


def own_actor_id() -> bytes:
    """Return the id of the actor that this process is."""
    found: bytes = attach().actor_id()
    return found
