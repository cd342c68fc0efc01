"""Ids of deployments, replicas and requests, and the names of Serve's actors."""

from __future__ import annotations

import itertools
import os
import secrets
import uuid
from dataclasses import dataclass, field

from skate.serve._config.defaults import APP_NAME

__all__ = [
    "CONTROLLER_NAME",
    "DEPLOYMENT_ACTOR_PREFIX",
    "GANG_PREFIX",
    "NAMESPACE",
    "PROXY_PREFIX",
    "REPLICA_PREFIX",
    "DeploymentID",
    "ReplicaID",
    "new_id",
    "new_request_id",
]

NAMESPACE = "serve"
CONTROLLER_NAME = "SERVE_CONTROLLER_ACTOR"
PROXY_PREFIX = "SERVE_PROXY_ACTOR-"
REPLICA_PREFIX = "SERVE_REPLICA::"
GANG_PREFIX = "SERVE_GANG::"
DEPLOYMENT_ACTOR_PREFIX = "SERVE_DEPLOYMENT_ACTOR::"


def new_id(size: int = 8) -> str:
    """Return a short random id."""
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    return "".join(secrets.choice(alphabet) for _ in range(size))


class _RequestIds:
    """Generates ids that look like random UUIDs: a random prefix per process, and a counter."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # a child must not repeat ids of its parent

    def _begin(self) -> None:
        self._start = str(uuid.uuid4())[:24]
        self._count = itertools.count(secrets.randbits(40)).__next__

    def __call__(self) -> str:
        return f"{self._start}{self._count() & 0xFFFFFFFFFFFF:012x}"


new_request_id = _RequestIds()
"""Return an id for a request without one."""


@dataclass(frozen=True, order=True, slots=True)
class DeploymentID:
    """The id of a deployment: its name and its application."""

    name: str
    app_name: str = APP_NAME

    @property
    def key(self) -> str:
        """The id as one string."""
        return f"{self.app_name}#{self.name}" if self.app_name else self.name

    def to_replica_actor_class_name(self) -> str:
        """Return the class name of replica actors in listings."""
        return f"ServeReplica:{self.app_name}:{self.name}" if self.app_name else f"ServeReplica:{self.name}"

    def __str__(self) -> str:
        return f"Deployment(name='{self.name}', app='{self.app_name}')"

    __repr__ = __str__


@dataclass(frozen=True, order=True, slots=True)
class ReplicaID:
    """The id of a replica."""

    unique_id: str
    deployment_id: DeploymentID = field(default_factory=lambda: DeploymentID(""))

    @property
    def actor_name(self) -> str:
        """The name of the replica's actor."""
        return f"{REPLICA_PREFIX}{self.deployment_id.key}#{self.unique_id}"

    def to_full_id_str(self) -> str:
        """Return the name of the replica's actor."""
        return self.actor_name

    def __str__(self) -> str:
        deployment = self.deployment_id
        return f"Replica(id='{self.unique_id}', deployment='{deployment.name}', app='{deployment.app_name}')"

    __repr__ = __str__
