"""Objects of web frameworks that pickle cannot bring to a replica by itself."""

from __future__ import annotations

import copyreg
import sys
import threading
from typing import Any

__all__ = ["register_reducers", "resolve_routes"]

_LOCK = type(threading.Lock())


def register_reducers() -> None:
    """Let pickle handle what applications of Starlette and FastAPI hold, if they are in use in this process."""
    starlette = sys.modules.get("starlette.datastructures")
    if starlette is not None:
        # Its attributes are looked up in a dict that does not exist yet while it is unpickled.
        copyreg.pickle(starlette.State, _reduce_state)
    routing = sys.modules.get("fastapi.routing")
    included = getattr(routing, "_IncludedRouter", None)
    if included is not None:
        copyreg.pickle(included, _reduce_without_locks)


def resolve_routes(router: Any) -> None:
    """Have a router of FastAPI work out the routes of those it includes, which it puts off to the first request.

    Their annotations may be text, `from __future__ import annotations`, whose names a function that is pickled by its
    value does not bring to the replica: there it would be too late.
    """
    for route in getattr(router, "routes", ()):
        _settle(route)


def _settle(route: Any) -> None:
    resolve_routes(route)  # of an application that is mounted
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
    """Return an object whose locks are free; the rest of its state follows."""
    made: Any = object.__new__(kind)
    for name in locks:
        object.__setattr__(made, name, threading.Lock())
    return made
