"""Choosing a replica first, and sending the request to it later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skate.serve._router.requests import OutgoingRequest
from skate.serve._router.runtime import Runtime
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve._wire.frames import Context, Frame
from skate.serve.exceptions import ReplicaUnavailableError

if TYPE_CHECKING:
    from skate.serve._router.connection import Connection

__all__ = ["ReplicaSelection", "Reservation", "choose_replica"]

CallArgs = tuple[tuple[Any, ...], dict[str, Any]]


class Reservation(OutgoingRequest):
    """A reservation of room at a replica.

    The router treats it like a request, but the replica learns nothing of it. Everything except the constructor runs on
    the Serve event loop.

    Args:
        context: The context of the request that will follow.
        call_args: Its arguments, for user-defined routers.
    """

    def __init__(self, context: Context, call_args: CallArgs) -> None:
        super().__init__(context)
        self.args = None
        self.delivered_args = call_args  # user-defined routers read unpacked arguments here
        self.assigned: Future[Connection] = Future()

    def send(self, connection: Connection) -> None:
        """Store the connection of the chosen replica."""
        if not self.assigned.done():  # it may have been cancelled in this moment, and is released next
            self.assigned.set_result(connection)

    def receive(self, frame: Frame) -> bool:
        """Ignore all frames: the replica does not answer a reservation."""
        return False

    def failed(self, error: Exception) -> None:
        """Store the error: no replica is available, or the chosen one died."""
        if not self.assigned.done():
            self.assigned.set_exception(error)

    def cancel(self) -> None:
        """Do nothing, because the replica does not know the reservation."""

    @property
    def can_retry(self) -> bool:
        """Always False, because the caller already knows the chosen replica."""
        return False

    def dispatch(self, request: OutgoingRequest) -> None:
        """Replace the reservation by a request to the reserved replica."""
        connection = self.assigned.result()
        if self.connection is None or connection.is_draining or not connection.link.is_open:
            request.abort(ReplicaUnavailableError(connection.info.id))
            return
        request.force, request.target_replica_id = True, connection.info.id
        connection.begin(request)
        connection.finish(self)


@dataclass
class ReplicaSelection:
    """A replica chosen by `DeploymentHandle.choose_replica`, with room reserved for one request.

    Args:
        replica_id: The unique part of the replica's id.
        node_ip: The address of its node.
        port: Always None, because requests go through the handle.
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
        """The address of the replica's node."""
        return self.node_ip

    def to_dict(self) -> dict[str, Any]:
        """Return the public fields."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


@asynccontextmanager
async def choose_replica(
    runtime: Runtime, id: DeploymentID, context: Context, method: str, stream: bool, call_args: CallArgs
) -> AsyncIterator[ReplicaSelection]:
    """Choose a replica, and reserve room there until a request is dispatched or the context exits."""
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
