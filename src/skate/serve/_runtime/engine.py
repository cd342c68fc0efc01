"""What differs where actors have no processes of their own: on the inline engine, all of Serve is in this one."""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import Any

import skate
import skate.util
from skate.serve._runtime.loop import ServeLoop
from skate.util._session import engine_name, on_shutdown

__all__ = [
    "actor_class",
    "adopt",
    "ask",
    "ended",
    "is_shared",
    "make_ready",
    "reachable_host",
    "surroundings",
    "surroundings_of_proxy",
]

# What of applications is slow to import, and where: preloaded if the process that starts others has it, as those will.
_LIBRARIES = {"pydantic.main": "skate.serve._preloaded.models", "fastapi": "skate.serve._preloaded.fastapi"}


def is_shared() -> bool:
    """Tell whether actors live in the process of the program."""
    return engine_name() == "inline"


def adopt(loop: ServeLoop) -> None:
    """See that an actor's loop ends with the session: there is no process that would end it."""
    if is_shared():
        on_shutdown(loop.stop)


def reachable_host() -> str | None:
    """Return the address at which other machines reach this one, where there may be others."""
    return skate.util.get_node_ip_address() if engine_name() == "ray" else None


@functools.cache
def actor_class(kind: type, title: str) -> Any:
    """Return an actor class that listings of actors show under a title, as Ray's do.

    Kept, since each one that is made is a class of its own to the engine.
    """
    return skate.remote(type(title, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__}))


def surroundings(given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the runtime environment of the controller and of replicas.

    They are forked from a process that has imported what they need; with it what applications need, if this process
    has imported that too.
    """
    libraries = [ours for theirs, ours in _LIBRARIES.items() if theirs in sys.modules]
    return _preloading(["skate.serve._preloaded.core", *libraries], given)


def surroundings_of_proxy() -> dict[str, Any]:
    """Return the runtime environment of the proxy, which needs other things: both are imported at the same time."""
    return _preloading(["skate.serve._preloaded.proxy"])


def _preloading(modules: list[str], given: dict[str, Any] | None = None) -> dict[str, Any]:
    given = given or {}
    return {**given, "preload": [*modules, *(given.get("preload") or ())]}


def make_ready(*environments: dict[str, Any]) -> None:
    """Have processes for Serve's actors made ready, and do not wait: there is enough to do here meanwhile."""
    if engine_name() == "local":
        for each in environments:
            skate.remote(_nothing).options(num_cpus=0, runtime_env=each).remote()


def _nothing() -> None:
    """Be a reason to have a process."""


async def ask(method: Any, *args: Any) -> Any:
    """Call an actor's method and wait for the answer, without blocking the running loop."""
    if is_shared():  # where the call itself does the work
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: skate.get(method.remote(*args)))
    return await method.remote(*args)


async def ended(actor: Any) -> None:
    """Wait until an actor has stopped; raises if its process died."""
    if is_shared():
        await asyncio.Event().wait()  # it ends when it is told to, and cannot die alone
    if not await actor.until_stopped.remote():
        await asyncio.Event().wait()  # another controller has taken over
