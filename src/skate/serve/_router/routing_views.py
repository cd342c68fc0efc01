"""Requests and replicas as a `RequestRouter` sees them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skate.serve._runtime.ids import DeploymentID, ReplicaID

if TYPE_CHECKING:
    from skate.serve._router.connection import Connection

__all__ = ["PendingRequest", "RequestMetadata", "RoutingProgress", "RunningReplica"]


class RunningReplica:
    """A replica that takes requests. Its properties reflect the latest known state."""

    def __init__(self, connection: Connection, deployment_id: DeploymentID) -> None:
        self._connection = connection
        self._id = ReplicaID(connection.info.id, deployment_id)

    @property
    def replica_id(self) -> ReplicaID:
        """The replica's id."""
        return self._id

    @property
    def actor_id(self) -> str:
        """The id of the replica's actor."""
        return self._connection.info.actor_id

    @property
    def node_id(self) -> str:
        """The id of the replica's node."""
        return self._connection.info.node

    @property
    def availability_zone(self) -> str | None:
        """Always None, because Skate does not know availability zones."""
        return None

    @property
    def max_ongoing_requests(self) -> int:
        """The most requests that the replica processes at a time."""
        return self._connection.info.max_ongoing_requests

    @property
    def multiplexed_model_ids(self) -> set[str]:
        """The ids of the models that the replica has loaded."""
        return set(self._connection.models)

    @property
    def routing_stats(self) -> dict[str, Any]:
        """The latest result of the user's `record_routing_stats`."""
        return self._connection.stats

    @property
    def queue_len(self) -> int:
        """Number of ongoing requests at the replica, as far as this caller knows."""
        return self._connection.queue_len

    @property
    def has_room(self) -> bool:
        """Whether the replica can take another request now."""
        return self._connection.has_room

    @property
    def is_cross_language(self) -> bool:
        """Always False."""
        return False

    async def get_queue_len(self, *, deadline_s: float = 0.0) -> int:
        """Return the number of ongoing requests. Replicas report it, so this does not wait for the replica.

        Args:
            deadline_s: Has no effect.
        """
        return self.queue_len

    def __repr__(self) -> str:
        return f"RunningReplica({self._id})"


@dataclass(slots=True)
class RequestMetadata:
    """Metadata of a request.

    Args:
        request_id: The id in logs. Calls that a request makes share it.
        internal_request_id: The id of this call alone.
        call_method: The called method.
        route: The HTTP route of the request, or "".
        app_name: The application.
        multiplexed_model_id: The requested model, or "".
        session_id: The session of the request, or "".
        is_streaming: Whether the call returns a stream of values.
        is_http_request: Whether the request came over HTTP.
    """

    request_id: str
    internal_request_id: str
    call_method: str = "__call__"
    route: str = ""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    is_streaming: bool = False
    is_http_request: bool = False


@dataclass(slots=True)
class RoutingProgress:
    """Progress of routers that try the preferred replicas before all others."""

    multiplexed_start_matching_time: float | None = None
    tried_first_multiplexed_models: bool = False
    tried_fewest_multiplexed_models: bool = False
    tried_same_node: bool = False
    tried_same_az: bool = False
    should_backoff: bool = False

    @property
    def tries(self) -> tuple[bool, ...]:
        """The flags of all attempts so far."""
        return (
            self.tried_first_multiplexed_models,
            self.tried_fewest_multiplexed_models,
            self.tried_same_node,
            self.tried_same_az,
        )


@dataclass
class PendingRequest:
    """A request that waits for a replica.

    Args:
        args: The positional arguments of the call. Empty for HTTP requests, whose body only the replica reads.
        kwargs: The keyword arguments of the call.
        metadata: The metadata of the request.
        created_at: When the request was created, by `time.time()`.
        routing_context: The progress of its routing.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    metadata: RequestMetadata
    created_at: float = field(default_factory=time.time)
    routing_context: RoutingProgress = field(default_factory=RoutingProgress)
