"""Routing requests your own way: derive from `RequestRouter`, and name the class in `RequestRouterConfig`."""

from skate.serve._routing.base import ReplicaResult as ReplicaResult  # as in Ray, no part of the API
from skate.serve._routing.base import RequestRouter
from skate.serve._routing.mixins import FIFOMixin, LocalityMixin, MultiplexMixin
from skate.serve._routing.power_of_two import PowerOfTwoChoicesRequestRouter
from skate.serve._routing.replicas import RunningReplica
from skate.serve._routing.requests import PendingRequest
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
