"""Custom request routing: derive from `RequestRouter`, and name the class in `RequestRouterConfig`."""

from skate.serve._router.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PowerOfTwoChoicesRequestRouter,
    RequestRouter,
)
from skate.serve._router.request_router import ReplicaResult as ReplicaResult  # not exported, as in Ray
from skate.serve._router.routing_views import PendingRequest, RunningReplica
from skate.serve._runtime.ids import ReplicaID

__all__ = [
    "FIFOMixin",
    "LocalityMixin",
    "MultiplexMixin",
    "PendingRequest",
    "PowerOfTwoChoicesRequestRouter",
    "ReplicaID",
    "RequestRouter",
    "RunningReplica",
]
