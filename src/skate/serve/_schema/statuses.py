"""Statuses of applications, deployments, replicas and proxies, and the overviews that `serve.status` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class _Numbered(StrEnum):
    """A status that metrics export as a number: its position in the order below, from 1, or 0."""

    def to_numeric(self) -> int:
        """Return the number of this status in metrics."""
        order = _ORDERS[type(self).__name__]
        return order.index(self.value) + 1 if self.value in order else 0


class ApplicationStatus(_Numbered):
    """The status of an application."""

    NOT_STARTED = "NOT_STARTED"
    DEPLOYING = "DEPLOYING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


class DeploymentStatus(_Numbered):
    """The status of a deployment."""

    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"


class ProxyStatus(_Numbered):
    """The status of a proxy."""

    STARTING = "STARTING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"


class DeploymentStatusTrigger(StrEnum):
    """The cause of a deployment's status."""

    UNSPECIFIED = "UNSPECIFIED"
    CONFIG_UPDATE_STARTED = "CONFIG_UPDATE_STARTED"
    CONFIG_UPDATE_COMPLETED = "CONFIG_UPDATE_COMPLETED"
    UPSCALE_COMPLETED = "UPSCALE_COMPLETED"
    DOWNSCALE_COMPLETED = "DOWNSCALE_COMPLETED"
    AUTOSCALING = "AUTOSCALING"
    REPLICA_STARTUP_FAILED = "REPLICA_STARTUP_FAILED"
    DEPLOYMENT_ACTOR_FAILED = "DEPLOYMENT_ACTOR_FAILED"
    HEALTH_CHECK_FAILED = "HEALTH_CHECK_FAILED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    DELETING = "DELETING"


class ReplicaState(StrEnum):
    """The state of a replica."""

    STARTING = "STARTING"
    UPDATING = "UPDATING"
    RECOVERING = "RECOVERING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    PENDING_MIGRATION = "PENDING_MIGRATION"


class RequestProtocol(StrEnum):
    """The protocol of a request."""

    UNDEFINED = "UNDEFINED"
    HTTP = "HTTP"
    GRPC = "gRPC"


class AutoscalingStatus(StrEnum):
    """The direction of autoscaling."""

    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"
    STABLE = "STABLE"


class AutoscalingMetricsHealth(StrEnum):
    """Whether the measurements for autoscaling arrive."""

    HEALTHY = "healthy"
    DELAYED = "delayed"
    UNAVAILABLE = "unavailable"


class APIType(StrEnum):
    """How an application was deployed: by `serve.run`, or by a configuration file."""

    UNKNOWN = "unknown"
    IMPERATIVE = "imperative"
    DECLARATIVE = "declarative"

    @classmethod
    def get_valid_user_values(cls) -> list[str]:
        """Return the values that a user may filter by."""
        return [cls.IMPERATIVE.value, cls.DECLARATIVE.value]


# Dashboards written for Ray depend on these numbers.
_ORDERS = {
    "ApplicationStatus": ["DEPLOY_FAILED", "UNHEALTHY", "NOT_STARTED", "DELETING", "DEPLOYING", "RUNNING"],
    "DeploymentStatus": ["DEPLOY_FAILED", "UNHEALTHY", "UPDATING", "UPSCALING", "DOWNSCALING", "HEALTHY"],
    "ProxyStatus": ["STARTING", "HEALTHY", "UNHEALTHY", "DRAINING", "DRAINED"],
}


@dataclass
class DeploymentStatusOverview:
    """The status of a deployment, and the number of its replicas by state."""

    status: DeploymentStatus
    status_trigger: DeploymentStatusTrigger
    replica_states: dict[ReplicaState, int]
    message: str


@dataclass
class ApplicationStatusOverview:
    """The status of an application and of its deployments."""

    status: ApplicationStatus
    message: str
    last_deployed_time_s: float
    deployments: dict[str, DeploymentStatusOverview]


@dataclass
class ServeStatus:
    """The status of all proxies and applications.

    >>> from skate.serve.schema import ServeStatus
    >>> ServeStatus().applications
    {}
    """

    proxies: dict[str, ProxyStatus] = field(default_factory=dict)
    applications: dict[str, ApplicationStatusOverview] = field(default_factory=dict)
    target_capacity: float | None = None
