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
    "actor_runtime_env",
    "call_actor",
    "prestart_workers",
    "proxy_runtime_env",
    "reachable_host",
    "shares_process",
    "stop_with_session",
    "wait_until_stopped",
]

# What of applications is slow to import, and where: preloaded if the process that starts others has it, as those will.
_PRELOADED_LIBRARIES = {
    "pydantic.main": "skate.serve._preloaded.models",
    "fastapi": "skate.serve._preloaded.fastapi",
}


def shares_process() -> bool:
    """Tell whether actors live in the process of the program."""
    return engine_name() == "inline"


def stop_with_session(loop: ServeLoop) -> None:
    """See that an actor's loop ends with the session: there is no process that would end it."""
    if shares_process():
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


def actor_runtime_env(runtime_env: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the runtime environment of the controller and of replicas.

    They are forked from a process that has imported what they need; with it what applications need, if this process
    has imported that too.
    """
    libraries = [ours for theirs, ours in _PRELOADED_LIBRARIES.items() if theirs in sys.modules]
    return _with_preload(["skate.serve._preloaded.core", *libraries], runtime_env)


def proxy_runtime_env() -> dict[str, Any]:
    """Return the runtime environment of the proxy, which needs other things: both are imported at the same time."""
    return _with_preload(["skate.serve._preloaded.proxy"])


def _with_preload(modules: list[str], runtime_env: dict[str, Any] | None = None) -> dict[str, Any]:
    runtime_env = runtime_env or {}
    return {**runtime_env, "preload": [*modules, *(runtime_env.get("preload") or ())]}


def prestart_workers(*environments: dict[str, Any]) -> None:
    """Have processes for Serve's actors made ready, and do not wait: there is enough to do here meanwhile."""
    if engine_name() == "local":
        for each in environments:
            skate.remote(_do_nothing).options(num_cpus=0, runtime_env=each).remote()


def _do_nothing() -> None:
    """Be a reason to have a process."""


async def call_actor(method: Any, *args: Any) -> Any:
    """Call an actor's method and wait for the answer, without blocking the running loop."""
    if shares_process():  # where the call itself does the work
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: skate.get(method.remote(*args)))
    return await method.remote(*args)


async def wait_until_stopped(actor: Any) -> None:
    """Wait until an actor has stopped; raises if its process died."""
    if shares_process():
        await asyncio.Event().wait()  # it ends when it is told to, and cannot die alone
    if not await actor.until_stopped.remote():
        await asyncio.Event().wait()  # another controller has taken over
