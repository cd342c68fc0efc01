"""What routers have in common: taking requests in order, staying on a node, finding loaded models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skate.serve._routing.replicas import RunningReplica
from skate.serve._routing.requests import PendingRequest
from skate.serve._runtime.ids import ReplicaID

if TYPE_CHECKING:
    from skate.serve._routing.base import RequestRouter as _Router
else:
    _Router = object  # they stand beside it, before it in a class's bases

__all__ = ["FIFOMixin", "LocalityMixin", "MultiplexMixin"]

_MATCHING_S = 1.0  # how long a request waits for a replica that has its model already


class FIFOMixin(_Router):
    """Gives the replica that was chosen to the request that has waited longest, of those that want the same model.

    Without it, each request goes where the router wanted it. It has no methods: to derive from it is enough.
    """


class LocalityMixin(_Router):
    """Knows which replicas are on the same node as the caller."""

    def __init__(
        self,
        self_node_id: str | None = None,
        prefer_local_node_routing: bool = False,
        prefer_local_az_routing: bool = False,
        self_availability_zone: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Make a router; Serve does it.

        Args:
            self_node_id: The node that the caller is on.
            prefer_local_node_routing: Whether `apply_locality_routing` tries replicas there first.
            prefer_local_az_routing: Has no effect: nobody tells Skate of zones.
            self_availability_zone: Has no effect.
            *args: For classes beside this one.
            **kwargs: For classes beside this one.
        """
        super().__init__(*args, **kwargs)
        self._self_node_id = self_node_id
        self._prefer_local_node_routing = prefer_local_node_routing

    def apply_locality_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """Return the replicas to try now: those on this node once, where that is wanted, then all of them."""
        if pending_request is None:
            return set(self._replicas)
        progress = pending_request.routing_context
        if self._prefer_local_node_routing and not progress.tried_same_node:
            progress.tried_same_node = True
            here = {id for id, each in self._replicas.items() if each.node_id == self._self_node_id}
            if here:
                return here
        progress.should_backoff = True
        return set(self._replicas)

    def rank_replicas_via_locality(self, replicas: Sequence[RunningReplica]) -> list[list[RunningReplica]]:
        """Return replicas in ranks: on this node, in this zone (which nobody knows of), elsewhere."""
        here = [each for each in replicas if each.node_id == self._self_node_id]
        elsewhere = [each for each in replicas if each.node_id != self._self_node_id]
        return [here, [], elsewhere]


class MultiplexMixin(_Router):
    """Knows which replicas have a model loaded."""

    @property
    def _multiplexed_matching_timeout(self) -> float:
        return _MATCHING_S

    def apply_multiplex_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """Return the replicas to try now.

        First those that have the model of the request, for a while. Then those with the fewest models, once. Then all.
        """
        model = "" if pending_request is None else pending_request.metadata.multiplexed_model_id
        if pending_request is None or not model:
            return set(self._replicas)
        progress = pending_request.routing_context
        now = self._get_curr_time_s()
        if progress.multiplexed_start_matching_time is None:
            progress.multiplexed_start_matching_time = now
        is_early = now - progress.multiplexed_start_matching_time < self._multiplexed_matching_timeout
        loaded, fewest, _ = self.rank_replicas_via_multiplex(self._replicas_list, model)
        if loaded and (is_early or not progress.tried_first_multiplexed_models):
            progress.tried_first_multiplexed_models = True
            return {each.replica_id for each in loaded}
        if fewest and not progress.tried_fewest_multiplexed_models:
            progress.tried_fewest_multiplexed_models = True
            return {each.replica_id for each in fewest}
        progress.should_backoff = True
        return set(self._replicas)

    def rank_replicas_via_multiplex(
        self, replicas: Sequence[RunningReplica], multiplexed_model_id: str
    ) -> list[list[RunningReplica]]:
        """Return replicas in ranks: with the model, of the others those with the fewest models, and the rest."""
        loaded: list[RunningReplica] = []
        others: list[tuple[int, RunningReplica]] = []
        for each in replicas:
            models = each.multiplexed_model_ids
            if multiplexed_model_id in models:
                loaded.append(each)
            else:
                others.append((len(models), each))
        least = min((count for count, _ in others), default=0)
        fewest = [each for count, each in others if count == least]
        rest = [each for count, each in others if count != least]
        return [loaded, fewest, rest]
