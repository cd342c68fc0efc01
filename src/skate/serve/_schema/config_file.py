"""A configuration file: applications, and what they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    StrictInt,
    field_validator,
    model_validator,
)

from skate.air import _arguments as arguments
from skate.serve._config import defaults
from skate.serve._config.autoscaling import AutoscalingConfig, AutoscalingPolicy, auto_fields, fields_of
from skate.serve._config.defaults import ProxyLocation
from skate.serve._config.http import ControllerOptions, HTTPOptionsSchema, Port, gRPCOptionsSchema
from skate.serve._config.model import ServeModel
from skate.serve._config.observability import LoggingConfig, TracingConfig
from skate.serve._config.option_models import (
    BackpressureConfig,
    DeploymentActorConfig,
    GangSchedulingConfig,
    RequestRouterConfig,
)
from skate.serve._config.options import OPTION_NAMES, DeploymentOptions
from skate.serve._config.placement import validate_actor_options
from skate.serve._config.validation import check_gang_multiple, check_route_prefix


def _unset(value: Any) -> bool:
    return value is defaults.DEFAULT.VALUE


def _option(description: str, **limits: Any) -> Any:
    """Declare an option that counts only where it is given, and is written only then."""
    return Field(default=defaults.DEFAULT.VALUE, description=description, exclude_if=_unset, **limits)


class RayActorOptionsSchema(ServeModel):
    """What a replica's actor needs."""

    runtime_env: dict[str, Any] = Field(default={}, description="The environment it runs in.")
    num_cpus: NonNegativeFloat | None = Field(
        default=None, description="CPUs that it reserves; 1 if not given."
    )
    num_gpus: NonNegativeFloat | None = Field(default=None, description="GPUs, or a part of one.")
    memory: NonNegativeFloat | None = Field(default=None, description="Memory that it reserves, in bytes.")
    resources: dict[str, float] = Field(default={}, description="Other resources by name.")
    accelerator_type: str | None = Field(default=None, description="Which accelerator the node must have.")
    label_selector: dict[str, str] | None = Field(default=None, description="Labels that the node must have.")
    fallback_strategy: list[dict[str, Any]] | None = Field(
        default=None, description="Other label selectors, in the order in which they are tried."
    )

    @model_validator(mode="after")
    def _the_engine_takes_them(self) -> RayActorOptionsSchema:
        validate_actor_options(self)
        return self


