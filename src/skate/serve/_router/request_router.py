"""The base class of request routers, and its mixins."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from skate.serve._config import defaults
from skate.serve._router.routing_views import PendingRequest, RunningReplica
from skate.serve._runtime.ids import DeploymentID, ReplicaID

__all__ = [
    "FIFOMixin",
    "LocalityMixin",
    "MultiplexMixin",
    "PowerOfTwoChoicesRequestRouter",
    "ReplicaResult",
    "RequestRouter",
]


class ReplicaResult:
    """The type of `on_request_routed`'s third argument in Ray. Skate passes None."""


class RequestRouter(ABC):
    """Choose the replicas for requests. Derive from it, and name the class in `RequestRouterConfig`.

    Each process that calls the deployment creates one instance. All of its methods run on one event loop and must not
    block. `choose_replicas` returns ranks of replicas, the preferred ones first. Serve sends the request to the least
    busy replica with room in the first rank that has one. If no replica has room, Serve asks again as soon as one does.

    Example:
        >>> from skate.serve.request_router import RequestRouter
        >>> class FirstComeFirst(RequestRouter):
        ...     async def choose_replicas(self, candidate_replicas, pending_request=None):
        ...         return [[replica] for replica in sorted(candidate_replicas, key=lambda r: r.replica_id)]
    """

    max_num_routing_tasks_cap = 50
    """The most requests that are routed concurrently."""

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
        """Create the router. Serve does this; set up your own state in `initialize_state`.

        Args:
            deployment_id: The deployment whose requests the router routes.
            handle_source: Has no effect.
            self_actor_id: The id of the actor that the router runs in, or None.
            self_actor_handle: Has no effect.
            use_replica_queue_len_cache: Has no effect, because replicas report their load.
            get_curr_time_s: A clock, for tests.
            create_replica_wrapper_func: Has no effect.
            initial_backoff_s: The longest first wait for a replica with room.
            backoff_multiplier: The factor by which each further wait grows.
            max_backoff_s: The limit of each wait.
            *args: For other base classes.
            **kwargs: For other base classes.
        """
        self._deployment_id = deployment_id
        self._self_actor_id = self_actor_id
        self._get_curr_time_s = get_curr_time_s or time.time
        self.initial_backoff_s = initial_backoff_s
        self.backoff_multiplier = backoff_multiplier
        self.max_backoff_s = max_backoff_s
        self._replicas: dict[ReplicaID, RunningReplica] = {}
        self._replicas_list: list[RunningReplica] = []

    def initialize_state(self, **kwargs: Any) -> None:  # noqa: B027 - optional
        """Initialize the router with `request_router_kwargs`. Serve calls it before the first request."""

    @abstractmethod
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return the replicas that may process a request.

        Args:
            candidate_replicas: All reachable replicas, with or without room.
            pending_request: The request.

        Returns:
            Ranks of replicas, the preferred ones first.
        """

    def on_request_routed(  # noqa: B027 - optional
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Handle that a request was sent to a replica.

        Args:
            pending_request: The request.
            replica_id: The replica.
            result: Always None, because a router does not see results.
        """

    def on_request_completed(  # noqa: B027 - optional
        self, replica_id: ReplicaID, internal_request_id: str
    ) -> None:
        """Handle that a request ended with a value, an error, or a cancellation.

        Args:
            replica_id: The replica that processed it.
            internal_request_id: The `internal_request_id` of its metadata.
        """

    def on_request_cancelled(self, internal_request_id: str) -> None:  # noqa: B027 - optional
        """Handle that a request was cancelled after a replica was chosen and before it was sent.

        Args:
            internal_request_id: The `internal_request_id` of its metadata.
        """

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Remove a replica that died."""
        if self._replicas.pop(replica_id, None) is not None:
            self._replicas_list = list(self._replicas.values())

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replace the replicas. Overriding methods must call this one."""
        self._replicas = {replica.replica_id: replica for replica in replicas}
        self._replicas_list = list(replicas)

    def update_backoff_params(
        self,
        initial_backoff_s: float | None = None,
        backoff_multiplier: float | None = None,
        max_backoff_s: float | None = None,
    ) -> None:
        """Set the given backoff parameters."""
        if initial_backoff_s is not None:
            self.initial_backoff_s = initial_backoff_s
        if backoff_multiplier is not None:
            self.backoff_multiplier = backoff_multiplier
        if max_backoff_s is not None:
            self.max_backoff_s = max_backoff_s

    def select_available_replicas(
        self, candidates: Iterable[RunningReplica] | None = None
    ) -> list[RunningReplica]:
        """Return the replicas with room, of the candidates or of all."""
        among = self._replicas_list if candidates is None else candidates
        return [replica for replica in among if replica.has_room]

    @property
    def curr_replicas(self) -> dict[ReplicaID, RunningReplica]:
        """The replicas, by id."""
        return self._replicas

    @property
    def app_name(self) -> str:
        """The application that contains the deployment."""
        return self._deployment_id.app_name

    @property
    def deployment_id(self) -> DeploymentID:
        """The deployment whose requests the router routes."""
        return self._deployment_id

    def _backoff_s(self, attempt: int) -> float:
        grown: float = self.initial_backoff_s * self.backoff_multiplier ** min(attempt, 64)
        return min(grown, self.max_backoff_s)


