"""The contexts of requests, replicas and deployment actors."""

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
    """The context of a request, which the requests that it makes inherit."""

    route: str = ""
    request_id: str = ""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    grpc_context: Any = None
    is_http_request: bool = False
    retry: bool = False
    trace: dict[str, str] | None = None
    batches_parts: bool = False  # see `_batch_parts`
    # Ongoing calls that the request has made; they are cancelled with it.
    children: set[Any] = field(default_factory=set)
    scope: dict[str, Any] | None = (
        None  # of an ASGI application; frameworks such as FastAPI store their route there
    )

    @property
    def full_route(self) -> str:
        """The prefix of the route, followed by the application's own route once it is known."""
        path = None if self.scope is None else getattr(self.scope.get("route"), "path", None)
        if not path:
            return self.route
        return str(path) if self.route in ("", "/") else f"{self.route}{path}"


@dataclass(frozen=True)
class ReplicaContext:
    """The context of a replica, returned by `serve.get_replica_context()`.

    Args:
        replica_id: The id of the replica.
        servable_object: The instance of the deployment's class, or its function.
        world_size: The target number of replicas of the deployment.
        gang_context: The gang of the replica, or None.
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
        """The name of the application."""
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
        """The rank of the replica in its deployment and on its node, from 0. The rank of the node is always 0."""
        from skate.serve.schema import ReplicaRank

        return ReplicaRank(rank=self._rank, node_rank=0, local_rank=self._rank)

    @property
    def deployment_id(self) -> DeploymentID:
        """The id of the deployment."""
        return self.replica_id.deployment_id


@dataclass(frozen=True)
class DeploymentActorContext:
    """The context of a deployment actor, returned by `serve.get_deployment_actor_context()`.

    Args:
        deployment_id: The deployment whose replicas share the actor.
        actor_name: The name of the actor within the deployment.
        code_version: The version of the deployment that the actor belongs to.
    """

    deployment_id: DeploymentID
    actor_name: str
    code_version: str | None = None

    @property
    def app_name(self) -> str:
        """The name of the application."""
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
    """Return the context of the current request, or None."""
    return _request.get()


def _batch_parts() -> None:
    """Send the parts of the current request's response with those of other requests, in one write.

    A part is then sent when the code that produces the next one waits, and not before that code continues. Call it for
    code that never blocks the event loop.
    """
    request = _request.get()
    if request is not None:
        request.batches_parts = True


def _set_replica(context: ReplicaContext | None) -> None:
    """Set the replica of this process, and of the current task and its children."""
    global _process_replica
    if not shares_process():
        _process_replica = context
    _in_replica.set(context)


def _get_replica() -> ReplicaContext | None:
    """Return the context of the current replica, or None."""
    return _in_replica.get() or _process_replica


_get_internal_replica_context = _get_replica  # Ray's name, which programs use although it is private


def get_replica_context() -> ReplicaContext:
    """Return the context of the current replica.

    Raises:
        RayServeException: If the code does not run in a replica.
    """
    context = _get_replica()
    if context is None:
        raise RayServeException(
            "There is no replica here: get_replica_context() may only be called from within the code of one."
        )
    return context


# By actor id, because several actors may share a process.
_deployment_actors: dict[str | None, DeploymentActorContext] = {}


def _set_deployment_actor(context: DeploymentActorContext) -> None:
    """Set the deployment actor of the current actor."""
    _deployment_actors[skate.get_runtime_context().get_actor_id()] = context


def _deployment_actor_name(id: DeploymentID, actor_name: str, code_version: str | None) -> str:
    """Return the name of a deployment actor. Each version of a deployment has its own actors."""
    return f"{DEPLOYMENT_ACTOR_PREFIX}{id.app_name}::{id.name}::{code_version}::{actor_name}"


def get_deployment_actor(actor_name: str) -> Any:
    """Return a handle to an actor that the replicas of this deployment share: see `deployment_actors`.

    Each version of a deployment has its own actors, and a replica gets those of its version.

    Args:
        actor_name: The name in `DeploymentActorConfig`.

    Raises:
        RayServeException: If the code does not run in a replica.
        ValueError: If the deployment has no such actor, or the actor is being restarted.
    """
    context = _get_replica()
    if context is None:
        raise RayServeException(
            "There is no replica here: get_deployment_actor() may only be called from within the code of one."
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
    """Return the context of the current deployment actor.

    Raises:
        RayServeException: If the code does not run in a deployment actor.
    """
    context = None
    if _deployment_actors:
        context = _deployment_actors.get(skate.get_runtime_context().get_actor_id())
    if context is None:
        raise RayServeException(
            "This is not a deployment actor: get_deployment_actor_context() may only be called from within one."
        )
    return context


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
