"""Choosing a replica first, and sending it a request afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skate.serve._ids import DeploymentID, ReplicaID
from skate.serve._router.requests import OutgoingRequest
from skate.serve._router.runtime import Runtime
from skate.serve._wire.frames import Context, Frame
from skate.serve.exceptions import ReplicaUnavailableError

if TYPE_CHECKING:
    from skate.serve._router.connection import Connection

__all__ = ["ReplicaSelection", "Reservation", "choose_replica"]

CallArgs = tuple[tuple[Any, ...], dict[str, Any]]


class Reservation(OutgoingRequest):
    """Goes through the router like a request, and takes up room at the replica that it comes to; nothing is sent.

    On the loop of Serve, but for the constructor.

    Args:
        context: That of the request that is to follow.
        call_args: Its arguments, as far as a router of the user's decides by them.
    """

    def __init__(self, context: Context, call_args: CallArgs) -> None:
        super().__init__(context)
        self.args = None
        self.delivered_args = call_args  # where routers poll for arguments that are not packed
        self.assigned: Future[Connection] = Future()

    def send(self, connection: Connection) -> None:
        """Take note of the replica."""
        if not self.assigned.done():  # it may have been cancelled at this moment, and is released next
            self.assigned.set_result(connection)

    def receive(self, frame: Frame) -> bool:
        """Expect nothing."""
        return False

    def failed(self, error: Exception) -> None:
        """Take note that there is no replica, or no longer one."""
        if not self.assigned.done():
            self.assigned.set_exception(error)

    def cancel(self) -> None:
        """Leave the replica alone, which knows nothing of it."""

    @property
    def can_retry(self) -> bool:
        """Whether another replica would do: the choice has been told."""
        return False

    def dispatch(self, request: OutgoingRequest) -> None:
        """Send a request in its reservation, to that replica alone."""
        connection = self.assigned.result()
        if self.connection is None or connection.is_draining or not connection.link.is_open:
            request.abort(ReplicaUnavailableError(connection.info.id))
            return
        request.force, request.target_replica_id = True, connection.info.id
        connection.begin(request)
        connection.finish(self)


@dataclass
class ReplicaSelection:
    """A replica that `DeploymentHandle.choose_replica` has choose_replica, with room reserved for one request.

    Args:
        replica_id: The unique part of its id.
        node_ip: The address of its node.
        port: Always None: requests go through the handle.
        node_id: The id of its node.
        availability_zone: Always None.
        replica_metadata: Always empty.
    """

    replica_id: str
    node_ip: str
    port: int | None
    node_id: str
    availability_zone: str | None = None
    replica_metadata: dict[str, Any] = field(default_factory=dict)
    _deployment_id: DeploymentID | None = None
    _reservation: Reservation | None = None
    _method_name: str = "__call__"
    _stream: bool = False
    _dispatched: bool = False

    @property
    def address(self) -> str:
        """Where the replica runs."""
        return self.node_ip

    def to_dict(self) -> dict[str, Any]:
        """Return the public fields."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


@asynccontextmanager
async def choose_replica(
    runtime: Runtime, id: DeploymentID, context: Context, method: str, stream: bool, call_args: CallArgs
) -> AsyncIterator[ReplicaSelection]:
    """Choose a replica, and keep room there until a request has been dispatched or the context ends."""
    import skate.util

    reservation = Reservation(context, call_args)
    loop = runtime.serve_loop

    def release() -> None:
        runtime.router(id).cancel(reservation)

    try:
        loop.call(lambda: runtime.router(id).submit(reservation))
        connection = await asyncio.wrap_future(reservation.assigned)
        replica = ReplicaID(connection.info.id, id)
        yield ReplicaSelection(
            replica.unique_id,
            skate.util.get_node_ip_address(),
            None,
            connection.info.node,
            _deployment_id=id,
            _reservation=reservation,
            _method_name=method,
            _stream=stream,
        )
    finally:
        loop.call(release)
