"""The controller's metrics: statuses of applications and deployments, lifecycles of replicas and proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate.serve._observability.metrics import DurationHistogram, gauge, histogram
from skate.serve._runtime.ids import DeploymentID
from skate.util._metrics_store import Family, store

if TYPE_CHECKING:
    from skate.serve._autoscaling.deployment import DeploymentAutoscaler
    from skate.serve._controller.applications import ApplicationReconciler

__all__ = [
    "record_application",
    "record_handle_delay",
    "record_proxy",
    "record_proxy_stopped",
    "record_replica_delay",
    "record_replica_started",
    "record_replica_stopped",
    "record_scaling",
]

_APPLICATION = gauge(
    "application_status",
    "1 DEPLOY_FAILED, 2 UNHEALTHY, 3 NOT_STARTED, 4 DELETING, 5 DEPLOYING, 6 RUNNING, 0 gone.",
)
_DEPLOYMENT = gauge(
    "deployment_status",
    "1 DEPLOY_FAILED, 2 UNHEALTHY, 3 UPDATING, 4 UPSCALING, 5 DOWNSCALING, 6 HEALTHY, 0 gone.",
)
_TARGET = gauge("deployment_target_replicas", "Target number of replicas.")
_SCALED = gauge("autoscaling_target_replicas", "Target number of replicas set by autoscaling.")
_WANTED = gauge(
    "autoscaling_desired_replicas", "Decision of the autoscaling policy before bounds and delays."
)
_COUNTED = gauge("autoscaling_total_requests", "Requests that the autoscaling policy counted.")
_AIMED = gauge("autoscaling_target_ongoing_requests", "Target number of ongoing requests per replica.")
_DECIDING = gauge("autoscaling_policy_execution_time_ms", "Duration of the autoscaling policy.")
_HANDLE_LATE = histogram("autoscaling_handle_metrics_delay_ms", "Delay of callers' load reports.")
_REPLICA_LATE = histogram("autoscaling_replica_metrics_delay_ms", "Delay of replicas' load reports.")
_STARTED = histogram(
    "replica_startup_latency_ms", "Time from the decision to start a replica until it takes requests."
)
_STOPPED = histogram(
    "replica_shutdown_duration_ms", "Time from the decision to stop a replica until it is gone."
)
_PROXY = gauge("proxy_status", "1 STARTING, 2 HEALTHY, 3 UNHEALTHY, 4 DRAINING, 5 DRAINED, 0 gone.")
_PROXY_STOPPED = histogram("proxy_shutdown_duration_ms", "Time that the proxy took to stop.")


def record_application(app: ApplicationReconciler) -> None:
    """Record the statuses of an application and its deployments."""
    of_app = ("application", app.spec.name)
    store.set(_APPLICATION, (of_app,), 0 if app.is_deleted else app.status.to_numeric())
    for name, keeper in app.deployments.items():
        labels = (of_app, ("deployment", name))
        store.set(_DEPLOYMENT, labels, 0 if keeper.is_deleted else keeper.status.to_numeric())
        store.set(_TARGET, labels, keeper.target)
        if keeper.spec.options.is_autoscaled:
            store.set(_SCALED, labels, keeper.target)


def record_replica_started(id: DeploymentID, seconds: float) -> None:
    """Record the time that a replica took to start."""
    _observe(_STARTED, _labels(id), seconds)


def record_replica_stopped(id: DeploymentID, seconds: float) -> None:
    """Record the time that a replica took to stop."""
    _observe(_STOPPED, _labels(id), seconds)


def record_handle_delay(id: DeploymentID, seconds: float) -> None:
    """Record the delay of a caller's load report."""
    _observe(_HANDLE_LATE, _labels(id), seconds)


def record_replica_delay(id: DeploymentID, seconds: float) -> None:
    """Record the delay of a replica's load report."""
    _observe(_REPLICA_LATE, _labels(id), seconds)


def record_scaling(scaler: DeploymentAutoscaler, now: float, seconds: float, scope: str) -> None:
    """Record an autoscaling decision.

    Args:
        scaler: The autoscaler that decided.
        now: The time of the decision.
        seconds: The duration of the policy.
        scope: The scope of the policy: "deployment" or "application".
    """
    labels = _labels(scaler.id)
    if scaler.desired is not None:
        store.set(_WANTED, labels, scaler.desired)
    store.set(_COUNTED, labels, scaler.requests(now))
    if (aim := scaler.config.get_target_ongoing_requests()) is not None:  # optional for custom policies
        store.set(_AIMED, labels, aim)
    store.set(_DECIDING, (*labels, ("policy_scope", scope)), seconds * 1000)


def record_proxy(node: str, address: str, status: int) -> None:
    """Record the numeric status of a node's proxy."""
    store.set(_PROXY, (("node_id", node), ("node_ip_address", address)), status)


def record_proxy_stopped(node: str, address: str, seconds: float) -> None:
    """Record that a node's proxy is gone, and the time that it took to stop."""
    record_proxy(node, address, 0)
    _observe(_PROXY_STOPPED, (("node_id", node), ("node_ip_address", address)), seconds)


def _labels(id: DeploymentID) -> tuple[tuple[str, str], ...]:
    return ("application", id.app_name), ("deployment", id.name)


def _observe(family: Family, labels: tuple[tuple[str, str], ...], seconds: float) -> None:
    durations = DurationHistogram()
    durations.add(seconds)
    store.add(family, labels, durations.reset()[1])
