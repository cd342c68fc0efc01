"""Creating an actor that the replicas of a deployment share: runs in a process of its own, with the user's code."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from skate.actor import ActorClass
from skate.serve._ids import NAMESPACE
from skate.serve.context import (
    DeploymentActorContext,
    _deployment_actor_name,
    _set_deployment_actor,
)

if TYPE_CHECKING:
    from skate.serve.config import DeploymentActorConfig

__all__ = ["create"]


def create(config: DeploymentActorConfig, context: DeploymentActorContext, settings: dict[str, Any]) -> None:
    """Create the actor, which outlives this call. Whether its constructor succeeds is not waited for.

    Args:
        config: What the user wrote.
        context: What the actor will know of itself.
        settings: Options of the actor, in place of those that its class has.
    """
    given = config.get_actor_class()
    kind: ActorClass[Any] = ActorClass(_aware(given.__ray_metadata__.modified_class, context), given._options)
    kind.options(
        **{
            **settings,
            "name": _deployment_actor_name(context.deployment_id, context.actor_name, context.code_version),
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
        }
    ).remote(*config.init_args, **config.init_kwargs)


def _aware(kind: type, context: DeploymentActorContext) -> type:
    """Return a class whose instances find their context, in their constructor already and after each restart."""
    initialize: Any = getattr(kind, "__init__")  # noqa: B009 - of the class, as it says

    @functools.wraps(initialize)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        _set_deployment_actor(context)
        initialize(self, *args, **kwargs)

    members = {"__init__": begin, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (kind,), {**members, "__qualname__": kind.__qualname__})
