"""The better of two random replicas."""

from __future__ import annotations

import random
from collections.abc import Sequence

from skate.serve._routing.base import RequestRouter
from skate.serve._routing.mixins import FIFOMixin, LocalityMixin, MultiplexMixin
from skate.serve._routing.replicas import RunningReplica
from skate.serve._routing.requests import PendingRequest

__all__ = ["PowerOfTwoChoicesRequestRouter"]


class PowerOfTwoChoicesRequestRouter(FIFOMixin, LocalityMixin, MultiplexMixin, RequestRouter):
    """Takes the less busy of two replicas drawn at random; what Serve does where nobody says otherwise.

    It is here to be derived from. A deployment that names it, or none, is routed by a shorter way to the same end.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return two replicas, of those that have the request's model or are near."""
        if pending_request is not None and pending_request.metadata.multiplexed_model_id:
            ids = self.apply_multiplex_routing(pending_request)
        else:
            ids = self.apply_locality_routing(pending_request)
        among = [each for each in candidate_replicas if each.replica_id in ids]
        return [random.sample(among, min(2, len(among)))]