class DeploymentSchema(ServeModel):
    """Options of a deployment by its name; what is not given stays as the program says.

    >>> from skate.serve.schema import DeploymentSchema
    >>> DeploymentSchema(name="Model", num_replicas="auto").model_dump()
    {'name': 'Model', 'num_replicas': 'auto'}
    """

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(description="The deployment's name in the program.")
    num_replicas: PositiveInt | str | None = _option('How many replicas; "auto" lets it follow the load.')
    max_ongoing_requests: PositiveInt = _option("Requests that one replica works on at a time.")
    max_queued_requests: StrictInt = _option(
        "Requests that wait at each caller before more are refused; -1: all."
    )
    backpressure_config: BackpressureConfig = _option("What refused requests are answered.")
    user_config: dict[str, Any] | None = _option("Argument of the deployment's method `reconfigure`.")
    autoscaling_config: dict[str, Any] | AutoscalingConfig | None = _option(
        "How it follows the load.", union_mode="left_to_right"
    )
    graceful_shutdown_wait_loop_s: NonNegativeFloat = _option(
        "How often a stopping replica looks for open requests."
    )
    graceful_shutdown_timeout_s: NonNegativeFloat = _option("When a stopping replica is killed.")
    health_check_period_s: PositiveFloat = _option("How often replicas are asked for their health.")
    health_check_timeout_s: PositiveFloat = _option("When no answer is a bad answer.")
    ray_actor_options: RayActorOptionsSchema = _option("What a replica's actor needs.")
    placement_group_bundles: list[dict[str, float]] = _option("Resources that a replica reserves together.")
    placement_group_strategy: str = _option("How the bundles are spread over nodes.")
    placement_group_bundle_label_selector: list[dict[str, str]] = _option(
        "Labels that each bundle's node must have."
    )
    max_replicas_per_node: int = _option("Most replicas on one node.")
    logging_config: LoggingConfig = _option("How its replicas log.")
    request_router_config: dict[str, Any] | RequestRouterConfig = _option(
        "Who chooses the replica for a request.", union_mode="left_to_right"
    )
    gang_scheduling_config: GangSchedulingConfig | None = _option("Replicas that start and stop together.")
    deployment_actors: list[dict[str, Any] | DeploymentActorConfig] | None = _option(
        "Actors that replicas share."
    )
    rolling_update_percentage: Annotated[float, Field(gt=0.0, le=1.0)] = _option(
        "Which part of replicas an update replaces at a time."
    )
    max_surge_percent: Annotated[int, Field(ge=0, le=100)] = _option(
        "Replicas that an update adds, in percent."
    )

    @field_validator("num_replicas", mode="before")
    @classmethod
    def _number_or_auto(cls, value: Any) -> Any:
        if isinstance(value, int) and value < 1:
            arguments.refuse("num_replicas", "a positive integer or 'auto'", value, ValueError)
        return value

    @model_validator(mode="after")
    def _replicas(self) -> DeploymentSchema:
        number, scaling = self.num_replicas, self.autoscaling_config
        if isinstance(number, str) and number != "auto":
            raise ValueError(f'`num_replicas` must be an int or "auto", but got: {number}')
        if isinstance(number, int) and self._given("autoscaling_config"):
            raise ValueError(
                "Manually setting num_replicas is not allowed when autoscaling_config is provided. Leave out "
                "num_replicas to follow the load, or autoscaling_config for a fixed number."
            )
        if isinstance(scaling, dict):
            _check_scaling(scaling, auto=number == "auto")
        return self

    @model_validator(mode="after")
    def _queue(self) -> DeploymentSchema:
        waiting = self.max_queued_requests
        if not _unset(waiting) and waiting != -1 and waiting < 1:
            raise ValueError(
                f"max_queued_requests must be -1 (no limit) or a positive integer, got {waiting}."
            )
        return self

    @model_validator(mode="after")
    def _placement(self) -> DeploymentSchema:
        has_bundles = self._given("placement_group_bundles")
        if has_bundles and self._given("max_replicas_per_node"):
            raise ValueError(
                "Setting max_replicas_per_node is not allowed when placement_group_bundles is provided. Leave out one "
                "of them."
            )
        if self._given("placement_group_bundle_label_selector"):
            selectors = self.placement_group_bundle_label_selector
            if not has_bundles:
                raise ValueError(
                    "Setting bundle_label_selector is not allowed when placement_group_bundles is not provided. Give "
                    "placement_group_bundles too."
                )
            if len(selectors) not in (1, len(self.placement_group_bundles)):
                raise ValueError(
                    "The `placement_group_bundle_label_selector` list must contain either a single selector (to apply "
                    "to all bundles) or match the number of `placement_group_bundles`: it has "
                    f"{len(selectors)}, and there are {len(self.placement_group_bundles)} bundles."
                )
        return self

    @model_validator(mode="after")
    def _gangs(self) -> DeploymentSchema:
        if not self._given("gang_scheduling_config"):
            return self
        assert self.gang_scheduling_config is not None
        for name, instead in (
            ("max_replicas_per_node", "Leave it out."),
            ("placement_group_strategy", "Use gang_scheduling_config.gang_placement_strategy instead."),
        ):
            if self._given(name):
                raise ValueError(
                    f"Setting {name} is not allowed when gang_scheduling_config is provided. {instead}"
                )
        size = self.gang_scheduling_config.gang_size
        if isinstance(self.num_replicas, int):
            check_gang_multiple("num_replicas", self.num_replicas, size)
        scaling = self.autoscaling_config
        if isinstance(scaling, AutoscalingConfig):
            scaling = scaling.model_dump(exclude_unset=True)
        if isinstance(scaling, dict):
            for bound in ("min_replicas", "max_replicas", "initial_replicas"):
                check_gang_multiple(f"autoscaling_config.{bound}", scaling.get(bound), size)
        return self

    def _given(self, name: str) -> bool:
        return getattr(self, name) not in (defaults.DEFAULT.VALUE, None)

    def is_autoscaling_configured(self) -> bool:
        """Return whether the number of replicas is left to Serve here."""
        return self.num_replicas == "auto" or self._given("autoscaling_config")

    def overrides(self) -> dict[str, Any]:
        """Return the options that are given, for `DeploymentOptions.merged`."""
        return {name: getattr(self, name) for name in self._get_user_configured_option_names() - {"name"}}

    def _get_user_configured_option_names(self) -> set[str]:
        return {
            name
            for name in self.model_fields_set
            if name in type(self).model_fields and not _unset(getattr(self, name))
        }


