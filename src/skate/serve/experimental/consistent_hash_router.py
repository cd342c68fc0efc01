"""Session affinity by consistent hashing."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Sequence
from typing import Any

from skate.serve._router.request_router import RequestRouter
from skate.serve._router.routing_views import PendingRequest, RunningReplica
from skate.serve._runtime.ids import ReplicaID

__all__ = ["ConsistentHashRouter"]

DEFAULT_NUM_VIRTUAL_NODES = 100
DEFAULT_NUM_FALLBACK_REPLICAS = 2


class ConsistentHashRouter(RequestRouter):
    """Send all requests of a session to the same replica, from every caller.

    `handle.options(session_id=…)` or the header `x-session-id` names a session. Each replica owns many positions on a
    hash ring, and a session belongs to the next position. When replicas are added or removed, only the sessions next to
    them move. Requests without a session are distributed over all replicas.

    `request_router_kwargs` may set `num_virtual_nodes`, the positions per replica (100), and `num_fallback_replicas`,
    the number of further replicas that may take a request when the first has no room (2; with 0 the request waits).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create the router. Serve does this.

        Args:
            *args: For `RequestRouter`.
            **kwargs: For `RequestRouter`.
        """
        super().__init__(*args, **kwargs)
        self._num_virtual_nodes = DEFAULT_NUM_VIRTUAL_NODES
        self._num_fallback_replicas = DEFAULT_NUM_FALLBACK_REPLICAS
        self._positions: list[int] = []
        self._owners: list[ReplicaID] = []
        self._on_ring: frozenset[ReplicaID] = frozenset()

    def initialize_state(self, **kwargs: Any) -> None:
        """Set `num_virtual_nodes` and `num_fallback_replicas`.

        Raises:
            ValueError: If one of them is not an integer, or too small.
        """
        self._num_virtual_nodes = _check_integer(
            "num_virtual_nodes", kwargs.get("num_virtual_nodes", DEFAULT_NUM_VIRTUAL_NODES), 1
        )
        self._num_fallback_replicas = _check_integer(
            "num_fallback_replicas", kwargs.get("num_fallback_replicas", DEFAULT_NUM_FALLBACK_REPLICAS), 0
        )
        self._on_ring = frozenset()
        self._rebuild_ring()

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replace the replicas, and rebuild the ring if they changed."""
        super().update_replicas(replicas)
        self._rebuild_ring()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Remove a replica that died; its sessions move."""
        super().on_replica_actor_died(replica_id)
        self._rebuild_ring()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return the replica of the session, followed by its fallbacks."""
        if pending_request is None:
            return [candidate_replicas]
        metadata = pending_request.metadata
        reachable = {each.replica_id: each for each in candidate_replicas}
        ranked = self._lookup_ranked_replicas(metadata.session_id or metadata.internal_request_id)
        return [[reachable[id]] for id in ranked if id in reachable]

    def _rebuild_ring(self) -> None:
        ids = frozenset(self._replicas)
        if ids == self._on_ring:
            return
        self._on_ring = ids
        ring = sorted(
            (_hash_bytes(f"{id.unique_id}:{number}".encode()), id)
            for id in ids
            for number in range(self._num_virtual_nodes)
        )
        self._positions = [position for position, _ in ring]
        self._owners = [owner for _, owner in ring]

    def _lookup_ranked_replicas(self, routing_key: str) -> list[ReplicaID]:
        """Return the distinct replicas at and after the position of a key."""
        wanted = min(1 + self._num_fallback_replicas, len(self._on_ring))
        found: list[ReplicaID] = []
        at = bisect.bisect_left(self._positions, _hash_bytes(routing_key.encode()))
        while len(found) < wanted:
            owner = self._owners[at % len(self._owners)]
            if owner not in found:
                found.append(owner)
            at += 1
        return found


def _hash_bytes(data: bytes) -> int:
    """Return a 64-bit hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def _check_integer(name: str, value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(
            f"{name} of ConsistentHashRouter must be an integer of at least {low}, got {value!r}."
        )
    return value
