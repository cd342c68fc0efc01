"""The actor of a replica: what the controller asks of it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import skate
from skate._api.payloads import unpack
from skate.exceptions import RayTaskError
from skate.serve._replica.http import HttpHandler
from skate.serve._replica.lifespan import Lifespan
from skate.serve._replica.routing_stats import RoutingStats
from skate.serve._replica.server import RequestServer
from skate.serve._replica.spec import ReplicaSpec
from skate.serve._replica.threads import ThreadLimit
from skate.serve._replica.user_code import UserCode, is_asynchronous
from skate.serve._router.runtime import set_loop
from skate.serve._runtime.engine import reachable_host, stop_with_session
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve._runtime.loop import ServeLoop
from skate.serve._runtime.stop_event import StopEvent
from skate.serve._watch.replica import ReplicaWatch
from skate.serve._wire import Address, Listener
from skate.serve.context import ReplicaContext, _in_replica, _set_replica
from skate.serve.handle import _held_by
from skate.serve.multiplex import loaded_model_ids, on_change, unload_models
from skate.serve.task_consumer import TaskConsumerWrapper

__all__ = ["Replica"]


class Replica:
    """One copy of a deployment. Requests do not come through the actor's methods but over links: see `RequestServer`.

    Its methods block, in threads of the actor, while the work is done on the loop of Serve. The user's code may block
    that loop, so what the controller asks for now and then is answered without it: see `check_health` and `stats`. A
    controller that took the place of another one may ask again for what is being done, or has been done.
    """

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._id: ReplicaID = spec.id
        self._ending = StopEvent()
        self._turn = threading.Lock()  # of those who start it, then of those who stop it
        self._started: Future[dict[str, Any]] | None = None
        self._loop = ServeLoop()
        stop_with_session(self._loop)
        set_loop(self._loop)
        self._parts: _Parts | None = None

    def begun(self) -> None:
        """Return: the replica has got its resources, and a process."""

    def start(self) -> dict[str, Any]:
        """Make the user's object, listen for requests, and return where."""
        with self._turn:
            if self._started is None:
                self._started = Future()
                try:
                    self._started.set_result(self._start())
                except BaseException as error:
                    self._started.set_exception(error)
        return self._started.result()

    def _start(self) -> dict[str, Any]:
        try:
            self._parts = self._loop.wait(_Parts.make(self._spec))
        except Exception as error:
            raise _told(error, self._id) from None
        return {
            "address": self._parts.address,
            "pid": os.getpid(),
            "node": skate.get_runtime_context().get_node_id(),
            "is_asgi": self._parts.http.app is not None,
            "docs_path": getattr(self._parts.http.app, "docs_url", None),
        }

    def reconfigure(self, spec: ReplicaSpec) -> None:
        """Take on options that do not need a new replica."""
        parts = self._need()
        before, self._spec = self._spec, spec
        changed = spec.options.user_config != before.options.user_config or (
            spec.rank != before.rank and parts.code.reconfigure_takes_rank
        )
        try:
            self._loop.wait(parts.reconfigure(spec, changed))
        except Exception as error:
            raise _told(error, self._id) from None

    def check_health(self) -> None:
        """Raise if the user's object says that it is not well.

        Only a `check_health` that is a coroutine function needs the loop, and fails while other code blocks it.
        """
        parts = self._need()
        began = time.perf_counter()
        is_well = False
        try:
            if parts.code.health_check is not None:
                self._ask_user(parts, parts.code.health_check)
            is_well = True
        except Exception as error:
            raise _told(error, self._id) from None
        finally:
            self._loop.call(parts.watch.checked, time.perf_counter() - began, is_well)

    def stats(self) -> dict[str, Any]:
        """Return how busy the replica is, and what the user's object measured for autoscaling."""
        parts = self._need()
        measures = parts.code.has_autoscaling_stats
        custom: dict[str, float] | None = None
        if measures:
            with parts.watch.measuring():
                custom = self._ask_user(parts, parts.code.instance.record_autoscaling_stats)
        return {
            "running": parts.server.load,
            "custom": custom or {},
            "measures": measures,
            "at": time.time(),
        }

    def _ask_user(self, parts: _Parts, function: Callable[[], Any]) -> Any:
        """Call a method of the user's object: in this thread, or on the loop if it is asynchronous."""
        context = contextvars.copy_context()
        context.run(_in_replica.set, parts.server.replica)
        if not is_asynchronous(function):
            result = context.run(function)
            if not inspect.isawaitable(result):
                return result
            return self._loop.wait(_awaited(result))

        async def call() -> Any:
            _in_replica.set(parts.server.replica)
            return await function()

        return self._loop.wait(call())

    def list_outbound_deployments(self) -> list[DeploymentID]:
        """Return the deployments that the user's object was given handles to, or has asked for."""
        return _held_by(self._id)

    def deliver(self, caller: str, id: int, names: list[str], *values: Any) -> None:
        """Take arguments of a call that comes over a link."""
        count = len(values) - len(names)
        given = values[:count], dict(zip(names, values[count:], strict=True))
        self._loop.call(self._need().server.exchange.deliver, caller, id, given)

    def collect(self, caller: str, id: int, number: int) -> Any:
        """Return the answer to a call that came over a link."""
        exchange = self._need().server.exchange
        value = exchange.collect(caller, id, number)
        self._loop.call(exchange.note_collected)
        return value

    def stop(self, grace_s: float) -> None:
        """Answer what is under way, for so long at most, then end the user's object."""
        with self._turn:
            if self._ending.is_over:
                return
            if self._parts is not None:
                self._loop.wait(self._parts.stop(grace_s))
            self._loop.stop()
            self._ending.set()

    def until_stopped(self) -> bool:
        """Return when the replica has been stopped; whoever waits for it learns at once if the process dies."""
        return self._ending.wait()

    def _need(self) -> _Parts:
        if self._parts is None:
            raise RuntimeError(f"{self._id} has not been started.")
        return self._parts


