"""Routing by a user-defined `RequestRouter`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import skate
from skate._api.payloads import unpack
from skate.serve._config import import_paths
from skate.serve._router.connection import Connection
from skate.serve._router.request_router import FIFOMixin, RequestRouter
from skate.serve._router.requests import OutgoingRequest
from skate.serve._router.routing_views import PendingRequest, RequestMetadata, RoutingProgress, RunningReplica
from skate.serve._runtime.ids import DeploymentID
from skate.serve._wire.updates import RouterUpdate
from skate.serve.exceptions import RayServeException

__all__ = ["CustomRouting", "RouterUpdate"]

logger = logging.getLogger("skate.serve")


class CustomRouting:
    """Ask a user-defined router about each queued request, several at a time. On the Serve event loop.

    Args:
        id: The deployment.
        settings: The router to create.
        queue: The queued requests, oldest first.
        wait_connected: Waits for the connections to the known replicas.
        send: Sends a request that has left the queue.
        fail: Ends a request with an error.
    """

    def __init__(
        self,
        id: DeploymentID,
        settings: RouterUpdate,
        queue: deque[OutgoingRequest],
        wait_connected: Callable[[], Coroutine[Any, Any, object]],
        send: Callable[[OutgoingRequest, Connection], None],
        fail: Callable[[OutgoingRequest, Exception], None],
    ) -> None:
        self.settings = settings
        self._id = id
        self._queue = queue
        self._wait_connected = wait_connected
        self._send_to = send
        self._fail = fail
        self._router: RequestRouter | None = None
        self._error: RayServeException | None = None
        self._is_ready = asyncio.Event()
        self._changed = asyncio.Event()  # pulsed when a replica may have room
        self._connections: dict[RunningReplica, Connection] = {}
        self._replicas: dict[Connection, RunningReplica] = {}
        self._in_routing: set[int] = set()  # ids of the requests that the router is choosing replicas for
        self._tasks: set[asyncio.Task[None]] = set()
        self._routed: dict[int, str] = {}  # internal request ids of the requests at replicas, by request id
        self._creating = asyncio.ensure_future(self._create_router())

    def update(self, connections: Sequence[Connection], settings: RouterUpdate) -> None:
        """Set the replicas and the settings."""
        self.settings = settings
        self._replicas = {
            connection: self._replicas.get(connection) or RunningReplica(connection, self._id)
            for connection in connections
        }
        self._connections = {replica: connection for connection, replica in self._replicas.items()}
        if self._router is not None:
            self._update_router()

    def wake(self) -> None:
        """Start routing tasks: a request was queued, or a replica may have room."""
        self._changed.set()
        self._changed.clear()
        most = RequestRouter.max_num_routing_tasks_cap
        if self._router is not None:
            most = self._router.max_num_routing_tasks_cap
        for _ in range(min(len(self._queue), most) - len(self._tasks)):
            self._tasks.add(asyncio.ensure_future(self._route()))

    def finished(self, connection: Connection, request: OutgoingRequest) -> None:
        """Notify the router that a request ended."""
        internal_id = self._routed.pop(request.id, None)
        replica = self._replicas.get(connection) or RunningReplica(connection, self._id)
        if internal_id is not None and self._router is not None:
            self._notify(self._router.on_request_completed, replica.replica_id, internal_id)

    def lost(self, connection: Connection, requests: Sequence[OutgoingRequest]) -> None:
        """Notify the router that a replica died, and that its requests ended."""
        for request in requests:
            self.finished(connection, request)
        if self._router is not None:
            replica = self._replicas.get(connection) or RunningReplica(connection, self._id)
            self._notify(self._router.on_replica_actor_died, replica.replica_id)

    def close(self) -> None:
        """Cancel all tasks."""
        self._creating.cancel()
        for task in self._tasks:
            task.cancel()

    async def _create_router(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            # In a thread, because importing the module may take long.
            kind = await loop.run_in_executor(None, _load_class, self.settings)
            context = skate.get_runtime_context()
            router = kind(
                deployment_id=self._id,
                self_actor_id=context.get_actor_id(),
                self_node_id=context.get_node_id(),
                initial_backoff_s=self.settings.initial_backoff_s,
                backoff_multiplier=self.settings.backoff_multiplier,
                max_backoff_s=self.settings.max_backoff_s,
            )
            router.initialize_state(**self.settings.kwargs)
        except Exception as error:
            logger.exception("Could not create the request router %s of %s.", self.settings.path, self._id)
            self._error = RayServeException(
                f"Could not create the request router {self.settings.path} of {self._id}: "
                f"{type(error).__name__}: {error}"
            )
        else:
            self._router = router
            self._update_router()
        self._is_ready.set()

    def _update_router(self) -> None:
        assert self._router is not None
        settings = self.settings
        self._router.update_backoff_params(
            settings.initial_backoff_s, settings.backoff_multiplier, settings.max_backoff_s
        )
        self._notify(self._router.update_replicas, list(self._replicas.values()))

    def _notify(self, method: Callable[..., None], *args: Any) -> None:
        try:
            method(*args)
        except Exception:
            logger.exception("The request router %s of %s failed.", self.settings.path, self._id)

    async def _route(self) -> None:
        try:
            await self._is_ready.wait()
            while (request := self._next()) is not None:
                self._in_routing.add(request.id)
                try:
                    await self._route_request(request)
                except Exception as error:
                    if _is_waiting(request):
                        self._queue.remove(request)
                        self._fail(request, error)
                finally:
                    self._in_routing.discard(request.id)
        finally:
            # Immediately, because a request that arrives in this iteration of the loop needs another task.
            self._tasks.remove(asyncio.current_task())  # type: ignore[arg-type]  # this code runs in a task

    def _next(self) -> OutgoingRequest | None:
        return next((request for request in self._queue if request.id not in self._in_routing), None)

    async def _route_request(self, request: OutgoingRequest) -> None:
        if self._router is None:
            assert self._error is not None
            raise self._error
        pending = _QueuedRequest(request)
        progress = pending.routing_context
        attempt = 0
        await self._wait_connected()  # otherwise all requests would go to the first replicas that connected
        while _is_waiting(request):
            tries = progress.tries
            replica = await self._choose(self._router, pending)
            if replica is not None:
                chosen = self._request_for(request, self._router)
                if chosen is None:
                    self._notify(self._router.on_request_cancelled, pending.metadata.internal_request_id)
                else:
                    self._assign(chosen, pending if chosen is request else _QueuedRequest(chosen), replica)
                continue
            # Otherwise the router has narrowed its choice, and may choose more replicas next time.
            if progress.tries == tries:
                await self._wait(self._router._backoff_s(attempt))
                attempt += 1

    async def _choose(self, router: RequestRouter, pending: PendingRequest) -> RunningReplica | None:
        candidates = [
            replica for replica, connection in self._connections.items() if not connection.is_draining
        ]
        if not candidates:
            return None
        for rank in await router.choose_replicas(candidates, pending):
            free = [replica for replica in rank if replica in self._connections and replica.has_room]
            if free:
                return min(free, key=lambda replica: replica.queue_len)
        return None

    def _request_for(self, request: OutgoingRequest, router: RequestRouter) -> OutgoingRequest | None:
        """Return the request that receives a replica chosen for `request`, or None if none is left."""
        if not isinstance(router, FIFOMixin):
            return request if _is_waiting(request) else None
        model = request.context.model
        alike = (each for each in self._queue if each.context.model == model)
        return next(alike, self._queue[0] if self._queue else None)

    def _assign(self, request: OutgoingRequest, pending: PendingRequest, replica: RunningReplica) -> None:
        self._queue.remove(request)
        self._routed[request.id] = pending.metadata.internal_request_id
        self._send_to(request, self._connections[replica])
        assert self._router is not None
        self._notify(self._router.on_request_routed, pending, replica.replica_id, None)

    async def _wait(self, longest_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._changed.wait()
        except TimeoutError:
            return  # the router may choose differently now


class _QueuedRequest(PendingRequest):
    """A queued request as the router sees it. Arguments are unpacked on first access."""

    def __init__(self, request: OutgoingRequest) -> None:
        context = request.context
        method = getattr(request, "method", "__call__")
        self.metadata = RequestMetadata(
            request_id=context.request_id,
            internal_request_id=f"{context.request_id}-{request.id}",
            call_method=method,
            route=context.route,
            app_name=context.app,
            multiplexed_model_id=context.model,
            session_id=context.session,
            is_streaming=hasattr(request, "items"),
            is_http_request=bool(context.method),
        )
        self.created_at = time.time()
        self.routing_context = RoutingProgress()
        self._request = request
        self._call_args: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._call_args is None:
            packed, delivered_args = (
                getattr(self._request, "args", None),
                getattr(self._request, "delivered_args", None),
            )
            self._call_args = delivered_args or (((), {}) if packed is None else unpack(packed))
        return self._call_args

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]  # read-only
        """The positional arguments of the call."""
        return self._arguments()[0]

    @property
    def kwargs(self) -> dict[str, Any]:  # type: ignore[override]  # read-only
        """The keyword arguments of the call."""
        return self._arguments()[1]


def _is_waiting(request: OutgoingRequest) -> bool:
    return request.connection is None and not request.is_done


def _load_class(settings: RouterUpdate) -> type[RequestRouter]:
    kind: Any = (
        import_paths.load(settings.path) if settings.code is None else import_paths.unpack(settings.code)
    )
    if not (isinstance(kind, type) and issubclass(kind, RequestRouter)):
        raise TypeError(f"{kind!r} does not derive from skate.serve.request_router.RequestRouter")
    return kind
