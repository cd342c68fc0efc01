"""Routing by the tokens of a `CapacityQueue`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any

import skate
from skate.exceptions import RayActorError
from skate.serve._router.request_router import RequestRouter
from skate.serve._router.routing_views import PendingRequest, RunningReplica
from skate.serve._runtime.engine import call_actor
from skate.serve._runtime.ids import NAMESPACE, ReplicaID
from skate.serve.context import _deployment_actor_name
from skate.util import list_named_actors

__all__ = ["CapacityQueueRouter"]

logger = logging.getLogger("skate.serve")


class CapacityQueueRouter(RequestRouter):
    """Take a token for each request from a `CapacityQueue` that all callers share.

    Callers therefore never send a request to a replica that others have filled. The queue is a deployment actor, named
    by `request_router_kwargs={"capacity_queue_actor_name": …}`. If no queue answers, a request goes to the less busy of
    two random replicas.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Set `capacity_queue_actor_name`.

        Raises:
            ValueError: If it is missing.
        """
        name = kwargs.get("capacity_queue_actor_name")
        if not name:
            raise ValueError(
                'CapacityQueueRouter requires request_router_kwargs={"capacity_queue_actor_name": …}, the name of the '
                "CapacityQueue deployment actor."
            )
        self._actor_name = str(name)
        self._queue: Any = None
        self._tokens: dict[
            str, tuple[Any, str]
        ] = {}  # queue and replica of each token, by internal request id

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> Sequence[Sequence[RunningReplica]]:
        """Return the replica of a token, or no replica without a token."""
        if pending_request is None:
            return [candidate_replicas]
        request_id = pending_request.metadata.internal_request_id
        self.on_request_cancelled(request_id)  # a previous token whose replica rejected the request
        try:
            queue = await self._get_queue()
            replica_id = None if queue is None else await call_actor(queue.acquire)
        except RayActorError as error:
            logger.warning("The capacity queue of %s failed: %s", self.deployment_id, error)
            self._queue = queue = None
        if queue is None:
            return [random.sample(candidate_replicas, min(2, len(candidate_replicas)))]
        if replica_id is None:
            return []
        self._tokens[request_id] = queue, replica_id
        return [[each for each in candidate_replicas if each.replica_id.unique_id == replica_id]]

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Return the token."""
        self.on_request_cancelled(internal_request_id)

    def on_request_cancelled(self, internal_request_id: str) -> None:
        """Return the token of a request that was not sent."""
        queue, replica_id = self._tokens.pop(internal_request_id, (None, ""))
        if queue is not None:
            queue.release.remote(replica_id)

    async def _get_queue(self) -> Any:
        if self._queue is None:
            self._queue = await asyncio.get_running_loop().run_in_executor(None, self._find_queue)
        return self._queue

    def _find_queue(self) -> Any:
        # Each version has its own queue; during an update, either one works.
        before, after = _deployment_actor_name(self.deployment_id, self._actor_name, "\0").split("\0")
        everybody: Any = list_named_actors(all_namespaces=True)
        for name in (each["name"] for each in everybody):
            if name.startswith(before) and name.endswith(after):
                try:
                    return skate.get_actor(name, NAMESPACE)
                except ValueError:
                    continue  # the actor has just ended
        return None