_MODEL_MATCH_TIMEOUT_S = 1.0  # seconds that a request waits for a replica with its model


if TYPE_CHECKING:
    _Router = RequestRouter
else:
    _Router = object  # mixins precede RequestRouter in the bases of a class


class FIFOMixin(_Router):
    """Assign each chosen replica to the oldest request for the same model.

    Without this mixin, each request goes to the replica that was chosen for it. The class has no methods; deriving from
    it is enough.
    """


class LocalityMixin(_Router):
    """Rank replicas by locality: those on the caller's node first."""

    def __init__(
        self,
        self_node_id: str | None = None,
        prefer_local_node_routing: bool = False,
        prefer_local_az_routing: bool = False,
        self_availability_zone: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Create the router. Serve does this.

        Args:
            self_node_id: The node of the caller.
            prefer_local_node_routing: Whether `apply_locality_routing` tries replicas on that node first.
            prefer_local_az_routing: Has no effect, because Skate does not know availability zones.
            self_availability_zone: Has no effect.
            *args: For other base classes.
            **kwargs: For other base classes.
        """
        super().__init__(*args, **kwargs)
        self._self_node_id = self_node_id
        self._prefer_local_node_routing = prefer_local_node_routing

    def apply_locality_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """Return the replicas to try now: first those on this node if preferred, then all."""
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
        """Return three ranks: replicas on this node, in this zone (always empty), and elsewhere."""
        here = [each for each in replicas if each.node_id == self._self_node_id]
        elsewhere = [each for each in replicas if each.node_id != self._self_node_id]
        return [here, [], elsewhere]


class MultiplexMixin(_Router):
    """Rank replicas by the models that they have loaded."""

    @property
    def _multiplexed_matching_timeout(self) -> float:
        return _MODEL_MATCH_TIMEOUT_S

    def apply_multiplex_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """Return the replicas to try now.

        These are first the replicas that have loaded the requested model, until a time-out; then, once, those with the
        fewest models; then all.
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
        """Return three ranks: replicas with the model, those with the fewest models, and the rest."""
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
    """Choose the less busy of two random replicas: the default policy of Serve.

    It exists as a base class. For deployments that use it unchanged, Serve applies the same policy without it.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return two random replicas among those with the requested model, or among the local ones."""
        if pending_request is not None and pending_request.metadata.multiplexed_model_id:
            ids = self.apply_multiplex_routing(pending_request)
        else:
            ids = self.apply_locality_routing(pending_request)
        among = [each for each in candidate_replicas if each.replica_id in ids]
        return [random.sample(among, min(2, len(among)))]
