"""The options of a deployment, whether from a decorator, `.options` or a configuration file.

`DeploymentOptions` is a plain dataclass instead of a pydantic model, because every program with `@serve.deployment` and
every replica uses it, and importing pydantic takes several times as long as importing Skate. Options that are models
are imported when a user sets one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from skate.air import _arguments as arguments
from skate.serve._config import defaults, validation
from skate.serve._config.placement import check_max_replicas_per_node, check_placement, validate_actor_options
from skate.serve.exceptions import DeploymentConfigError

if TYPE_CHECKING:
    from skate.serve._config.autoscaling import AutoscalingConfig
    from skate.serve._config.option_models import (
        BackpressureConfig,
        DeploymentActorConfig,
        GangSchedulingConfig,
        RequestRouterConfig,
    )

# Options whose change replaces replicas, reconfigures them, or updates routers.
REPLACES_REPLICAS = frozenset(
    {
        "version",
        "ray_actor_options",
        "placement_group_bundles",
        "placement_group_strategy",
        "placement_group_bundle_label_selector",
        "max_replicas_per_node",
        "gang_scheduling_config",
        "deployment_actors",
    }
)
_RECONFIGURES_REPLICAS = frozenset(
    {
        "user_config",
        "max_ongoing_requests",
        "backpressure_config",
        "graceful_shutdown_wait_loop_s",
        "logging_config",
        "request_router_config",
    }
)
_UPDATES_ROUTERS = frozenset(
    {"max_ongoing_requests", "max_queued_requests", "backpressure_config", "request_router_config"}
)
_REPLICA_BOUNDS = {"min_replicas", "max_replicas", "initial_replicas"}
_MODEL_CLASSES = {  # classes of the options that are models
    "backpressure_config": "BackpressureConfig",
    "autoscaling_config": "AutoscalingConfig",
    "request_router_config": "RequestRouterConfig",
    "gang_scheduling_config": "GangSchedulingConfig",
}
_INTERNAL = "DeploymentOptions"  # options from Serve's own code
_REPORTING_OPTIONS = ("metrics_interval_s", "look_back_period_s")  # options of autoscaling that replicas use


@dataclass(frozen=True, kw_only=True)
class DeploymentOptions:
    """All options of a deployment, validated. Create them with a name, and change them with `merged`.

    None is the default of options that are models. `num_replicas` is None for an autoscaled deployment. `given`
    contains the names of the options that a user set, and is not compared.

    >>> options = DeploymentOptions(name="Model").merged({"num_replicas": 2, "max_ongoing_requests": 10})
    >>> options.num_replicas, options.health_check_period_s
    (2, 10.0)
    >>> options.merged({"num_replica": 3})
    Traceback (most recent call last):
    ...
    TypeError: DeploymentOptions got an unexpected keyword argument 'num_replica'. Did you mean 'num_replicas'?
    """

    name: str
    version: str | None = None
    num_replicas: int | None = defaults.NUM_REPLICAS
    ray_actor_options: dict[str, Any] = field(default_factory=dict)
    placement_group_bundles: list[dict[str, float]] | None = None
    placement_group_strategy: str | None = None
    placement_group_bundle_label_selector: list[dict[str, str]] | None = None
    max_replicas_per_node: int | None = None
    user_config: Any = None
    max_ongoing_requests: int = defaults.MAX_ONGOING_REQUESTS
    max_queued_requests: int = defaults.MAX_QUEUED_REQUESTS
    backpressure_config: BackpressureConfig | None = None
    autoscaling_config: AutoscalingConfig | None = None
    graceful_shutdown_wait_loop_s: float = defaults.GRACEFUL_SHUTDOWN_WAIT_LOOP_S
    graceful_shutdown_timeout_s: float = defaults.GRACEFUL_SHUTDOWN_TIMEOUT_S
    health_check_period_s: float = defaults.HEALTH_CHECK_PERIOD_S
    health_check_timeout_s: float = defaults.HEALTH_CHECK_TIMEOUT_S
    logging_config: dict[str, Any] | None = None
    request_router_config: RequestRouterConfig | None = None
    max_constructor_retry_count: int = defaults.MAX_CONSTRUCTOR_RETRY_COUNT
    gang_scheduling_config: GangSchedulingConfig | None = None
    deployment_actors: tuple[DeploymentActorConfig, ...] | None = None
    rolling_update_percentage: float = defaults.ROLLING_UPDATE_PERCENTAGE
    max_surge_percent: int = defaults.MAX_SURGE_PERCENT
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        checked = {**_validate_scalars(self), **_validate_models(self)}
        checked["placement_group_bundle_label_selector"] = check_placement(
            checked["ray_actor_options"],
            self.placement_group_bundles,
            self.placement_group_strategy,
            self.placement_group_bundle_label_selector,
        )
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        _check_together(self)

    @property
    def is_autoscaled(self) -> bool:
        """Whether the number of replicas follows the load."""
        return self.autoscaling_config is not None

    @property
    def first_replicas(self) -> int:
        """The number of replicas that the deployment starts with."""
        if (config := self.autoscaling_config) is None:
            assert self.num_replicas is not None
            return self.num_replicas
        first = config.min_replicas if config.initial_replicas is None else config.initial_replicas
        return -(-first // self.gang_size) * self.gang_size

    @property
    def gang_size(self) -> int:
        """The number of replicas that start and stop together."""
        return 1 if self.gang_scheduling_config is None else self.gang_scheduling_config.gang_size

    @property
    def backpressure_status_code(self) -> int:
        """The HTTP status of requests that are rejected because the queue is full."""
        config = self.backpressure_config
        return defaults.BACKPRESSURE_STATUS_CODE if config is None else config.status_code

    @property
    def backpressure_retry_after_s(self) -> float | None:
        """The `Retry-After` time of rejected requests, if any."""
        return None if self.backpressure_config is None else self.backpressure_config.retry_after_s

    def merged(self, overrides: Mapping[str, Any], where: str = _INTERNAL) -> DeploymentOptions:
        """Return a copy with some options replaced; `DEFAULT.VALUE` marks an option that is not given.

        Args:
            overrides: New values by name. `num_replicas` and `autoscaling_config` replace each other.
            where: The function that the user called, for errors: `Deployment.options()`.

        Raises:
            TypeError: If an option does not exist; names the closest one.
            ValueError: If a value is invalid, or options contradict each other.
        """
        overrides = {name: value for name, value in overrides.items() if value is not defaults.DEFAULT.VALUE}
        validation.reject_unknown_options(overrides, OPTION_NAMES, where)
        if "version" in overrides and where != _INTERNAL:
            validation.reject_version(where)
        given = self.given | overrides.keys()
        return replace(self, **{**overrides, **_merge_scaling(self, overrides)}, given=given)

    def differences(self, other: DeploymentOptions) -> set[str]:
        """Return the names of the options that differ."""
        return {name for name in OPTION_NAMES if getattr(self, name) != getattr(other, name)}


OPTION_NAMES = tuple(each.name for each in fields(DeploymentOptions) if each.name != "given")


def needs_new_replicas(old: DeploymentOptions, new: DeploymentOptions) -> bool:
    """Return whether a change requires new replicas: their code, resources or placement changed."""
    return bool(old.differences(new) & REPLACES_REPLICAS)


def needs_reconfigure(old: DeploymentOptions, new: DeploymentOptions) -> bool:
    """Return whether running replicas must apply a change, such as one of `user_config`."""
    changed = old.differences(new)
    return bool(changed & _RECONFIGURES_REPLICAS) or (
        "autoscaling_config" in changed and _reporting_options(old) != _reporting_options(new)
    )


def needs_routing_update(old: DeploymentOptions, new: DeploymentOptions) -> bool:
    """Return whether routers must apply a change."""
    return bool(old.differences(new) & _UPDATES_ROUTERS)


def _reporting_options(options: DeploymentOptions) -> list[float] | None:
    config = options.autoscaling_config
    return None if config is None else [getattr(config, name) for name in _REPORTING_OPTIONS]


def _merge_scaling(base: DeploymentOptions, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return `num_replicas` and `autoscaling_config` after overrides: a new value of one replaces the other."""
    replicas, scaling = overrides.get("num_replicas"), overrides.get("autoscaling_config")
    if replicas == "auto":
        from skate.serve._config.autoscaling import auto_fields

        gangs = overrides.get("gang_scheduling_config", base.gang_scheduling_config)
        size = int(_as_fields(gangs).get("gang_size", 1))
        return {"num_replicas": None, "autoscaling_config": {**auto_fields(size), **_as_fields(scaling)}}
    if replicas is not None and scaling is not None:
        raise DeploymentConfigError(
            "num_replicas and autoscaling_config exclude each other. Give num_replicas for a fixed number, or "
            'autoscaling_config (or num_replicas="auto") to follow the load.',
            ("num_replicas", "autoscaling_config"),
        )
    if scaling is not None:
        return {"num_replicas": None}
    if replicas is not None:
        return {"autoscaling_config": None}
    if "autoscaling_config" in overrides or ("num_replicas" in overrides and not base.is_autoscaled):
        return {"num_replicas": base.num_replicas or defaults.NUM_REPLICAS}
    return {"num_replicas": base.num_replicas}


