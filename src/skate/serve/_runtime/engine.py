"""Compatibility with the engines. On the inline engine, all actors of Serve share the program's process."""

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

# Slow libraries, and the modules that preload them if the process that starts actors has imported them.
_PRELOADED_LIBRARIES = {
    "pydantic.main": "skate.serve._preloaded.models",
    "fastapi": "skate.serve._preloaded.fastapi",
}


def shares_process() -> bool:
    """Return whether actors run in the program's process."""
    return engine_name() == "inline"


def stop_with_session(loop: ServeLoop) -> None:
    """Stop an actor's loop at the end of the session if no process exit would stop it."""
    if shares_process():
        on_shutdown(loop.stop)


def reachable_host() -> str | None:
    """Return the address at which other machines reach this one, or None on a single machine."""
    return skate.util.get_node_ip_address() if engine_name() == "ray" else None


@functools.cache
def actor_class(kind: type, title: str) -> Any:
    """Return an actor class that listings show under a title, as Ray's do.

    Cached, because the engine treats every result as a different class.
    """
    return skate.remote(type(title, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__}))


def actor_runtime_env(runtime_env: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the runtime environment of the controller and of replicas.

    Their processes are forked from one that has imported what they need, and also the slow libraries that this
    process has imported.
    """
    libraries = [ours for theirs, ours in _PRELOADED_LIBRARIES.items() if theirs in sys.modules]
    return _with_preload(["skate.serve._preloaded.core", *libraries], runtime_env)


def proxy_runtime_env() -> dict[str, Any]:
    """Return the runtime environment of the proxy, which preloads other modules than replicas do."""
    return _with_preload(["skate.serve._preloaded.proxy"])


def _with_preload(modules: list[str], runtime_env: dict[str, Any] | None = None) -> dict[str, Any]:
    runtime_env = runtime_env or {}
    return {**runtime_env, "preload": [*modules, *(runtime_env.get("preload") or ())]}


def prestart_workers(*environments: dict[str, Any]) -> None:
    """Start processes for Serve's actors in the background."""
    if engine_name() == "local":
        for each in environments:
            skate.remote(_do_nothing).options(num_cpus=0, runtime_env=each).remote()


def _do_nothing() -> None:
    """Run as a task that makes the engine start a process."""


async def call_actor(method: Any, *args: Any) -> Any:
    """Call an actor's method and return its result, without blocking the running loop."""
    if shares_process():  # the call itself blocks
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: skate.get(method.remote(*args)))
    return await method.remote(*args)


async def wait_until_stopped(actor: Any) -> None:
    """Wait until an actor has stopped; raise if its process died."""
    if shares_process():
        await asyncio.Event().wait()  # it cannot die alone
    if not await actor.until_stopped.remote():
        await asyncio.Event().wait()  # another controller waits instead
