"""The replica actor, which the controller starts, checks and stops."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import skate
from skate._api.payloads import pack, unpack
from skate.exceptions import RayTaskError
from skate.serve._config import defaults
from skate.serve._config.options import DeploymentOptions
from skate.serve._observability.observers import ReplicaObserver
from skate.serve._observability.options import ObservabilityOptions
from skate.serve._replica.http_handler import HttpHandler, Lifespan
from skate.serve._replica.server import RequestServer
from skate.serve._replica.user_code import ThreadLimit, UserCode, is_asynchronous
from skate.serve._router.runtime import set_loop
from skate.serve._runtime.engine import reachable_host, stop_with_session
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve._runtime.loop import ServeLoop
from skate.serve._runtime.stop_event import StopEvent
from skate.serve._wire import Address, Listener
from skate.serve.context import ReplicaContext, _in_replica, _set_replica
from skate.serve.gang import GangContext
from skate.serve.handle import _held_by
from skate.serve.multiplex import loaded_model_ids, on_change, unload_models
from skate.serve.task_consumer import TaskConsumerWrapper

__all__ = ["Replica", "ReplicaSpec", "RoutingStats"]

logger = logging.getLogger("skate.serve")


class Replica:
    """A replica of a deployment.

    Requests do not use the actor's methods, but links: see `RequestServer`. The methods block threads of the actor
    while the work runs on the replica's event loop. User code may block that loop, so `check_health` and `stats` do not
    depend on it. A restarted controller may repeat calls that are ongoing or done.
    """

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._id: ReplicaID = spec.id
        self._stopped = StopEvent()
        self._lifecycle_lock = threading.Lock()  # held while the replica starts or stops
        self._started: Future[dict[str, Any]] | None = None
        self._loop = ServeLoop()
        stop_with_session(self._loop)
        set_loop(self._loop)
        self._components: _Components | None = None

    def begun(self) -> None:
        """Return when the replica's process runs, with its resources."""

    def start(self) -> dict[str, Any]:
        """Create the user's object, listen for requests, and return the address and facts of the replica."""
        with self._lifecycle_lock:
            if self._started is None:
                self._started = Future()
                try:
                    self._started.set_result(self._start())
                except BaseException as error:
                    self._started.set_exception(error)
        return self._started.result()

    def _start(self) -> dict[str, Any]:
        try:
            self._components = self._loop.wait(_Components.make(self._spec))
        except Exception as error:
            raise _as_runtime_error(error, self._id) from None
        return {
            "address": self._components.address,
            "pid": os.getpid(),
            "node": skate.get_runtime_context().get_node_id(),
            "is_asgi": self._components.http.app is not None,
            "docs_path": getattr(self._components.http.app, "docs_url", None),
        }

    def reconfigure(self, spec: ReplicaSpec) -> None:
        """Apply options that do not need a new replica."""
        components = self._require_components()
        before, self._spec = self._spec, spec
        changed = spec.options.user_config != before.options.user_config or (
            spec.rank != before.rank and components.code.reconfigure_takes_rank
        )
        try:
            self._loop.wait(components.reconfigure(spec, changed))
        except Exception as error:
            raise _as_runtime_error(error, self._id) from None

    def check_health(self) -> None:
        """Raise if the user's `check_health` fails.

        A `check_health` coroutine function needs the event loop, and fails while other code blocks it.
        """
        components = self._require_components()
        began = time.perf_counter()
        is_healthy = False
        try:
            if components.code.health_check is not None:
                self._call_user(components, components.code.health_check)
            is_healthy = True
        except Exception as error:
            raise _as_runtime_error(error, self._id) from None
        finally:
            self._loop.call(components.observer.checked, time.perf_counter() - began, is_healthy)

    def stats(self) -> dict[str, Any]:
        """Return the load of the replica, and the result of `record_autoscaling_stats`."""
        components = self._require_components()
        measures = components.code.has_autoscaling_stats
        custom: dict[str, float] | None = None
        if measures:
            with components.observer.measure_autoscaling_stats():
                custom = self._call_user(components, components.code.instance.record_autoscaling_stats)
        return {
            "running": components.server.load,
            "custom": custom or {},
            "measures": measures,
            "at": time.time(),
        }

    def _call_user(self, components: _Components, function: Callable[[], Any]) -> Any:
        """Call a method of the user's object in this thread, or on the event loop if it is asynchronous."""
        context = contextvars.copy_context()
        context.run(_in_replica.set, components.server.replica)
        if not is_asynchronous(function):
            result = context.run(function)
            if not inspect.isawaitable(result):
                return result
            return self._loop.wait(_await(result))

        async def call() -> Any:
            _in_replica.set(components.server.replica)
            return await function()

        return self._loop.wait(call())

    def list_outbound_deployments(self) -> list[DeploymentID]:
        """Return the deployments that the user's object holds handles to."""
        return _held_by(self._id)

    def deliver(self, caller: str, id: int, names: list[str], *values: Any) -> None:
        """Deliver the arguments of a call that came over a link."""
        count = len(values) - len(names)
        call_args = values[:count], dict(zip(names, values[count:], strict=True))
        self._loop.call(self._require_components().server.exchange.deliver, caller, id, call_args)

    def collect(self, caller: str, id: int, number: int) -> Any:
        """Return the result of a call that came over a link."""
        exchange = self._require_components().server.exchange
        value = exchange.collect(caller, id, number)
        self._loop.call(exchange.check_collected)
        return value

    def stop(self, grace_s: float) -> None:
        """Answer the ongoing requests within the grace period, then destroy the user's object."""
        with self._lifecycle_lock:
            if self._stopped.is_over:
                return
            if self._components is not None:
                self._loop.wait(self._components.stop(grace_s))
            self._loop.stop()
            self._stopped.set()

    def until_stopped(self) -> bool:
        """Return when the replica has stopped. The caller notices immediately if the process dies."""
        return self._stopped.wait()

    def _require_components(self) -> _Components:
        if self._components is None:
            raise RuntimeError(f"{self._id} has not been started.")
        return self._components


