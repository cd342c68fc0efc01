"""The base class of request routers."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from skate.serve._config import defaults
from skate.serve._ids import DeploymentID, ReplicaID
from skate.serve._router.routing_views import PendingRequest, RunningReplica

__all__ = [
    "FIFOMixin",
    "LocalityMixin",
    "MultiplexMixin",
    "PowerOfTwoChoicesRequestRouter",
    "ReplicaResult",
    "RequestRouter",
]


class ReplicaResult:
    """By this, routers written for Ray annotate the answer in `on_request_routed`; there is none yet, so it is None."""


class RequestRouter(ABC):
    """Decides which replica gets a request. Derive from it, and name the class in `RequestRouterConfig`.

    Each process that calls the deployment has an object of the class, and everything happens on one event loop there:
    methods must not block. `choose_replicas` says where a request may go, best first. Serve sends it to a replica of
    the first rank that has room, and to the least busy one of those. If none has room, it asks again when one has.

    Example:
        >>> from skate.serve.request_router import RequestRouter
        >>> class FirstComeFirst(RequestRouter):
        ...     async def choose_replicas(self, candidate_replicas, pending_request=None):
        ...         return [[replica] for replica in sorted(candidate_replicas, key=lambda r: r.replica_id)]
    """

    max_num_routing_tasks_cap = 50
    """How many requests are asked for at a time."""

    def __init__(
        self,
        deployment_id: DeploymentID,
        handle_source: Any = None,
        self_actor_id: str | None = None,
        self_actor_handle: Any = None,
        use_replica_queue_len_cache: bool = False,
        get_curr_time_s: Callable[[], float] | None = None,
        create_replica_wrapper_func: Callable[[Any], RunningReplica] | None = None,
        initial_backoff_s: float = defaults.ROUTER_INITIAL_BACKOFF_S,
        backoff_multiplier: float = defaults.ROUTER_BACKOFF_MULTIPLIER,
        max_backoff_s: float = defaults.ROUTER_MAX_BACKOFF_S,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Make a router; Serve does it. Set up your own state in `initialize_state`.

        Args:
            deployment_id: The deployment whose requests it routes.
            handle_source: Has no effect.
            self_actor_id: The actor that the router is in, if it is in one.
            self_actor_handle: Has no effect.
            use_replica_queue_len_cache: Has no effect: replicas tell how busy they are by themselves.
            get_curr_time_s: A clock, for tests.
            create_replica_wrapper_func: Has no effect.
            initial_backoff_s: How long to wait at most when no replica has room; it ends when one has.
            backoff_multiplier: How much longer each next wait is.
            max_backoff_s: The longest wait.
            *args: For classes beside this one.
            **kwargs: For classes beside this one.
        """
        self._deployment_id = deployment_id
        self._self_actor_id = self_actor_id
        self._get_curr_time_s = get_curr_time_s or time.time
        self.initial_backoff_s = initial_backoff_s
        self.backoff_multiplier = backoff_multiplier
        self.max_backoff_s = max_backoff_s
        self._replicas: dict[ReplicaID, RunningReplica] = {}
        self._replicas_list: list[RunningReplica] = []

    def initialize_state(self, **kwargs: Any) -> None:  # noqa: B027 - many need none
        """Set up what the router needs. It is called with `request_router_kwargs`, before the first request."""

    @abstractmethod
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Say which replicas a request may go to.

        Args:
            candidate_replicas: All that can be reached, whether or not they have room.
            pending_request: The request.

        Returns:
            Ranks of replicas, the preferred ones first.
        """

    def on_request_routed(  # noqa: B027 - to be overridden where it is of use
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Hear that a request has been sent to a replica.

        Args:
            pending_request: The request.
            replica_id: The replica.
            result: Always None: a router does not see answers.
        """

    def on_request_completed(  # noqa: B027 - the same
        self, replica_id: ReplicaID, internal_request_id: str
    ) -> None:
        """Hear that a request is over, with a value, an error, or because it was cancelled.

        Args:
            replica_id: The replica that had it.
            internal_request_id: Its id, as in the metadata of the request.
        """

    def on_request_cancelled(self, internal_request_id: str) -> None:  # noqa: B027 - the same
        """Hear that a request was cancelled after a replica had been choose_replica, and before it was sent.

        Args:
            internal_request_id: Its id, as in the metadata of the request.
        """

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Hear that a replica is gone, and drop it."""
        if self._replicas.pop(replica_id, None) is not None:
            self._replicas_list = list(self._replicas.values())

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Hear which replicas there are now; call this method where you override it."""
        self._replicas = {replica.replica_id: replica for replica in replicas}
        self._replicas_list = list(replicas)

    def update_backoff_params(
        self,
        initial_backoff_s: float | None = None,
        backoff_multiplier: float | None = None,
        max_backoff_s: float | None = None,
    ) -> None:
        """Take on how long to wait where no replica has room, as far as it is call_args."""
        if initial_backoff_s is not None:
            self.initial_backoff_s = initial_backoff_s
        if backoff_multiplier is not None:
            self.backoff_multiplier = backoff_multiplier
        if max_backoff_s is not None:
            self.max_backoff_s = max_backoff_s

    def select_available_replicas(
        self, candidates: Iterable[RunningReplica] | None = None
    ) -> list[RunningReplica]:
        """Return the replicas that have room for another request, of some or of all."""
        among = self._replicas_list if candidates is None else candidates
        return [replica for replica in among if replica.has_room]

    @property
    def curr_replicas(self) -> dict[ReplicaID, RunningReplica]:
        """All replicas by their ids."""
        return self._replicas

    @property
    def app_name(self) -> str:
        """The application of the deployment."""
        return self._deployment_id.app_name

    @property
    def deployment_id(self) -> DeploymentID:
        """The deployment whose requests are routed."""
        return self._deployment_id

    def _backoff_s(self, attempt: int) -> float:
        grown: float = self.initial_backoff_s * self.backoff_multiplier ** min(attempt, 64)
        return min(grown, self.max_backoff_s)


_MATCHING_S = 1.0  # how long a request waits for a replica that has its model already


if TYPE_CHECKING:
    _Router = RequestRouter
else:
    _Router = object  # mixins precede RequestRouter in the bases of a class


class FIFOMixin(_Router):
    """Gives the replica that was choose_replica to the request that has waited longest, of those that want the same model.

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
