"""Options of a deployment that are pydantic models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    field_validator,
)

import skate
from skate.actor import ActorClass
from skate.air import _arguments as arguments
from skate.serve._config import defaults, import_paths, validation
from skate.serve._config.defaults import GangPlacementStrategy, GangRuntimeFailurePolicy
from skate.serve._config.model import ServeModel
from skate.serve._config.placement import placeholder_actor_class

_DEFAULT_ROUTERS = (
    defaults.REQUEST_ROUTER,
    "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter",
    "ray.serve._private.request_router.PowerOfTwoChoicesRequestRouter",
)


class BackpressureConfig(ServeModel):
    """The response to requests that are rejected because a deployment's queue is full.

    >>> from skate.serve.config import BackpressureConfig
    >>> BackpressureConfig(retry_after_s=2).status_code
    503
    """

    model_config = ConfigDict(extra="forbid")

    status_code: Literal[503, 429] = Field(
        default=defaults.BACKPRESSURE_STATUS_CODE, description="503 or 429."
    )
    retry_after_s: Annotated[NonNegativeFloat, Field(allow_inf_nan=False)] | None = Field(
        default=None, description="The value of the header `Retry-After`, in seconds; no header if not given."
    )


class RequestRouterConfig(ServeModel):
    """The request router, which chooses the replica for a request, and its backoff if no replica has capacity."""

    request_router_class: str | Callable[..., Any] = Field(
        default=defaults.REQUEST_ROUTER,
        description="A class derived from `RequestRouter`, or its import path.",
    )
    request_router_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Arguments of the router's `initialize_state`; must be JSON-serializable.",
    )
    request_routing_stats_period_s: PositiveFloat = Field(
        default=defaults.ROUTING_STATS_PERIOD_S, description="How often `record_routing_stats` is called."
    )
    request_routing_stats_timeout_s: PositiveFloat = Field(
        default=defaults.ROUTING_STATS_TIMEOUT_S, description="The time limit of one call."
    )
    initial_backoff_s: PositiveFloat = Field(
        default=defaults.ROUTER_INITIAL_BACKOFF_S, description="The first wait if no replica has capacity."
    )
    backoff_multiplier: PositiveFloat = Field(
        default=defaults.ROUTER_BACKOFF_MULTIPLIER,
        description="The factor by which each wait is longer than the previous one.",
    )
    max_backoff_s: PositiveFloat = Field(
        default=defaults.ROUTER_MAX_BACKOFF_S, description="The longest wait."
    )
    _packed: bytes | None = PrivateAttr(default=None)

    @field_validator("request_router_kwargs")
    @classmethod
    def _kwargs_are_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        validation.check_json("request_router_kwargs", value)
        return value

    def model_post_init(self, context: Any, /) -> None:
        """Pickle a class, and check that an import path can be imported."""
        super().model_post_init(context)
        given = self.request_router_class
        if isinstance(given, str):
            if given not in _DEFAULT_ROUTERS:
                import_paths.load(given)
        else:
            self.request_router_class = import_paths.path_of(given)
            self._packed = import_paths.pack(given)

    @property
    def packed_class(self) -> bytes | None:
        """The pickle of the class if it was given as an object, else None."""
        return self._packed

    def is_default_request_router(self) -> bool:
        """Return whether the router is the default: the better of two random replicas."""
        return self._packed is None and self.request_router_class in _DEFAULT_ROUTERS

    def get_request_router_class(self) -> Callable[..., Any]:
        """Return the class of the router."""
        if self._packed is not None:
            router = import_paths.unpack(self._packed)
        elif self.is_default_request_router():
            router = import_paths.load(defaults.REQUEST_ROUTER)
        else:
            router = import_paths.load(str(self.request_router_class))
        return router  # type: ignore[no-any-return]  # the imported object is untyped


class GangSchedulingConfig(ServeModel):
    """Gangs: replicas that are placed, started and replaced together."""

    gang_size: PositiveInt = Field(description="The number of replicas in a gang.")
    gang_placement_strategy: GangPlacementStrategy = Field(
        default=GangPlacementStrategy.PACK, description="How to place a gang on nodes."
    )
    runtime_failure_policy: GangRuntimeFailurePolicy = Field(
        default=GangRuntimeFailurePolicy.RESTART_GANG,
        description="What to restart when a replica of a gang fails.",
    )

    @field_validator("runtime_failure_policy")
    @classmethod
    def _whole_gangs_only(cls, value: GangRuntimeFailurePolicy) -> GangRuntimeFailurePolicy:
        if value is GangRuntimeFailurePolicy.RESTART_REPLICA:
            raise NotImplementedError(
                "RESTART_REPLICA is not implemented, as in Ray: use RESTART_GANG, the default."
            )
        return value


class DeploymentActorConfig(ServeModel):
    """An actor that all replicas of a deployment share and that lives as long as the deployment."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = Field(min_length=1, description="The name to pass to `serve.get_deployment_actor`.")
    actor_class: type | str | ActorClass[Any] = Field(
        description="A class, an actor class, or its import path."
    )
    init_args: tuple[Any, ...] = Field(default_factory=tuple, description="Arguments of its constructor.")
    init_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of its constructor."
    )
    actor_options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the actor: `num_cpus`, `runtime_env`, …"
    )
    _packed: bytes | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Pickle a class. An import path is imported in the process of the actor."""
        super().model_post_init(context)
        given = self.actor_class
        with arguments.naming("actor_options"):
            placeholder_actor_class().options(**self.actor_options)
        if isinstance(given, str):
            with arguments.naming("actor_class"):
                import_paths.split(given)
        else:
            self.actor_class = import_paths.path_of(given)
            self._packed = import_paths.pack(given)

    def get_actor_class(self) -> ActorClass[Any]:
        """Return the actor class."""
        found = (
            import_paths.load(str(self.actor_class))
            if self._packed is None
            else import_paths.unpack(self._packed)
        )
        if isinstance(found, ActorClass):
            return found
        if not isinstance(found, type):
            raise TypeError(
                f"actor_class of deployment actor {self.name!r} is {found!r}: it must be a class."
            )
        return skate.remote(found)