def _as_fields(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    return (
        {name: getattr(config, name) for name in config.model_fields_set}
        if _is_model(config)
        else arguments.mapping(
            "autoscaling_config", config, "an AutoscalingConfig, a dictionary of its fields or None"
        )
    )


def _is_model(value: Any) -> bool:
    return hasattr(value, "model_fields_set")


def _validate_scalars(options: DeploymentOptions) -> dict[str, Any]:
    arguments.instance("name", options.name, str, "a string, the name of the deployment")
    if not options.name or "#" in options.name:
        raise ValueError(
            f"The name of a deployment has at least one character, and no '#'. It is {options.name!r}."
        )
    validation.check_json("user_config", options.user_config)
    check_max_replicas_per_node(options.max_replicas_per_node)
    replicas = options.num_replicas
    waiting = options.max_queued_requests
    if waiting != -1 and (isinstance(waiting, bool) or not isinstance(waiting, int) or waiting < 1):
        validation.reject("max_queued_requests", "a positive integer or -1, for no limit", waiting)
    part = validation.validate_number("rolling_update_percentage", options.rolling_update_percentage)
    if not 0 < part <= 1:
        validation.reject("rolling_update_percentage", "a number above 0 and at most 1 (all at once)", part)
    return {
        "num_replicas": None
        if replicas is None
        else validation.validate_integer(
            "num_replicas", replicas, low=1, must="a positive integer or 'auto'"
        ),
        "user_config": copy.deepcopy(options.user_config),
        "max_ongoing_requests": validation.validate_integer(
            "max_ongoing_requests", options.max_ongoing_requests, low=1
        ),
        "rolling_update_percentage": part,
        "max_surge_percent": validation.validate_integer(
            "max_surge_percent", options.max_surge_percent, low=0, high=100
        ),
        "max_constructor_retry_count": validation.validate_integer(
            "max_constructor_retry_count", options.max_constructor_retry_count, low=1
        ),
        **{
            name: validation.validate_seconds(
                name, getattr(options, name), above_zero=name.startswith("health")
            )
            for name in (
                "graceful_shutdown_wait_loop_s",
                "graceful_shutdown_timeout_s",
                "health_check_period_s",
                "health_check_timeout_s",
            )
        },
    }


def _validate_models(options: DeploymentOptions) -> dict[str, Any]:
    actors: Any = options.deployment_actors
    if actors is not None and not isinstance(actors, list | tuple):
        validation.reject("deployment_actors", "a list of DeploymentActorConfig", actors)
    return {
        "ray_actor_options": validate_actor_options(options.ray_actor_options),
        **{
            option: _validate_model(kind, getattr(options, option), option)
            for option, kind in _MODEL_CLASSES.items()
        },
        "logging_config": _validate_logging(options.logging_config),
        "deployment_actors": None
        if actors is None
        else tuple(
            _validate_model("DeploymentActorConfig", each, f"deployment_actors[{at}]")
            for at, each in enumerate(actors)
        ),
    }


def _validate_model(kind: str, value: Any, name: str) -> Any:
    if value is None:
        return None
    from skate.serve._config import autoscaling, option_models

    module = autoscaling if kind == "AutoscalingConfig" else option_models
    return validation.validate_model(name, getattr(module, kind), value)


def _validate_logging(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    from skate.serve._config.observability import LoggingConfig

    fields: dict[str, Any] = validation.validate_model("logging_config", LoggingConfig, value).model_dump()
    return fields


def _check_together(options: DeploymentOptions) -> None:
    """Raise if options contradict each other."""
    if options.num_replicas is None and options.autoscaling_config is None:
        raise DeploymentConfigError(
            "num_replicas is None and there is no autoscaling_config: set one of them.",
            ("num_replicas", "autoscaling_config"),
        )
    if options.max_replicas_per_node is not None and options.placement_group_bundles is not None:
        raise DeploymentConfigError(
            "max_replicas_per_node and placement_group_bundles exclude each other, since the strategy of a placement "
            "group determines where replicas run. Leave out one of them.",
            ("max_replicas_per_node", "placement_group_bundles"),
        )
    names = [actor.name for actor in options.deployment_actors or ()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"deployment_actors must have unique names: rename {', '.join(twice)}.")
    if options.gang_scheduling_config is not None:
        _check_gangs(options, options.gang_scheduling_config.gang_size)


def _check_gangs(options: DeploymentOptions, size: int) -> None:
    for name, instead in (
        ("max_replicas_per_node", "Leave it out."),
        ("placement_group_strategy", "Set its gang_placement_strategy."),
    ):
        if getattr(options, name) is not None:
            raise DeploymentConfigError(
                f"{name} has no meaning together with gang_scheduling_config. {instead}",
                (name, "gang_scheduling_config"),
            )
    validation.check_gang_multiple("num_replicas", options.num_replicas, size)
    if (scaling := options.autoscaling_config) is not None:
        # A default `min_replicas` is rounded up to a gang; `max_replicas` must be a multiple.
        for bound in sorted({"max_replicas", *scaling.model_fields_set} & _REPLICA_BOUNDS):
            validation.check_gang_multiple(f"autoscaling_config.{bound}", getattr(scaling, bound), size)
