"""The schema of configuration files: applications, their deployments, and common options."""

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
from skate.serve._config.autoscaling import (
    AutoscalingConfig,
    AutoscalingPolicy,
    auto_fields,
    policy_to_fields,
)
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
    """Declare an option that has an effect, and is serialized, only if it is given."""
    return Field(default=defaults.DEFAULT.VALUE, description=description, exclude_if=_unset, **limits)


class RayActorOptionsSchema(ServeModel):
    """Options of a replica's actor."""

    runtime_env: dict[str, Any] = Field(default={}, description="The runtime environment of the actor.")
    num_cpus: NonNegativeFloat | None = Field(default=None, description="CPUs to reserve; 1 if not given.")
    num_gpus: NonNegativeFloat | None = Field(default=None, description="GPUs to reserve; may be a fraction.")
    memory: NonNegativeFloat | None = Field(default=None, description="Memory to reserve, in bytes.")
    resources: dict[str, float] = Field(default={}, description="Other resources by name.")
    accelerator_type: str | None = Field(
        default=None, description="The type of accelerator that the node must have."
    )
    label_selector: dict[str, str] | None = Field(default=None, description="Labels that the node must have.")
    fallback_strategy: list[dict[str, Any]] | None = Field(
        default=None, description="Alternative label selectors, in the order to try them."
    )

    @model_validator(mode="after")
    def _the_engine_takes_them(self) -> RayActorOptionsSchema:
        validate_actor_options(self)
        return self


