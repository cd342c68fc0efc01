"""What the controller is given to deploy. The user's code stays packed: the controller never runs any of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from skate.serve._autoscaling.replica_counts import apply_target_capacity, round_up_to_gangs
from skate.serve._config.options import DeploymentOptions
from skate.serve._runtime.ids import DeploymentID

__all__ = ["ApplicationSpec", "DeploymentSpec"]


@dataclass(frozen=True)
class DeploymentSpec:
    """One deployment of an application."""

    id: DeploymentID
    options: DeploymentOptions
    code: bytes
    init: bytes
    version: str
    is_ingress: bool = False
    calls: tuple[str, ...] = ()  # the deployments whose handles it was given
    retry_lost: bool | None = None
    source: str = ""  # where it is defined, for people
    target_capacity: float | None = None  # the part of its replicas that is wanted, in percent
    is_ramping_up: bool = False  # and that part is a step on the way to all of them

    @property
    def first_replicas(self) -> int:
        """How many replicas it starts with."""
        return round_up_to_gangs(
            apply_target_capacity(self.options.first_replicas, self.target_capacity), self.options.gang_size
        )


@dataclass(frozen=True)
class ApplicationSpec:
    """An application: its deployments, and where it is reached."""

    name: str
    route_prefix: str | None
    deployments: tuple[DeploymentSpec, ...]
    ingress: str
    logging_config: Any = None
    external_scaler_enabled: bool = False
    is_declarative: bool = False  # it came from a configuration file
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
        """Let a deployment that does not say how it logs do it as the application does."""
        if deployment.options.logging_config is not None:
            return deployment
        return replace(deployment, options=replace(deployment.options, logging_config=self.logging_config))