def _check_scaling(config: dict[str, Any], *, auto: bool) -> None:
    """See that an autoscaling configuration agrees with itself; where its policy is, can be seen only at work."""
    numbers = {name: value for name, value in config.items() if name != "policy"}
    if config.get("policy") is not None and numbers.get("target_ongoing_requests", 0) is None:
        del numbers["target_ongoing_requests"]
    AutoscalingConfig.model_validate({**(auto_fields() if auto else {}), **numbers})


def to_schema(options: DeploymentOptions, *, given_only: bool = False) -> DeploymentSchema:
    """Return options as a section of a configuration file.

    Args:
        options: The deployment's.
        given_only: Leave out what its author did not write.
    """
    written: dict[str, Any] = {"name": options.name}
    for name in OPTION_NAMES:
        value = getattr(options, name)
        is_wanted = name in options.given if given_only else value is not None
        if name in DeploymentSchema.model_fields and name != "name" and is_wanted:
            written[name] = list(value) if name == "deployment_actors" and value is not None else value
    if options.is_autoscaled:
        written.pop("num_replicas", None)
        written["autoscaling_config"] = options.autoscaling_config
    if not isinstance(written.get("user_config", {}), dict):
        del written["user_config"]  # a file can hold dictionaries only
    return DeploymentSchema.model_validate(
        {name: value for name, value in written.items() if value is not None}
    )


TargetCapacity = Annotated[float | None, Field(ge=0, le=100)]


