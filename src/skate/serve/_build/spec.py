"""Specifications of applications for the controller. User code stays pickled: the controller never runs it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from skate.serve._autoscaling.replica_counts import apply_target_capacity, round_up_to_gangs
from skate.serve._config.options import DeploymentOptions
from skate.serve._runtime.ids import DeploymentID

__all__ = ["ApplicationSpec", "DeploymentSpec"]


@dataclass(frozen=True)
class DeploymentSpec:
    """The specification of one deployment."""

    id: DeploymentID
    options: DeploymentOptions
    code: bytes
    init: bytes
    version: str
    is_ingress: bool = False
    calls: tuple[str, ...] = ()  # the deployments whose handles are in its arguments
    retry_lost: bool | None = None
    source: str = ""  # where it is defined, for display
    target_capacity: float | None = None  # the percentage of replicas to run
    is_ramping_up: bool = False  # `target_capacity` is increasing step by step

    @property
    def first_replicas(self) -> int:
        """The number of replicas that the deployment starts with."""
        return round_up_to_gangs(
            apply_target_capacity(self.options.first_replicas, self.target_capacity), self.options.gang_size
        )


@dataclass(frozen=True)
class ApplicationSpec:
    """The specification of an application."""

    name: str
    route_prefix: str | None
    deployments: tuple[DeploymentSpec, ...]
    ingress: str
    logging_config: Any = None
    external_scaler_enabled: bool = False
    is_declarative: bool = False  # from a configuration file
    config: dict[str, Any] | None = field(default=None)

    def __post_init__(self) -> None:
        scaled = [repr(each.id.name) for each in self.deployments if each.options.is_autoscaled]
        if self.external_scaler_enabled and scaled:
            raise ValueError(
                f"external_scaler_enabled is True, but {', '.join(scaled)} of application {self.name!r} scale by "
                "themselves (autoscaling_config). Only one can decide: leave out external_scaler_enabled, or give "
                "these deployments a num_replicas to start with."
            )
        if self.logging_config is not None:
            object.__setattr__(self, "deployments", tuple(map(self._logging, self.deployments)))
        prefix = self.route_prefix
        if prefix is None:
            return
        if not prefix.startswith("/"):
            raise ValueError(f"route_prefix must start with '/', got {prefix!r}.")
        if prefix != "/" and prefix.endswith("/"):
            raise ValueError(
                f"route_prefix must not end with '/', got {prefix!r}: write {prefix.rstrip('/')!r}."
            )
        if "{" in prefix or "}" in prefix:
            raise ValueError(f"route_prefix may not contain wildcards, got {prefix!r}.")

    def _logging(self, deployment: DeploymentSpec) -> DeploymentSpec:
        """Return a deployment with the application's logging configuration, unless it has one."""
        if deployment.options.logging_config is not None:
            return deployment
        return replace(deployment, options=replace(deployment.options, logging_config=self.logging_config))
