"""The router of a deployment: it queues requests and sends each one to a replica."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable

from skate.serve._observability import hooks
from skate.serve._observability.metrics import RouterMetrics
from skate.serve._router.connection import Connection
from skate.serve._router.custom_routing import CustomRouting
from skate.serve._router.policy import choose
from skate.serve._router.requests import OutgoingRequest
from skate.serve._runtime.ids import DeploymentID
from skate.serve._wire.link import LinkClosed
from skate.serve._wire.updates import DeploymentUpdate, LoadReport, ReplicaInfo, RouterUpdate
from skate.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaDiedError,
    ReplicaUnavailableError,
    RequestCancelledError,
)

__all__ = ["Router"]

logger = logging.getLogger("skate.serve")

_CONNECT_TIMEOUT_S = 1.0  # seconds to wait for connections to known replicas before choosing among them


class Router:
    """Send the requests of this process for one deployment to its replicas.

    A request waits in the queue while no replica has room. All methods run on the Serve event loop.

    Args:
        id: The deployment.
        name: The name of this caller, unique in the session.
        report: Sends a load report to the controller.
    """

    def __init__(self, id: DeploymentID, name: str, report: Callable[[LoadReport], None]) -> None:
        self.id = id
        self.latest: DeploymentUpdate | None = None
        self._name = name
        self._report = report
        self._connections: dict[str, Connection] = {}
        self._connected: list[Connection] = []
        self._queue: deque[OutgoingRequest] = deque()
        self._connecting: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._custom: CustomRouting | None = None
        self._updated = asyncio.Event()
        self._limits_queue = (
            False  # false until the first connections are open: before that, every request has to wait
        )
        self._finishing: asyncio.Task[None] | None = None
        self._metrics = RouterMetrics(
            id,
            lambda: len(self._queue),
            lambda: sum(len(connection.ongoing) for connection in self._connections.values()),
        )

    @property
    def queued(self) -> int:
        """Number of requests that wait for a replica with room."""
        return len(self._queue)

    @property
    def has_replicas(self) -> bool:
        """Whether the router is connected to a replica."""
        return bool(self._connected)

    async def wait_for_update(self) -> None:
        """Wait for the first update from the controller."""
        await self._updated.wait()

    async def all_connections(self) -> list[Connection]:
        """Return the connections to all replicas that run now."""
        await self.wait_for_update()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        return list(self._connected)

    async def _wait_connected(self) -> None:
        """Wait for the connections to the known replicas, up to a time-out."""
        await self.wait_for_update()
        if self._connecting:
            await asyncio.wait(set(self._connecting.values()), timeout=_CONNECT_TIMEOUT_S)

    def submit(self, request: OutgoingRequest) -> None:
        """Send a request to a replica, immediately or as soon as one has room."""
        context = request.context
        self._metrics.submitted(context.route, not context.method)
        if hooks.start_route_span is not None:
            hooks.start_route_span(request, self.id)
        if not self._queue and self._custom is None:
            connection = choose(self._connected, request.context.model, random.randrange)
            if connection is not None:
                connection.begin(request)
                return
        update = self.latest
        if update is not None:
            if not update.takes_requests:
                self._fail_all([request])
                return
            if self._limits_queue and 0 <= update.max_queued <= len(self._queue):
                self._reject(request, update)
                return
        request.queued_at = time.monotonic()
        self._metrics.queued()
        self._queue.append(request)
        if not self._connected:
            self._report_load()  # the deployment may have been scaled to zero
        if self._custom is not None:
            self._custom.wake()

    def cancel(self, request: OutgoingRequest) -> None:
        """Cancel a request without notifying its caller: remove it from the queue, or tell its replica to stop."""
        if request.is_done:
            return
        connection = request.connection
        if connection is None:
            request.is_done = True
            request.fail_span(RequestCancelledError(request.context.request_id))
            if request in self._queue:
                self._queue.remove(request)
            return
        request.cancel()
        connection.finish(request)
        self._send_queued()

    def update(self, update: DeploymentUpdate) -> None:
        """Apply an update: connect to new replicas, and drain the connections to removed ones."""
        self.latest = update
        self._set_custom_router(update.router)
        wanted = {info.id: info for info in update.replicas}
        for id, connection in list(self._connections.items()):
            if id in wanted:
                connection.info = wanted[id]
            else:
                del self._connections[id]
                connection.drain()
        for id, task in list(self._connecting.items()):
            if id not in wanted:
                task.cancel()
                del self._connecting[id]
        for id, info in wanted.items():
            if id not in self._connections and id not in self._connecting:
                self._connecting[id] = asyncio.ensure_future(self._connect(info))
        self._refresh_connections()
        self._updated.set()
        if not update.takes_requests:
            self._fail_all(self._queue)
            self._queue.clear()
        self._send_queued()
        if not self._connecting:
            self._apply_queue_limit()
        elif self._finishing is None:
            self._finishing = asyncio.ensure_future(self._finish_connecting())
        self._schedule_load_reports(update.report_every_s)

    async def _finish_connecting(self) -> None:
        await self._wait_connected()
        self._send_queued()
        self._apply_queue_limit()

    def _apply_queue_limit(self) -> None:
        """Enforce `max_queued_requests` from now on, also on requests that arrived before the limit was known."""
        if self._limits_queue:
            return
        self._limits_queue = True
        update = self.latest
        if update is not None and update.max_queued >= 0:
            while len(self._queue) > update.max_queued:
                self._reject(self._queue.pop(), update)

    def _reject(self, request: OutgoingRequest, update: DeploymentUpdate) -> None:
        request.abort(
            BackPressureError(
                num_queued_requests=len(self._queue),
                max_queued_requests=update.max_queued,
                status_code=update.status_code,
                retry_after_s=update.retry_after_s,
            )
        )

    async def close(self) -> None:
        """Close all connections, and fail the queued requests."""
        if self._timer is not None:
            self._timer.cancel()
        if self._finishing is not None:
            self._finishing.cancel()
        for task in self._connecting.values():
            task.cancel()
        if self._custom is not None:
            self._custom.close()
        for connection in list(self._connections.values()):
            connection.link.abort()
        self._connections.clear()
        self._connected.clear()
        self._fail_all(self._queue)
        self._queue.clear()
        self._metrics.close()

    def _fail_all(self, requests: Iterable[OutgoingRequest]) -> None:
        update = self.latest
        reason = update.obstacle if update is not None and update.exists else ""
        for request in requests:
            request.abort(DeploymentUnavailableError(self.id, reason))

    async def _connect(self, info: ReplicaInfo) -> None:
        connection = Connection(
            info, self._name, self._send_queued, self._request_rejected, self._connection_lost
        )
        try:
            await connection.open()
        except LinkClosed as error:
            # The controller itself detects dead replicas and publishes an update.
            logger.debug("No connection to replica %s: %s", info.id, error)
            return
        finally:
            if self._connecting.get(info.id) is asyncio.current_task():
                del self._connecting[info.id]
        self._connections[info.id] = connection
        if self._custom is not None:
            connection.finished = self._custom.finished
        self._refresh_connections()
        self._send_queued()

    def _refresh_connections(self) -> None:
        self._connected = [
            connection for connection in self._connections.values() if not connection.is_draining
        ]
        if self._custom is not None:
            self._custom.update(self._connected, self._custom.settings)

    def _set_custom_router(self, update: RouterUpdate | None) -> None:
        """Route by a user-defined router from now on, or by the built-in policy if `update` is None."""
        custom = self._custom
        if update is not None and custom is not None and update.has_same_router(custom.settings):
            custom.settings = update
            return
        if custom is not None:
            custom.close()
        self._custom = (
            None
            if update is None
            else CustomRouting(
                self.id, update, self._queue, self._wait_connected, self._send, OutgoingRequest.abort
            )
        )
        for connection in self._connections.values():
            connection.finished = None if self._custom is None else self._custom.finished

    def _send_queued(self) -> None:
        if self._custom is not None:
            self._custom.wake()
            return
        queue = self._queue
        while queue:
            connection = choose(self._connected, queue[0].context.model, random.randrange)
            if connection is None:
                return
            self._send(queue.popleft(), connection)

    def _send(self, request: OutgoingRequest, connection: Connection) -> None:
        if request.queued_at:
            request.queue_time_s = time.monotonic() - request.queued_at
            request.queued_at = 0.0
            self._metrics.waited(request.queue_time_s)
        connection.begin(request)

    def _request_rejected(self, request: OutgoingRequest) -> None:
        self._requeue(request)
        self._send_queued()

    def _requeue(self, request: OutgoingRequest) -> None:
        """Put a request that a replica did not process at the head of the queue."""
        if request.target_replica_id:
            request.abort(ReplicaUnavailableError(request.target_replica_id))
        elif self.latest is not None and not self.latest.takes_requests:
            self._fail_all([request])
        else:
            self._queue.appendleft(request)

    def _connection_lost(self, connection: Connection, lost: list[OutgoingRequest]) -> None:
        if self._connections.get(connection.info.id) is connection:
            del self._connections[connection.info.id]
        if self._custom is not None:
            self._custom.lost(connection, lost)
        self._refresh_connections()
        for request in lost:
            if request.can_retry:
                self._requeue(request)
            else:
                request.abort(ReplicaDiedError(f"{self.id.key}#{connection.info.id}"))
        self._send_queued()

    def _schedule_load_reports(self, every: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if every > 0:
            self._report_load()
            self._timer = asyncio.get_running_loop().call_later(every, self._schedule_load_reports, every)

    def _report_load(self) -> None:
        report = LoadReport(
            self.id.key,
            len(self._queue),
            {connection.info.id: len(connection.ongoing) for connection in self._connections.values()},
            time.time(),
        )
        self._report(report)
