"""Details of running applications, for `serve status --verbose` and the dashboard."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, field_validator

from skate.serve._config.defaults import ProxyLocation
from skate.serve._config.http import HTTPOptionsSchema, gRPCOptionsSchema
from skate.serve._config.validation import check_route_prefix
from skate.serve._schema.config_file import DeploymentSchema, ServeApplicationSchema, TargetCapacity
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

if TYPE_CHECKING:
    from skate.serve._autoscaling.deployment import DeploymentAutoscaler


class ServeActorDetails(BaseModel):
    """The location and ids of one of Serve's actors."""

    model_config = ConfigDict(frozen=True)

    node_id: str | None = None
    node_ip: str | None = None
    node_instance_id: str | None = None
    actor_id: str | None = None
    actor_name: str | None = None
    worker_id: str | None = None
    log_file_path: str | None = Field(
        default=None, description="The path of its log below the folder of logs."
    )


class ReplicaDetails(ServeActorDetails):
    """One replica."""

    replica_id: str
    state: ReplicaState
    pid: int | None = None
    start_time_s: float


class ReplicaRank(BaseModel):
    """The rank of a replica in its deployment, of its node, and of the replica on its node."""

    rank: int
    node_rank: int
    local_rank: int


class ProxyDetails(ServeActorDetails):
    """One proxy."""

    status: ProxyStatus


class ScalingDecision(BaseModel):
    """A change of the number of replicas, and its reason."""

    timestamp_s: float
    reason: str
    prev_num_replicas: NonNegativeInt
    curr_num_replicas: NonNegativeInt
    policy: str | None = None


class DeploymentAutoscalingDetail(BaseModel):
    """The state of a deployment's autoscaling."""

    scaling_status: AutoscalingStatus
    decisions: list[ScalingDecision] = Field(default_factory=list, description="The latest decisions.")
    metrics: dict[str, Any] | None = None
    metrics_health: AutoscalingMetricsHealth = AutoscalingMetricsHealth.HEALTHY
    errors: list[str] = Field(default_factory=list)


class DeploymentDetails(BaseModel):
    """One deployment."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    status: DeploymentStatus
    status_trigger: DeploymentStatusTrigger
    message: str
    deployment_config: DeploymentSchema
    target_num_replicas: NonNegativeInt
    required_resources: dict[str, Any]
    replicas: list[ReplicaDetails]
    recent_dead_replicas: list[ReplicaDetails] = Field(default_factory=list)
    autoscaling_detail: DeploymentAutoscalingDetail | None = None


class DeploymentNode(BaseModel):
    """A deployment and the deployments that it calls."""

    name: str
    app_name: str
    outbound_deployments: list[dict[str, Any]] = Field(
        default_factory=list, description="`name` and `app_name` of each deployment that it calls."
    )
    is_ingress: bool = False


class DeploymentTopology(BaseModel):
    """The calls between the deployments of an application."""

    app_name: str
    nodes: dict[str, DeploymentNode]
    ingress_deployment: str | None = None


class ApplicationDetails(BaseModel):
    """One application."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    route_prefix: str | None
    docs_path: str | None = Field(description="The path of its API documentation.")
    status: ApplicationStatus
    message: str
    last_deployed_time_s: float
    deployed_app_config: ServeApplicationSchema | None = None
    source: APIType
    deployments: dict[str, DeploymentDetails]
    external_scaler_enabled: bool
    deployment_topology: DeploymentTopology | None = None

    @field_validator("route_prefix")
    @classmethod
    def _is_a_route(cls, value: str | None) -> str | None:
        check_route_prefix(value)
        return value


class Target(BaseModel):
    """An address that accepts requests."""

    model_config = ConfigDict(frozen=True)

    ip: str
    port: int
    instance_id: str
    name: str


class TargetGroup(BaseModel):
    """Addresses that accept the same requests."""

    model_config = ConfigDict(frozen=True)

    targets: list[Target]
    route_prefix: str
    protocol: RequestProtocol
    app_name: str = ""
    ingress_request_router_targets: list[Target] = Field(default_factory=list)
    ingress_deployment_name: str = ""


class ScaleDeploymentRequest(BaseModel):
    """The number of replicas that an external scaler requests."""

    target_num_replicas: NonNegativeInt


class DurationStats(BaseModel):
    """Summary statistics of durations."""

    mean: float = 0.0
    std: float = 0.0
    min: float = 0.0
    max: float = 0.0

    @classmethod
    def from_values(cls, values: Sequence[float]) -> DurationStats:
        """Return the mean, standard deviation, minimum and maximum; zeros if there are no values."""
        if not values:
            return cls()
        return cls(
            mean=statistics.fmean(values), std=statistics.pstdev(values), min=min(values), max=max(values)
        )


