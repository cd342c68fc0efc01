"""Replicas: the actor, the user's code in it, and the server of its requests."""

from skate.serve._replica.actor import Replica, ReplicaSpec

__all__ = ["Replica", "ReplicaSpec"]
