"""A replica as a router sees it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from skate.serve._runtime.ids import DeploymentID, ReplicaID

__all__ = ["Connection", "RunningReplica"]


class _Info(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def actor_id(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def capacity(self) -> int: ...


class Connection(Protocol):
    """What has to be known of a connection to a replica."""

    @property
    def info(self) -> _Info: ...
    @property
    def busyness(self) -> int: ...
    @property
    def has_room(self) -> bool: ...
    @property
    def models(self) -> Collection[str]: ...
    @property
    def stats(self) -> dict[str, Any]: ...


class RunningReplica:
    """A replica that requests can be sent to. What it tells is always what is known now."""

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
        return self._connection.info.capacity

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
        return self._connection.busyness

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
