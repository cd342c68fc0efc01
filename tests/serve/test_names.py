"""Names that programs written for Ray Serve import, each under its path."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

NAMES = [
    "Application",
    "Deployment",
    "Deployment.bind",
    "Deployment.logging_config",
    "Deployment.max_ongoing_requests",
    "Deployment.name",
    "Deployment.num_replicas",
    "Deployment.options",
    "Deployment.ray_actor_options",
    "Deployment.user_config",
    "Deployment.version",
    "HTTPOptions",
    "RunTarget",
    "autoscaling_policy.default_autoscaling_policy",
    "batch",
    "config.AutoscalingConfig",
    "config.AutoscalingContext",
    "config.AutoscalingPolicy",
    "config.GangSchedulingConfig",
    "config.HTTPOptions",
    "config.ProxyLocation",
    "config.RequestRouterConfig",
    "config.gRPCOptions",
    "context.ReplicaContext",
    "context.ReplicaContext.app_name",
    "context.ReplicaContext.deployment",
    "dag.InputNode",
    "delete",
    "deployment",
    "exceptions.BackPressureError",
    "exceptions.DeploymentUnavailableError",
    "exceptions.RayServeException",
    "exceptions.RequestCancelledError",
    "get_app_handle",
    "get_deployment_handle",
    "get_multiplexed_model_id",
    "get_replica_context",
    "get_trace_context",
    "gradio_integrations.GradioIngress",
    "gradio_integrations.GradioServer",
    "grpc_util.RayServegRPCContext",
    "grpc_util.gRPCInputStream",
    "handle.DeploymentBroadcastResponse",
    "handle.DeploymentHandle",
    "handle.DeploymentHandle.app_name",
    "handle.DeploymentHandle.is_initialized",
    "handle.DeploymentHandle.options",
    "handle.DeploymentHandle.remote",
    "handle.DeploymentHandle.shutdown",
    "handle.DeploymentResponse",
    "handle.DeploymentResponse.cancel",
    "handle.DeploymentResponse.cancelled",
    "handle.DeploymentResponse.result",
    "handle.DeploymentResponseGenerator",
    "handle.DeploymentResponseGenerator.cancel",
    "handle.DeploymentResponseGenerator.result",
    "ingress",
    "metrics.Counter",
    "metrics.Gauge",
    "metrics.Histogram",
    "multiplexed",
    "request_router.RequestRouter",
    "run",
    "run_many",
    "schema.ApplicationDetails",
    "schema.ApplicationStatus",
    "schema.ApplicationStatusOverview",
    "schema.DeploymentDetails",
    "schema.DeploymentSchema",
    "schema.DeploymentStatusOverview",
    "schema.HTTPOptionsSchema",
    "schema.LoggingConfig",
    "schema.RayActorOptionsSchema",
    "schema.ReplicaDetails",
    "schema.ServeApplicationSchema",
    "schema.ServeDeploySchema",
    "schema.ServeInstanceDetails",
    "schema.ServeStatus",
    "shutdown",
    "shutdown_async",
    "start",
    "status",
    "utils.get_trace_context",
]


def resolved(name: str) -> Any:
    """Follow a dotted name below `skate.serve`; `serve.deployment` is the decorator, not the module."""
    found: Any = importlib.import_module("skate.serve")
    path = "skate.serve"
    for part in name.split("."):
        path += f".{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there(name: str) -> None:
    assert resolved(name) is not None


def test_serve_is_imported_without_what_only_some_programs_need() -> None:
    heavy = {"fastapi", "grpc", "opentelemetry", "pydantic", "starlette", "uvicorn"}
    script = f"import sys, skate.serve; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_programs_written_for_ray_find_the_requests_of_starlette() -> None:
    script = "from ray import serve; import starlette; starlette.requests.Request"
    subprocess.run([sys.executable, "-c", f"import skate.as_ray; {script}"], check=True)
    subprocess.run([sys.executable, "-c", "import starlette, skate.serve; starlette.requests"], check=True)


def test_guides_of_ray_find_its_ids_and_policies() -> None:
    script = """
import skate.as_ray
from ray.serve._private.common import DeploymentID
from ray.serve.config import AutoscalingPolicy
import skate.serve._runtime.ids
assert DeploymentID is skate.serve._runtime.ids.DeploymentID
path = "ray.serve.async_inference_autoscaling_policy:AsyncInferenceAutoscalingPolicy"
AutoscalingPolicy(policy_function=path, policy_kwargs={"broker_url": "memory://", "queue_name": "q"})
"""
    subprocess.run([sys.executable, "-c", script], check=True)
