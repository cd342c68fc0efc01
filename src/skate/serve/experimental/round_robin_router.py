"""Round-robin routing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skate.serve._router.request_router import FIFOMixin, MultiplexMixin, RequestRouter
from skate.serve._router.routing_views import PendingRequest, RunningReplica

__all__ = ["RoundRobinRouter"]


class RoundRobinRouter(FIFOMixin, MultiplexMixin, RequestRouter):
    """Send each request to the next replica in turn, skipping full ones.

    Every caller counts for itself. A request for a model first tries the replicas that have loaded it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create the router. Serve does this.

        Args:
            *args: For the base classes.
            **kwargs: For the base classes.
        """
        super().__init__(*args, **kwargs)
        self._round_robin_counter = 0

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return all replicas in turn, each as its own rank."""
        turn = self._round_robin_counter
        self._round_robin_counter += 1
        model = "" if pending_request is None else pending_request.metadata.multiplexed_model_id
        ranks = self.rank_replicas_via_multiplex(candidate_replicas, model) if model else [candidate_replicas]
        return [[replica] for rank in ranks for replica in _rotate(rank, turn)]


def _rotate(replicas: Sequence[RunningReplica], turn: int) -> list[RunningReplica]:
    at = turn % len(replicas) if replicas else 0
    return [*replicas[at:], *replicas[:at]]
