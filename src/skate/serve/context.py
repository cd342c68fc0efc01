"""What a request and a replica know of themselves."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import skate
from skate.serve._runtime.engine import shares_process
from skate.serve._runtime.ids import DEPLOYMENT_ACTOR_PREFIX, NAMESPACE, DeploymentID, ReplicaID
from skate.serve.exceptions import RayServeException

if TYPE_CHECKING:
    from skate.serve.gang import GangContext
    from skate.serve.schema import ReplicaRank

__all__ = [
    "DeploymentActorContext",
    "ReplicaContext",
    "get_deployment_actor",
    "get_deployment_actor_context",
    "get_replica_context",
]


@dataclass(slots=True)
class _RequestContext:
    """What follows a request: its id, its application, what it wants."""

    route: str = ""
    request_id: str = ""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    grpc_context: Any = None
    is_http_request: bool = False
    retry: bool = False
    trace: dict[str, str] | None = None
    # Calls that the request has made and that are under way: they are cancelled with it.
    children: set[Any] = field(default_factory=set)
    scope: dict[str, Any] | None = None  # of an ASGI application: FastAPI and others note their route there

    @property
    def full_route(self) -> str:
        """The route's prefix, and the application's own route after it once that is known."""
        path = None if self.scope is None else getattr(self.scope.get("route"), "path", None)
        if not path:
            return self.route
        return str(path) if self.route in ("", "/") else f"{self.route}{path}"


@dataclass(frozen=True)
class ReplicaContext:
    """Where the code runs: available by `serve.get_replica_context()` inside a replica.

    Args:
        replica_id: The replica.
        servable_object: The instance of the deployment's class, or its function.
        world_size: How many replicas the deployment is meant to have.
        gang_context: The gang that the replica belongs to; None if it has none.
    """

    replica_id: ReplicaID
    servable_object: Callable[..., Any] | None
    _deployment_config: Any = None
    _rank: int = 0
    world_size: int = 1
    gang_context: GangContext | None = None
    code_version: str | None = None

    @property
    def app_name(self) -> str:
        """The application."""
        return self.replica_id.deployment_id.app_name

    @property
    def deployment(self) -> str:
        """The name of the deployment."""
        return self.replica_id.deployment_id.name

    @property
    def replica_tag(self) -> str:
        """The unique part of the replica's id."""
        return self.replica_id.unique_id

    @property
    def rank(self) -> ReplicaRank:
        """The replica's number among those of its deployment, from 0; of its node, which is the only one; and there."""
        from skate.serve.schema import ReplicaRank

        return ReplicaRank(rank=self._rank, node_rank=0, local_rank=self._rank)

    @property
    def deployment_id(self) -> DeploymentID:
        """The deployment within its application."""
        return self.replica_id.deployment_id


@dataclass(frozen=True)
class DeploymentActorContext:
    """Which actor the code runs in: available by `serve.get_deployment_actor_context()` inside a deployment actor.

    Args:
        deployment_id: The deployment whose replicas share the actor.
        actor_name: The name that they ask for.
        code_version: The version of the deployment that the actor belongs to.
    """

    deployment_id: DeploymentID
    actor_name: str
    code_version: str | None = None

    @property
    def app_name(self) -> str:
        """The application."""
        return self.deployment_id.app_name

    @property
    def deployment(self) -> str:
        """The name of the deployment."""
        return self.deployment_id.name


_request: contextvars.ContextVar[_RequestContext | None] = contextvars.ContextVar(
    "skate_serve_request", default=None
)
_in_replica: contextvars.ContextVar[ReplicaContext | None] = contextvars.ContextVar(
    "skate_serve_replica", default=None
)
_process_replica: ReplicaContext | None = None


def _get_request() -> _RequestContext | None:
    """Return the context of the request that runs here, or None."""
    return _request.get()


def _set_replica(context: ReplicaContext | None) -> None:
    """Note which replica this process is; within the running task and its children, too."""
    global _process_replica
    if not shares_process():
        _process_replica = context
    _in_replica.set(context)


def _get_replica() -> ReplicaContext | None:
    """Return the replica that the code runs in, or None."""
    return _in_replica.get() or _process_replica


_get_internal_replica_context = _get_replica  # Ray's name, which is private there too, and which programs use


def get_replica_context() -> ReplicaContext:
    """Return which replica the code runs in.

    Raises:
        RayServeException: If it does not run in a replica.
    """
    context = _get_replica()
    if context is None:
        raise RayServeException(
            "serve.get_replica_context() tells of the replica that it is called in, and this is none: call it inside "
            "of a deployment."
        )
    return context


# By the ids of actors, of which several may share a process.
_deployment_actors: dict[str | None, DeploymentActorContext] = {}


def _set_deployment_actor(context: DeploymentActorContext) -> None:
    """Note which deployment actor the actor is that runs this code."""
    _deployment_actors[skate.get_runtime_context().get_actor_id()] = context


def _deployment_actor_name(id: DeploymentID, actor_name: str, code_version: str | None) -> str:
    """Return the name under which an actor of a deployment is found; each version has actors of its own."""
    return f"{DEPLOYMENT_ACTOR_PREFIX}{id.app_name}::{id.name}::{code_version}::{actor_name}"


def get_deployment_actor(actor_name: str) -> Any:
    """Return a handle to an actor that the replicas of this deployment share: see `deployment_actors`.

    Each version of a deployment has actors of its own, and a replica finds those of its version.

    Args:
        actor_name: The name in `DeploymentActorConfig`.

    Raises:
        RayServeException: If the code does not run in a replica.
        ValueError: If the deployment has no such actor, or it is gone and being created again just now.
    """
    context = _get_replica()
    if context is None:
        raise RayServeException(
            "serve.get_deployment_actor() may only be called from within a replica of a deployment."
        )
    declared = [each.name for each in context._deployment_config.deployment_actors or ()]
    if actor_name not in declared:
        raise ValueError(
            f"Deployment {context.deployment!r} has no deployment actor {actor_name!r}. It has: "
            f"{', '.join(map(repr, declared)) or 'none; see the option deployment_actors'}."
        )
    name = _deployment_actor_name(context.deployment_id, actor_name, context.code_version)
    return skate.get_actor(name, NAMESPACE)


def get_deployment_actor_context() -> DeploymentActorContext:
    """Return which deployment actor the code runs in.

    Raises:
        RayServeException: If it does not run in one.
    """
    context = None
    if _deployment_actors:
        context = _deployment_actors.get(skate.get_runtime_context().get_actor_id())
    if context is None:
        raise RayServeException(
            "serve.get_deployment_actor_context() may only be called from within a deployment actor."
        )
    return context


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
