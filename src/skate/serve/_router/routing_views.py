"""A replica as a router sees it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from skate.serve._ids import DeploymentID, ReplicaID

__all__ = ["Connection", "PendingRequest", "RequestMetadata", "RoutingProgress", "RunningReplica"]


class _Info(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def actor_id(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def max_ongoing_requests(self) -> int: ...


class Connection(Protocol):
    """What has to be known of a connection to a replica."""

    @property
    def info(self) -> _Info: ...
    @property
    def queue_len(self) -> int: ...
    @property
    def has_room(self) -> bool: ...
    @property
    def models(self) -> Collection[str]: ...
    @property
    def stats(self) -> dict[str, Any]: ...


class RunningReplica:
    """A replica that requests can be sent to. What it tells is force what is known now."""

    def __init__(self, connection: Connection, deployment_id: DeploymentID) -> None:
        self._connection = connection
        self._id = ReplicaID(connection.info.id, deployment_id)

    @property
    def replica_id(self) -> ReplicaID:
        """The replica's id."""
        return self._id

    @property
    def actor_id(self) -> str:
        """The id of its actor."""
        return self._connection.info.actor_id

    @property
    def node_id(self) -> str:
        """The node that it runs on."""
        return self._connection.info.node

    @property
    def availability_zone(self) -> str | None:
        """Always None: nobody tells Skate of zones."""
        return None

    @property
    def max_ongoing_requests(self) -> int:
        """How many requests it takes at a time."""
        return self._connection.info.max_ongoing_requests

    @property
    def multiplexed_model_ids(self) -> set[str]:
        """The models that it has loaded."""
        return set(self._connection.models)

    @property
    def routing_stats(self) -> dict[str, Any]:
        """What the user's `record_routing_stats` returned last."""
        return self._connection.stats

    @property
    def queue_len(self) -> int:
        """How many requests it has under way, as far as is known here."""
        return self._connection.queue_len

    @property
    def has_room(self) -> bool:
        """Whether it can take another request now."""
        return self._connection.has_room

    @property
    def is_cross_language(self) -> bool:
        """Always False."""
        return False

    async def get_queue_len(self, *, deadline_s: float = 0.0) -> int:
        """Return how many requests it has under way; it tells by itself, so that nobody has to ask.

        Args:
            deadline_s: Has no effect.
        """
        return self.queue_len

    def __repr__(self) -> str:
        return f"RunningReplica({self._id})"


@dataclass(slots=True)
class RequestMetadata:
    """What a request says of itself.

    Args:
        request_id: The id that stands in logs; calls that a request makes share it.
        internal_request_id: The id of this one call.
        call_method: The method that is called.
        route: The HTTP route that it came by, or "".
        app_name: The application.
        multiplexed_model_id: The model that it wants, or "".
        session_id: What it belongs to, or "".
        is_streaming: Whether its answers come one after the other.
        is_http_request: Whether it came over HTTP.
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
    """Which replicas have been tried for a request, by routers that go from the best ones to all of them."""

    multiplexed_start_matching_time: float | None = None
    tried_first_multiplexed_models: bool = False
    tried_fewest_multiplexed_models: bool = False
    tried_same_node: bool = False
    tried_same_az: bool = False
    should_backoff: bool = False

    @property
    def tries(self) -> tuple[bool, ...]:
        """What has been tried so far."""
        return (
            self.tried_first_multiplexed_models,
            self.tried_fewest_multiplexed_models,
            self.tried_same_node,
            self.tried_same_az,
        )


@dataclass
class PendingRequest:
    """A request that waits for its replica.

    Args:
        args: What the deployment is called with; empty for HTTP requests, whose body is read by the replica alone.
        kwargs: The same by name.
        metadata: What the request says of itself.
        created_at: When it was made, by `time.time()`.
        routing_context: How far its routing has come.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    metadata: RequestMetadata
    created_at: float = field(default_factory=time.time)
    routing_context: RoutingProgress = field(default_factory=RoutingProgress)