class ServeApplicationSchema(ServeModel):
    """One application: where its code is, and how it is deployed."""

    name: str = Field(default=defaults.APP_NAME, description="Its name, unique among applications.")
    route_prefix: str | None = Field(default="/", description="Where requests for it start; None: no HTTP.")
    import_path: str = Field(
        description="`module:name` of a bound application or of a function that returns one."
    )
    runtime_env: dict[str, Any] = Field(default={}, description="The environment that its replicas run in.")
    host: str = Field(default=defaults.HTTP_HOST, description="Of a file with one application only.")
    port: Port = Field(default=defaults.HTTP_PORT, description="Of a file with one application only.")
    deployments: list[DeploymentSchema] = Field(default=[], description="What differs from the program.")
    autoscaling_policy: dict[str, Any] | None = Field(
        default=None, description="A policy that decides for all of its deployments together."
    )
    args: dict[str, Any] = Field(default={}, description="Arguments, where the import path is a function.")
    logging_config: LoggingConfig | None = Field(default=None, description="How its replicas log.")
    external_scaler_enabled: bool = Field(
        default=False, description="Whether somebody outside sets the numbers of replicas."
    )

    @property
    def deployment_names(self) -> list[str]:
        """Return the names of the deployments that the file mentions."""
        return [deployment.name for deployment in self.deployments]

    @field_validator("autoscaling_policy", mode="before")
    @classmethod
    def _as_dictionary(cls, value: Any) -> Any:
        return fields_of(value) if isinstance(value, AutoscalingPolicy) else value

    @field_validator("route_prefix")
    @classmethod
    def _is_a_route(cls, value: str | None) -> str | None:
        check_route_prefix(value)
        return value

    @field_validator("import_path")
    @classmethod
    def _is_an_import_path(cls, value: str) -> str:
        if value.count(":") > 1:
            raise ValueError(f'Got invalid import path "{value}". An import path may have at most one colon.')
        module, separator, name = value.rpartition(":" if ":" in value else ".")
        if not (module and separator and name):
            raise ValueError(
                f'Got invalid import path "{value}". Write the module, a colon or a dot, and the name of the '
                'application in it: "module.submodule:app".'
            )
        return value

    @field_validator("deployments")
    @classmethod
    def _deployments_once(cls, value: list[DeploymentSchema]) -> list[DeploymentSchema]:
        if twice := _repeated(deployment.name for deployment in value):
            raise ValueError(f"Found multiple configs for deployment {twice}. Please remove all duplicates.")
        return value

    @model_validator(mode="after")
    def _one_scaler(self) -> ServeApplicationSchema:
        scaled = [f'"{each.name}"' for each in self.deployments if each.is_autoscaling_configured()]
        if self.external_scaler_enabled and scaled:
            raise ValueError(
                "external_scaler_enabled is set to True, but the following deployment(s) have autoscaling configured: "
                f"{', '.join(scaled)}. Only one can decide: set external_scaler_enabled to false, or give these "
                "deployments a fixed num_replicas to start with."
            )
        return self

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """Return what the file of no application says."""
        return {"import_path": "", "runtime_env": {}, "deployments": []}


class ServeDeploySchema(ServeModel):
    """A whole configuration file, as `serve deploy` reads it.

    >>> from skate.serve.schema import ServeDeploySchema
    >>> file = {"applications": [{"name": "app", "import_path": "module:app", "route_prefix": "/app"}]}
    >>> ServeDeploySchema.model_validate(file).model_dump(exclude_unset=True) == file
    True
    """

    proxy_location: ProxyLocation = Field(default=ProxyLocation.EveryNode, description="Where proxies run.")
    http_options: HTTPOptionsSchema = Field(default=HTTPOptionsSchema(), description="How HTTP is taken.")
    grpc_options: gRPCOptionsSchema = Field(default=gRPCOptionsSchema(), description="How gRPC is taken.")
    controller_options: ControllerOptions | None = Field(
        default=None, description="Options of the controller."
    )
    logging_config: LoggingConfig | None = Field(default=None, description="How Serve logs.")
    tracing_config: TracingConfig | None = Field(default=None, description="Spans of OpenTelemetry.")
    applications: list[ServeApplicationSchema] = Field(
        description="All applications: one that is missing goes."
    )
    target_capacity: TargetCapacity = Field(
        default=None, description="Which part of all numbers of replicas there should be, in percent."
    )

    @field_validator("applications")
    @classmethod
    def _applications_differ(cls, value: list[ServeApplicationSchema]) -> list[ServeApplicationSchema]:
        if not all(application.name for application in value):
            raise ValueError("Application names must be nonempty: give each application a `name`.")
        if twice := _repeated(application.name for application in value):
            raise ValueError(f"Found multiple configs for application {twice}. Please remove all duplicates.")
        routes = (each.route_prefix for each in value if each.route_prefix is not None)
        if twice := _repeated(routes):
            raise ValueError(
                f"Found duplicate applications for route prefix {twice}. Please ensure each application's "
                "route_prefix is unique."
            )
        return value

    @model_validator(mode="after")
    def _address_on_top(self) -> ServeDeploySchema:
        for application in self.applications:
            for name in {"host", "port"} & application.model_fields_set:
                raise ValueError(
                    f'{name} "{getattr(application, name)}" is set in the config for application '
                    f"`{application.name}`. Please remove it and set {name} in the top level http_options only."
                )
        return self

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """Return what a file without applications says."""
        return {"applications": []}


def _repeated(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word, count in Counter(words).items() if count > 1)
