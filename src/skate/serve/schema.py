"""What a configuration file holds, and what is told of applications that run."""

from __future__ import annotations

from skate.serve._schema.application import ServeApplicationSchema, ServeDeploySchema
from skate.serve._schema.deployment import DeploymentSchema, RayActorOptionsSchema
from skate.serve._schema.details import (
    ApplicationDetails,
    DeploymentAutoscalingDetail,
    DeploymentDetails,
    DeploymentNode,
    DeploymentTopology,
    ProxyDetails,
    ReplicaDetails,
    ReplicaRank,
    ScaleDeploymentRequest,
    ScalingDecision,
    ServeActorDetails,
    ServeInstanceDetails,
    Target,
    TargetGroup,
)
from skate.serve._schema.health import ControllerHealthMetrics, DurationStats
from skate.serve._schema.options import (
    EncodingType,
    HTTPOptionsSchema,
    LoggingConfig,
    TracingConfig,
    gRPCOptionsSchema,
)
from skate.serve._schema.statuses import (
    APIType,
    ApplicationStatus,
    ApplicationStatusOverview,
    AutoscalingMetricsHealth,
    AutoscalingStatus,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    ProxyStatus,
    ReplicaState,
    RequestProtocol,
    ServeStatus,
)
from skate.serve._schema.tasks import (
    CeleryAdapterConfig,
    TaskProcessorAdapter,
    TaskProcessorConfig,
    TaskResult,
)

__all__ = [
    "APIType",
    "ApplicationDetails",
    "ApplicationStatus",
    "ApplicationStatusOverview",
    "AutoscalingMetricsHealth",
    "AutoscalingStatus",
    "CeleryAdapterConfig",
    "ControllerHealthMetrics",
    "DeploymentAutoscalingDetail",
    "DeploymentDetails",
    "DeploymentNode",
    "DeploymentSchema",
    "DeploymentStatus",
    "DeploymentStatusOverview",
    "DeploymentStatusTrigger",
    "DeploymentTopology",
    "DurationStats",
    "EncodingType",
    "HTTPOptionsSchema",
    "LoggingConfig",
    "ProxyDetails",
    "ProxyStatus",
    "RayActorOptionsSchema",
    "ReplicaDetails",
    "ReplicaRank",
    "ReplicaState",
    "RequestProtocol",
    "ScaleDeploymentRequest",
    "ScalingDecision",
    "ServeActorDetails",
    "ServeApplicationSchema",
    "ServeDeploySchema",
    "ServeInstanceDetails",
    "ServeStatus",
    "Target",
    "TargetGroup",
    "TaskProcessorAdapter",
    "TaskProcessorConfig",
    "TaskResult",
    "TracingConfig",
    "gRPCOptionsSchema",
]
