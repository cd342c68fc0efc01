"""The Serve runtime of a process: event loop, link to the controller, and a router per called deployment."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import msgspec

import skate
from skate._api import tracing
from skate.serve._observability import hooks
from skate.serve._router.router import Router
from skate.serve._runtime.engine import call_actor, shares_process
from skate.serve._runtime.ids import CONTROLLER_NAME, NAMESPACE, DeploymentID, new_id
from skate.serve._runtime.loop import ServeLoop
from skate.serve._wire.address import Address
from skate.serve._wire.frames import Frame, Subscribe, Update, acknowledgement_key
from skate.serve._wire.link import Link, LinkClosed, connect
from skate.serve._wire.updates import DeploymentUpdate, LoadReport
from skate.serve.exceptions import RayServeException
from skate.util._session import on_shutdown

__all__ = ["Runtime", "close_runtime", "current_runtime", "is_known", "prepare", "set_loop"]

logger = logging.getLogger("skate.serve")

_lock = threading.Lock()
_current: Runtime | None = None
_own_loop: ServeLoop | None = None  # the event loop of the replica or proxy that this process runs

_RECONNECT_DELAY_S = 0.1


class Runtime:
    """The state that the handles of this process share."""

    def __init__(self, loop: ServeLoop | None) -> None:
        self.name = new_id(16)
        self.serve_loop = loop or ServeLoop()
        self._owns_loop = loop is None
        if tracing.tracer() is not None and hooks.start_route_span is None:
            from skate.serve._observability.tracing import use_program_provider

            use_program_provider()
        self._routers: dict[str, Router] = {}
        self._callbacks: dict[str, Any] = {}
        self._acknowledged: set[str] = set()  # topics whose updates are acknowledged to the controller
        self._link: Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def router(self, id: DeploymentID) -> Router:
        """Return the router of a deployment. On the Serve event loop only."""
        router = self._routers.get(id.key)
        if router is None:
            router = self._routers[id.key] = Router(id, self.name, self._report)

            def callback(data: bytes) -> None:
                router.update(msgspec.msgpack.decode(data, type=DeploymentUpdate))

            self.subscribe(f"deployment:{id.key}", callback)
        return router

    def subscribe(self, key: str, callback: Any, *, acknowledge: bool = False) -> None:
        """Call a function with the current value of a topic and with each update. On the Serve event loop only.

        Args:
            key: The topic.
            callback: Called with each value.
            acknowledge: Whether to acknowledge each value to the controller.
        """
        self._callbacks[key] = callback
        if acknowledge:
            self._acknowledged.add(key)
        if self._link is not None:
            self._link.send(Subscribe(key))
        elif self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())

    def has_replicas(self, id: DeploymentID) -> bool:
        """Return whether this process is connected to a replica of a deployment."""
        router = self._routers.get(id.key)
        return router is not None and router.has_replicas

    def retain(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task until it is done, because the event loop does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _report(self, report: LoadReport) -> None:
        if self._link is not None:
            self._link.send(Update("load", msgspec.msgpack.encode(report)))

    async def _connect(self) -> None:
        """Connect to the controller and subscribe to all topics. Retry, because the controller may be restarting."""
        loop = asyncio.get_running_loop()
        while not self._is_closed:
            try:
                controller = await loop.run_in_executor(None, _find_controller)
                address: Address = await call_actor(controller.address)
                link = await connect(address, self._receive, self._closed, self.name)
            except (LinkClosed, ValueError, skate.exceptions.RayActorError) as error:
                if isinstance(error, ValueError) and not self._link:
                    logger.debug("The Serve controller does not exist now: %s", error)
                await asyncio.sleep(_RECONNECT_DELAY_S)  # the engine does not report new named actors
                continue
            self._link = link
            self._connecting = None
            for key in self._callbacks:
                link.send(Subscribe(key))
            return

    def _receive(self, link: Link, frame: Frame) -> None:
        if isinstance(frame, Update):
            callback = self._callbacks.get(frame.key)
            if callback is not None:
                callback(frame.value)
            if frame.key in self._acknowledged:
                link.send(Update(acknowledgement_key(frame.key), frame.value))

    def _closed(self, _: Link) -> None:
        self._link = None
        if not self._is_closed and self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())

    async def _close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.abort()
        for router in self._routers.values():
            await router.close()

    def close(self) -> None:
        """Close all connections, and stop the event loop if this object created it."""
        if self.serve_loop.loop.is_closed():
            return
        if self.serve_loop.is_current:
            self.serve_loop.loop.create_task(self._close())
            return
        self.serve_loop.wait(self._close())
        if self._owns_loop:
            self.serve_loop.stop()


def _find_controller() -> Any:
    if not skate.is_initialized():
        raise LinkClosed("the session is over")  # `get_actor` would start another session
    return skate.get_actor(CONTROLLER_NAME, NAMESPACE)


def set_loop(loop: ServeLoop) -> None:
    """Run the handles of this process on the event loop of its replica or proxy."""
    global _own_loop
    if not shares_process():
        _own_loop = loop


def current_runtime() -> Runtime:
    """Return the runtime of this process.

    Raises:
        RayServeException: If no session runs.
    """
    global _current
    runtime = _current
    if runtime is not None:
        return runtime
    with _lock:
        if _current is None:
            if not skate.is_initialized():
                raise RayServeException("Serve is not running: call serve.run or serve.start first.")
            _current = Runtime(_own_loop)
            on_shutdown(close_runtime)
        return _current


def prepare(id: DeploymentID) -> None:
    """Connect to the replicas of a deployment that this process is about to call."""
    runtime = current_runtime()
    runtime.serve_loop.call(runtime.router, id)


def is_known(id: DeploymentID) -> bool:
    """Return whether this process has a router for a deployment."""
    return _current is not None and id.key in _current._routers


def close_runtime() -> None:
    """Close the runtime of this process, because the session or Serve ended."""
    global _current
    with _lock:
        runtime, _current = _current, None
    if runtime is not None:
        runtime.close()
