"""A configuration file: applications, and what they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from skate.serve._config import defaults
from skate.serve._config.autoscaling import AutoscalingPolicy, fields_of
from skate.serve._config.choices import ProxyLocation
from skate.serve._config.edge import ControllerOptions, Port
from skate.serve._config.model import ServeModel
from skate.serve._config.wording import check_route_prefix
from skate.serve._schema.deployment import DeploymentSchema
from skate.serve._schema.options import HTTPOptionsSchema, LoggingConfig, TracingConfig, gRPCOptionsSchema

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