class _Components:
    """The components of a started replica."""

    code: UserCode
    http: HttpHandler
    server: RequestServer
    address: Address
    lifespan: Lifespan | None = None
    listener: Listener
    routing_stats: RoutingStats
    threads: ThreadLimit
    observer: ReplicaObserver

    @classmethod
    async def make(cls, spec: ReplicaSpec) -> _Components:
        began = time.perf_counter()
        components = cls()
        components.observer = ReplicaObserver(
            spec.id, spec.observability, spec.options.logging_config, lambda: components.server.load
        )
        components._set_context(spec, None)
        target = unpack(spec.code)
        args, kwargs = unpack(spec.init)
        components.code = code = UserCode(target, spec.options.max_ongoing_requests)
        await code.create(args, kwargs)
        context = components._set_context(spec, code.instance)
        app = getattr(code.instance, "_skate_asgi_app", None)
        if app is not None:
            app = app()
            components.lifespan = Lifespan(app)
            await components.lifespan.start()
        await code.reconfigure(spec.options.user_config, context)
        await code.check_health()
        components.threads = ThreadLimit(spec.options.max_ongoing_requests)
        components.http = HttpHandler(code, components.threads, app)
        components.server = RequestServer(
            code,
            spec.options.max_ongoing_requests,
            components.threads,
            components.http,
            context,
            components.observer,
        )
        on_change(lambda ids: components.server.publish_models(sorted(ids)))
        if isinstance(code.instance, TaskConsumerWrapper):
            await code.in_thread(code.instance.initialize_callable, spec.options.max_ongoing_requests)
        components.routing_stats = RoutingStats(code, components.server.publish_stats)
        components.routing_stats.start(spec.options)
        components.listener = Listener(components.server.opened, components._about, reachable_host())
        components.address = await components.listener.open()
        components.observer.started(time.perf_counter() - began)
        return components

    def _set_context(self, spec: ReplicaSpec, instance: Any) -> ReplicaContext:
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
        self.observer.configure(spec.options.logging_config)
        self.server.max_ongoing_requests = spec.options.max_ongoing_requests
        self.threads.change(spec.options.max_ongoing_requests)
        self.server.replica = self._set_context(spec, self.code.instance)
        self.routing_stats.start(spec.options)
        if user_config_changed:
            async with self.server.lock.write():
                began = time.perf_counter()
                await self.code.reconfigure(spec.options.user_config, self.server.replica)
                self.observer.reconfigured(time.perf_counter() - began)

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
        self.observer.close()


async def _await(result: Awaitable[Any]) -> Any:
    return await result


def _as_runtime_error(error: Exception, id: ReplicaID) -> Exception:
    """Return an error of the user's code with its traceback as text, so that it can be unpickled anywhere."""
    if isinstance(error, RayTaskError):
        return error
    return RuntimeError(str(RayTaskError.from_exception(id.deployment_id.name, error)))


class RoutingStats:
    """Call `record_routing_stats` periodically, if the user's class has it.

    Args:
        code: The user's object.
        publish: Called with the packed result whenever it changes.
    """

    def __init__(self, code: UserCode, publish: Callable[[bytes], None]) -> None:
        self.packed: bytes | None = None
        self._code = code
        self._publish = publish
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def start(self, options: DeploymentOptions) -> None:
        """Start, or restart with other options."""
        self.stop()
        if not self._code.has_routing_stats:
            return
        config = options.request_router_config
        period, timeout = defaults.ROUTING_STATS_PERIOD_S, defaults.ROUTING_STATS_TIMEOUT_S
        if config is not None:
            period, timeout = config.request_routing_stats_period_s, config.request_routing_stats_timeout_s
        self._task = asyncio.ensure_future(self._ask(period, timeout))

    def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _ask(self, period: float, timeout: float) -> None:
        while True:
            try:
                async with asyncio.timeout(timeout):
                    packed = pack(await self._code.routing_stats())
                if packed is None:
                    raise ValueError("the result is too large, or contains object references")
            except Exception as error:
                # Callers keep the previous result. The warning is logged once, not in every period.
                if not self._has_failed:
                    logger.warning("record_routing_stats failed: %r", error)
                self._has_failed = True
            else:
                self._has_failed = False
                if packed != self.packed:
                    self.packed = packed
                    self._publish(packed)
            await asyncio.sleep(period)


@dataclass(frozen=True)
class ReplicaSpec:
    """The specification of a replica to start. The user's code stays packed until the replica runs it."""

    id: ReplicaID
    code: bytes  # the class or function
    init: bytes  # positional and keyword arguments of its constructor
    options: DeploymentOptions
    version: str
    rank: int = 0
    world_size: int = 1
    is_ingress: bool = False
    route_prefix: str | None = None
    gang: GangContext | None = None  # the gang that it starts and stops with
    observability: ObservabilityOptions = ObservabilityOptions()  # noqa: RUF009 - the default is frozen
