"""One replica after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skate.serve._router.request_router import FIFOMixin, MultiplexMixin, RequestRouter
from skate.serve._router.routing_views import PendingRequest, RunningReplica

__all__ = ["RoundRobinRouter"]


class RoundRobinRouter(FIFOMixin, MultiplexMixin, RequestRouter):
    """Sends each request to the next replica in turn, and past those that have no room.

    Every caller counts for itself. A request for a model goes around the replicas that have it loaded, first.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a router; Serve does it.

        Args:
            *args: For the classes that it derives from.
            **kwargs: For the classes that it derives from.
        """
        super().__init__(*args, **kwargs)
        self._round_robin_counter = 0

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return all replicas in turn, each as a rank of its own."""
        turn = self._round_robin_counter
        self._round_robin_counter += 1
        model = "" if pending_request is None else pending_request.metadata.multiplexed_model_id
        ranks = self.rank_replicas_via_multiplex(candidate_replicas, model) if model else [candidate_replicas]
        return [[replica] for rank in ranks for replica in _from(rank, turn)]


def _from(replicas: Sequence[RunningReplica], turn: int) -> list[RunningReplica]:
    at = turn % len(replicas) if replicas else 0
    return [*replicas[at:], *replicas[:at]]
