"""How applications, deployments, replicas and proxies are doing: words for it, and the overview of `serve.status`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class _Numbered(StrEnum):
    """A word that metrics show as a number: its place in the order below, from 1; 0 is none of them."""

    def to_numeric(self) -> int:
        """Return the number that stands for this word in metrics."""
        order = _ORDERS[type(self).__name__]
        return order.index(self.value) + 1 if self.value in order else 0


class ApplicationStatus(_Numbered):
    """How an application is doing."""

    NOT_STARTED = "NOT_STARTED"
    DEPLOYING = "DEPLOYING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


class DeploymentStatus(_Numbered):
    """How a deployment is doing."""

    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"


class ProxyStatus(_Numbered):
    """How a proxy is doing."""

    STARTING = "STARTING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"


class DeploymentStatusTrigger(StrEnum):
    """What made a deployment's status what it is."""

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
    """Where a replica is in its life."""

    STARTING = "STARTING"
    UPDATING = "UPDATING"
    RECOVERING = "RECOVERING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    PENDING_MIGRATION = "PENDING_MIGRATION"


class RequestProtocol(StrEnum):
    """How a request came in."""

    UNDEFINED = "UNDEFINED"
    HTTP = "HTTP"
    GRPC = "gRPC"


class AutoscalingStatus(StrEnum):
    """Which way the number of replicas goes."""

    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"
    STABLE = "STABLE"


class AutoscalingMetricsHealth(StrEnum):
    """Whether measurements for autoscaling come in."""

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
        """Return the words that a user may filter by."""
        return [cls.IMPERATIVE.value, cls.DECLARATIVE.value]


# Dashboards made for Ray read these numbers.
_ORDERS = {
    "ApplicationStatus": ["DEPLOY_FAILED", "UNHEALTHY", "NOT_STARTED", "DELETING", "DEPLOYING", "RUNNING"],
    "DeploymentStatus": ["DEPLOY_FAILED", "UNHEALTHY", "UPDATING", "UPSCALING", "DOWNSCALING", "HEALTHY"],
    "ProxyStatus": ["STARTING", "HEALTHY", "UNHEALTHY", "DRAINING", "DRAINED"],
}


@dataclass
class DeploymentStatusOverview:
    """How a deployment is doing, and how many replicas are in which state."""

    status: DeploymentStatus
    status_trigger: DeploymentStatusTrigger
    replica_states: dict[ReplicaState, int]
    message: str


@dataclass
class ApplicationStatusOverview:
    """How an application is doing, and each of its deployments."""

    status: ApplicationStatus
    message: str
    last_deployed_time_s: float
    deployments: dict[str, DeploymentStatusOverview]


@dataclass
class ServeStatus:
    """How all proxies and applications are doing.

    >>> from skate.serve.schema import ServeStatus
    >>> ServeStatus().applications
    {}
    """

    proxies: dict[str, ProxyStatus] = field(default_factory=dict)
    applications: dict[str, ApplicationStatusOverview] = field(default_factory=dict)
    target_capacity: float | None = None