class _Parts:
    """What a replica consists of once it has started."""

    code: UserCode
    http: HttpHandler
    server: RequestServer
    address: Address
    lifespan: Lifespan | None = None
    listener: Listener
    routing_stats: RoutingStats
    threads: ThreadLimit
    watch: ReplicaWatch

    @classmethod
    async def make(cls, spec: ReplicaSpec) -> _Parts:
        began = time.perf_counter()
        parts = cls()
        parts.watch = ReplicaWatch(
            spec.id, spec.watch, spec.options.logging_config, lambda: parts.server.load
        )
        parts._introduce(spec, None)
        target = unpack(spec.code)
        args, kwargs = unpack(spec.init)
        parts.code = code = UserCode(target, spec.options.max_ongoing_requests)
        await code.create(args, kwargs)
        context = parts._introduce(spec, code.instance)
        app = getattr(code.instance, "_skate_asgi_app", None)
        if app is not None:
            app = app()
            parts.lifespan = Lifespan(app)
            await parts.lifespan.start()
        await code.reconfigure(spec.options.user_config, context)
        await code.check_health()
        parts.threads = ThreadLimit(spec.options.max_ongoing_requests)
        parts.http = HttpHandler(code, parts.threads, app)
        parts.server = RequestServer(
            code, spec.options.max_ongoing_requests, parts.http, context, parts.watch
        )
        on_change(lambda ids: parts.server.tell_models(sorted(ids)))
        if isinstance(code.instance, TaskConsumerWrapper):
            await code.in_thread(code.instance.initialize_callable, spec.options.max_ongoing_requests)
        parts.routing_stats = RoutingStats(code, parts.server.tell_stats)
        parts.routing_stats.start(spec.options)
        parts.listener = Listener(parts.server.opened, parts._about, reachable_host())
        parts.address = await parts.listener.open()
        parts.watch.started(time.perf_counter() - began)
        return parts

    def _introduce(self, spec: ReplicaSpec, instance: Any) -> ReplicaContext:
        context = ReplicaContext(
            spec.id,
            instance,
            spec.options,
            _rank=spec.rank,
            world_size=spec.world_size,
            gang_context=spec.gang,
            code_version=spec.version,
        )
        _set_replica(context)
        return context

    def _about(self) -> dict[str, Any]:
        return {"models": sorted(loaded_model_ids()), "stats": self.routing_stats.packed}

    async def reconfigure(self, spec: ReplicaSpec, user_config_changed: bool) -> None:
        self.watch.configure(spec.options.logging_config)
        self.server.capacity = spec.options.max_ongoing_requests
        self.threads.change(spec.options.max_ongoing_requests)
        self.server.replica = self._introduce(spec, self.code.instance)
        self.routing_stats.start(spec.options)
        if user_config_changed:
            async with self.server.turns.alone():
                began = time.perf_counter()
                await self.code.reconfigure(spec.options.user_config, self.server.replica)
                self.watch.reconfigured(time.perf_counter() - began)

    async def stop(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
                await self.server.drain()
        except TimeoutError:
            await self.server.cancel_all()
        if self.lifespan is not None:
            await self.lifespan.end()
        self.routing_stats.stop()
        await unload_models()
        await self.code.destroy()
        await self.listener.close()
        self.watch.close()


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _told(error: Exception, id: ReplicaID) -> Exception:
    """Return an error of the user's code with its traceback as text, which survives the way to the controller."""
    if isinstance(error, RayTaskError):
        return error
    return RuntimeError(str(RayTaskError.from_exception(id.deployment_id.name, error)))