class ControllerHealthMetrics(BaseModel):
    """Metrics of the controller: its load, and the delays of reports."""

    timestamp: float = 0.0
    controller_start_time: float = 0.0
    uptime_s: float = 0.0
    last_control_loop_time: float = 0.0
    num_control_loops: int = 0
    loop_duration_s: DurationStats | None = None
    loops_per_second: float = 0.0
    last_sleep_duration_s: float = 0.0
    expected_sleep_duration_s: float = 0.0
    event_loop_delay_s: float = 0.0
    num_asyncio_tasks: int = 0
    handle_ingest_duration_ms: DurationStats | None = None
    replica_ingest_duration_ms: DurationStats | None = None
    metrics_decompress_duration_ms: DurationStats | None = None
    columnar_decode_duration_ms: DurationStats | None = None
    handle_reports_received: int = 0
    replica_reports_received: int = 0
    ingest_reports_received: int = 0
    ingest_cpu_fraction: float = 0.0
    deployment_state_update_duration_s: DurationStats | None = None
    application_state_update_duration_s: DurationStats | None = None
    proxy_state_update_duration_s: DurationStats | None = None
    node_update_duration_s: DurationStats | None = None
    handle_metrics_delay_ms: DurationStats | None = None
    replica_metrics_delay_ms: DurationStats | None = None
    process_memory_mb: float = 0.0


class ServeInstanceDetails(BaseModel):
    """The full state of Serve: its controller, proxies and applications."""

    model_config = ConfigDict(extra="forbid")

    controller_info: ServeActorDetails = Field(default_factory=ServeActorDetails)
    proxy_location: ProxyLocation | None = None
    http_options: HTTPOptionsSchema | None = None
    grpc_options: gRPCOptionsSchema | None = None
    proxies: dict[str, ProxyDetails]
    applications: dict[str, ApplicationDetails]
    target_capacity: TargetCapacity = None
    target_groups: list[TargetGroup] = Field(default_factory=list)
    controller_health_metrics: ControllerHealthMetrics = Field(default_factory=ControllerHealthMetrics)
    restores_unset_config_options: bool = False

    @staticmethod
    def get_empty_schema_dict() -> dict[str, Any]:
        """Return the details if Serve does not run."""
        return {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}

    def _get_status(self) -> ServeStatus:
        """Return the status, as `serve.status` does."""
        return ServeStatus(
            proxies={node: proxy.status for node, proxy in self.proxies.items()},
            applications={name: _overview(details) for name, details in self.applications.items()},
            target_capacity=self.target_capacity,
        )

    def _get_user_facing_json_serializable_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the details as JSON types, without binary values."""
        content = _without_bytes(self.model_dump(*args, **kwargs))
        plain: dict[str, Any] = json.loads(json.dumps(content, default=str))
        return plain


def autoscaling_detail(
    scaler: DeploymentAutoscaler, current: int, target: int, now: float, epoch: float = 0.0
) -> DeploymentAutoscalingDetail:
    """Return the state of a deployment's autoscaling.

    Args:
        scaler: The autoscaler of the deployment.
        current: The number of running replicas.
        target: The target number of replicas.
        now: The time on the scaler's clock.
        epoch: The offset from the scaler's clock to Unix time.
    """
    context = scaler.context(current, target, now)
    direction = (target > current) - (target < current) or scaler.direction
    return DeploymentAutoscalingDetail(
        scaling_status=_DIRECTIONS[direction],
        decisions=[
            ScalingDecision(
                timestamp_s=decision.time + epoch,
                reason=decision.reason,
                prev_num_replicas=decision.before,
                curr_num_replicas=decision.after,
                policy=str(scaler.config.policy.policy_function),
            )
            for decision in scaler.decisions
        ],
        metrics={
            "total_num_requests": context.total_num_requests,
            "total_queued_requests": context.total_queued_requests,
            **{
                name: {str(replica): value for replica, value in replicas.items()}
                for name, replicas in (context.aggregated_metrics or {}).items()
            },
        },
        errors=[scaler.error] if scaler.error else [],
    )


_DIRECTIONS = {
    1: AutoscalingStatus.UPSCALING,
    0: AutoscalingStatus.STABLE,
    -1: AutoscalingStatus.DOWNSCALING,
}


def _without_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_bytes(each) for key, each in value.items() if not isinstance(each, bytes)}
    return [_without_bytes(each) for each in value] if isinstance(value, list) else value


def _overview(details: ApplicationDetails) -> ApplicationStatusOverview:
    return ApplicationStatusOverview(
        status=details.status,
        message=details.message,
        last_deployed_time_s=details.last_deployed_time_s,
        deployments={
            name: DeploymentStatusOverview(
                status=deployment.status,
                status_trigger=deployment.status_trigger,
                replica_states=dict(Counter(replica.state for replica in deployment.replicas)),
                message=deployment.message,
            )
            for name, deployment in details.deployments.items()
        },
    )
