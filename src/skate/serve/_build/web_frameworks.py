"""Pickling support for objects of web frameworks."""

from __future__ import annotations

import copyreg
import sys
import threading
from typing import Any

__all__ = ["register_reducers", "resolve_routes"]

_LOCK = type(threading.Lock())


def register_reducers() -> None:
    """Register reducers for objects of Starlette and FastAPI that pickle cannot handle, if these are imported."""
    starlette = sys.modules.get("starlette.datastructures")
    if starlette is not None:
        # Attribute access uses a dict that does not exist yet during unpickling.
        copyreg.pickle(starlette.State, _reduce_state)
    routing = sys.modules.get("fastapi.routing")
    included = getattr(routing, "_IncludedRouter", None)
    if included is not None:
        copyreg.pickle(included, _reduce_without_locks)


def resolve_routes(router: Any) -> None:
    """Resolve the routes of included FastAPI routers, which FastAPI defers to the first request.

    With `from __future__ import annotations`, annotations are strings. A function that is pickled by value does not
    bring the names in them to the replica, so the first request would fail there.
    """
    for route in getattr(router, "routes", ()):
        _settle(route)


def _settle(route: Any) -> None:
    resolve_routes(route)  # of a mounted application
    find = getattr(route, "effective_candidates", None)
    if find is not None:
        for candidate in find():
            _settle(candidate)
        route.effective_low_priority_routes()


def _reduce_state(state: Any) -> Any:
    return type(state), (dict(state._state),)


def _reduce_without_locks(value: Any) -> Any:
    locks = [name for name, each in vars(value).items() if isinstance(each, _LOCK)]
    others = {name: each for name, each in vars(value).items() if name not in locks}
    return _with_new_locks, (type(value), locks), others


def _with_new_locks(kind: type, locks: list[str]) -> Any:
    """Return an object with new locks; pickle restores the rest of its state."""
    made: Any = object.__new__(kind)
    for name in locks:
        object.__setattr__(made, name, threading.Lock())
    return made
