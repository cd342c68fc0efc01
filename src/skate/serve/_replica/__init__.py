"""One copy of a deployment: the actor, the user's code in it, and how requests reach it."""

from skate.serve._replica.actor import Replica, ReplicaSpec

__all__ = ["Replica", "ReplicaSpec"]
