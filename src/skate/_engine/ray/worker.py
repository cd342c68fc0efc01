"""A worker of Ray that runs Skate's tasks; it joins the session with the first one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from skate._engine import holder

if TYPE_CHECKING:
    from skate._engine.abc import ActorDescription
    from skate._engine.ray.engine import RayEngine

_lock = threading.Lock()


def attach() -> RayEngine:
    """Make Ray the engine of this worker; return the engine."""
    if holder.running() is None:
        with _lock:
            if holder.running() is None:
                from skate._engine.ray.engine import RayEngine

                holder.adopt(RayEngine(owns_connection=False))
    return cast("RayEngine", holder.running())


def enter_actor(description: ActorDescription) -> None:
    """Record the actor of this process, for its handles to itself."""
    attach().own_actor = description


def own_actor_id() -> bytes:
    """Return the id of this process's actor."""
    return attach().actor_id()