class DeploymentSchema(ServeModel):
    """Options that override those of a deployment in the program, by its name.

    >>> from skate.serve.schema import DeploymentSchema
    >>> DeploymentSchema(name="Model", num_replicas="auto").model_dump()
    {'name': 'Model', 'num_replicas': 'auto'}
    """

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(description="The deployment's name in the program.")
    num_replicas: PositiveInt | str | None = _option('The number of replicas; "auto" enables autoscaling.')
    max_ongoing_requests: PositiveInt = _option("The maximum number of concurrent requests per replica.")
    max_queued_requests: StrictInt = _option(
        "The maximum number of waiting requests per caller; -1 for no limit."
    )
    backpressure_config: BackpressureConfig = _option("The response to rejected requests.")
    user_config: dict[str, Any] | None = _option("Argument of the deployment's method `reconfigure`.")
    autoscaling_config: dict[str, Any] | AutoscalingConfig | None = _option(
        "How the number of replicas follows the load.", union_mode="left_to_right"
    )
    graceful_shutdown_wait_loop_s: NonNegativeFloat = _option(
        "Has no effect: a replica stops as soon as its requests are answered."
    )
    graceful_shutdown_timeout_s: NonNegativeFloat = _option(
        "The time limit for open requests of a stopping replica."
    )
    health_check_period_s: PositiveFloat = _option("The interval of health checks.")
    health_check_timeout_s: PositiveFloat = _option("The time limit of a health check.")
    ray_actor_options: RayActorOptionsSchema = _option("Options of the replicas' actors.")
    placement_group_bundles: list[dict[str, float]] = _option("The bundles of a placement group per replica.")
    placement_group_strategy: str = _option("How to place the bundles on nodes.")
    placement_group_bundle_label_selector: list[dict[str, str]] = _option(
        "Labels that the node of each bundle must have."
    )
    max_replicas_per_node: int = _option("The maximum number of replicas per node.")
    logging_config: LoggingConfig = _option("Options of its replicas' logging.")
    request_router_config: dict[str, Any] | RequestRouterConfig = _option(
        "The request router, which chooses the replica for a request.", union_mode="left_to_right"
    )
    gang_scheduling_config: GangSchedulingConfig | None = _option("Replicas that start and stop together.")
    deployment_actors: list[dict[str, Any] | DeploymentActorConfig] | None = _option(
        "Actors that replicas share."
    )
    rolling_update_percentage: Annotated[float, Field(gt=0.0, le=1.0)] = _option(
        "The fraction of replicas that an update replaces at a time."
    )
    max_surge_percent: Annotated[int, Field(ge=0, le=100)] = _option(
        "Has no effect: an update adds replicas as far as resources allow."
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
            raise ValueError(f'num_replicas is an integer or "auto", not {number!r}')
        if isinstance(number, int) and self._given("autoscaling_config"):
            raise ValueError(
                "num_replicas and autoscaling_config exclude each other. Leave out num_replicas to follow the load, or "
                "autoscaling_config for a fixed number."
            )
        if isinstance(scaling, dict):
            _check_scaling(scaling, auto=number == "auto")
        return self

    @model_validator(mode="after")
    def _queue(self) -> DeploymentSchema:
        waiting = self.max_queued_requests
        if not _unset(waiting) and waiting != -1 and waiting < 1:
            raise ValueError(f"max_queued_requests must be positive, or -1 for no limit, got {waiting}.")
        return self

    @model_validator(mode="after")
    def _placement(self) -> DeploymentSchema:
        has_bundles = self._given("placement_group_bundles")
        if has_bundles and self._given("max_replicas_per_node"):
            raise ValueError(
                "max_replicas_per_node and placement_group_bundles exclude each other, since the strategy of a "
                "placement group determines where replicas run. Leave out one of them."
            )
        if self._given("placement_group_bundle_label_selector"):
            selectors = self.placement_group_bundle_label_selector
            if not has_bundles:
                raise ValueError(
                    "placement_group_bundle_label_selector selects nodes for bundles, and there are none: give "
                    "placement_group_bundles too."
                )
            if len(selectors) not in (1, len(self.placement_group_bundles)):
                raise ValueError(
                    f"placement_group_bundle_label_selector has {len(selectors)} selectors for "
                    f"{len(self.placement_group_bundles)} bundles: give one for all of them, or one for each."
                )
        return self

    @model_validator(mode="after")
    def _gangs(self) -> DeploymentSchema:
        if not self._given("gang_scheduling_config"):
            return self
        assert self.gang_scheduling_config is not None
        for name, instead in (
            ("max_replicas_per_node", "Leave it out."),
            ("placement_group_strategy", "Set its gang_placement_strategy."),
        ):
            if self._given(name):
                raise ValueError(f"{name} has no meaning together with gang_scheduling_config. {instead}")
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
        """Return whether the options enable autoscaling."""
        return self.num_replicas == "auto" or self._given("autoscaling_config")

    def overrides(self) -> dict[str, Any]:
        """Return the given options for `DeploymentOptions.merged`."""
        return {name: getattr(self, name) for name in self._get_user_configured_option_names() - {"name"}}

    def _get_user_configured_option_names(self) -> set[str]:
        return {
            name
            for name in self.model_fields_set
            if name in type(self).model_fields and not _unset(getattr(self, name))
        }


def _check_scaling(config: dict[str, Any], *, auto: bool) -> None:
    """Validate an autoscaling configuration, except its policy, which may not be importable here."""
    numbers = {name: value for name, value in config.items() if name != "policy"}
    if config.get("policy") is not None and numbers.get("target_ongoing_requests", 0) is None:
        del numbers["target_ongoing_requests"]
    AutoscalingConfig.model_validate({**(auto_fields() if auto else {}), **numbers})


def to_schema(options: DeploymentOptions, *, given_only: bool = False) -> DeploymentSchema:
    """Return options as a section of a configuration file.

    Args:
        options: The options of a deployment.
        given_only: Whether to include only options that the author of the program set.
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
        del written["user_config"]  # files support dictionaries only
    return DeploymentSchema.model_validate(
        {name: value for name, value in written.items() if value is not None}
    )


TargetCapacity = Annotated[float | None, Field(ge=0, le=100)]


class ServeApplicationSchema(ServeModel):
    """The section of one application."""

    name: str = Field(default=defaults.APP_NAME, description="Its name, unique among applications.")
    route_prefix: str | None = Field(
        default="/", description="The prefix of its HTTP routes; None disables HTTP."
    )
    import_path: str = Field(description="`module:name` of an application or of a function that returns one.")
    runtime_env: dict[str, Any] = Field(default={}, description="The runtime environment of its replicas.")
    host: str = Field(default=defaults.HTTP_HOST, description="Of a file with one application only.")
    port: Port = Field(default=defaults.HTTP_PORT, description="Of a file with one application only.")
    deployments: list[DeploymentSchema] = Field(default=[], description="Overrides of the program's options.")
    autoscaling_policy: dict[str, Any] | None = Field(
        default=None, description="An autoscaling policy for all of its deployments."
    )
    args: dict[str, Any] = Field(default={}, description="Arguments of the function at the import path.")
    logging_config: LoggingConfig | None = Field(
        default=None, description="Options of its replicas' logging."
    )
    external_scaler_enabled: bool = Field(
        default=False, description="Whether an external scaler sets the numbers of replicas."
    )

    @property
    def deployment_names(self) -> list[str]:
        """The names of the deployments in this section."""
        return [deployment.name for deployment in self.deployments]

    @field_validator("autoscaling_policy", mode="before")
    @classmethod
    def _as_dictionary(cls, value: Any) -> Any:
        return policy_to_fields(value) if isinstance(value, AutoscalingPolicy) else value

    @field_validator("route_prefix")
    @classmethod
    def _is_a_route(cls, value: str | None) -> str | None:
        check_route_prefix(value)
        return value

    @field_validator("import_path")
    @classmethod
    def _is_an_import_path(cls, value: str) -> str:
        if value.count(":") > 1:
            raise ValueError(f'The import path "{value}" has several colons: write "module.submodule:app".')
        module, separator, name = value.rpartition(":" if ":" in value else ".")
        if not (module and separator and name):
            raise ValueError(
                f'The import path "{value}" is incomplete. Write the module, a colon or a dot, and the name of the '
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
                "external_scaler_enabled is set to True, but these deployments also scale by themselves: "
                f"{', '.join(scaled)}. Only one can decide: set external_scaler_enabled to false, or give these "
                "deployments a fixed num_replicas to start with."
            )
        return self

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """Return the section of an empty application."""
        return {"import_path": "", "runtime_env": {}, "deployments": []}


class ServeDeploySchema(ServeModel):
    """A whole configuration file, as `serve deploy` reads it.

    >>> from skate.serve.schema import ServeDeploySchema
    >>> file = {"applications": [{"name": "app", "import_path": "module:app", "route_prefix": "/app"}]}
    >>> ServeDeploySchema.model_validate(file).model_dump(exclude_unset=True) == file
    True
    """

    proxy_location: ProxyLocation = Field(default=ProxyLocation.EveryNode, description="Where proxies run.")
    http_options: HTTPOptionsSchema = Field(
        default=HTTPOptionsSchema(), description="Options of the HTTP listener."
    )
    grpc_options: gRPCOptionsSchema = Field(
        default=gRPCOptionsSchema(), description="Options of the gRPC listener."
    )
    controller_options: ControllerOptions | None = Field(
        default=None, description="Options of the controller."
    )
    logging_config: LoggingConfig | None = Field(default=None, description="Options of logging.")
    tracing_config: TracingConfig | None = Field(
        default=None, description="Options of OpenTelemetry tracing."
    )
    applications: list[ServeApplicationSchema] = Field(
        description="All applications; those of an earlier file that are missing here are deleted."
    )
    target_capacity: TargetCapacity = Field(
        default=None, description="The percentage of all numbers of replicas to run."
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
                f"Several applications have the route_prefix {twice}. Please ensure each application's route_prefix is "
                "unique."
            )
        return value

    @model_validator(mode="after")
    def _address_on_top(self) -> ServeDeploySchema:
        for application in self.applications:
            for name in {"host", "port"} & application.model_fields_set:
                raise ValueError(
                    f'The application "{application.name}" sets {name} to "{getattr(application, name)}", which holds '
                    "for "
                    f"all applications. Move it to http_options at the top of the file."
                )
        return self

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """Return the content of a file without applications."""
        return {"applications": []}


def _repeated(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word, count in Counter(words).items() if count > 1)
