"""Serve: scalable deployments behind handles, HTTP and gRPC, with composition, batching and rolling updates."""

from typing import TYPE_CHECKING

from skate.serve._runtime import extra as _extra  # noqa: F401  # before all others: it names a missing extra
from skate.serve.api import (
    RunTarget,
    address,
    delete,
    deployment,
    get_app_handle,
    get_deployment_handle,
    get_replica_context,
    ingress,
    run,
    run_many,
    shutdown,
    shutdown_async,
    start,
    status,
)
from skate.serve.api import _run as _run
from skate.serve.api import _run_many as _run_many
from skate.serve.batching import batch
from skate.serve.context import get_deployment_actor, get_deployment_actor_context
from skate.serve.deployment import Application, Deployment
from skate.serve.multiplex import get_multiplexed_model_id, multiplexed
from skate.serve.utils import get_trace_context

if TYPE_CHECKING:
    from skate.serve.config import ControllerOptions, HTTPOptions
    from skate.serve.schema import TracingConfig

__all__ = [
    "Application",
    "ControllerOptions",
    "Deployment",
    "HTTPOptions",
    "RunTarget",
    "TracingConfig",
    "address",
    "batch",
    "delete",
    "deployment",
    "get_app_handle",
    "get_deployment_actor",
    "get_deployment_actor_context",
    "get_deployment_handle",
    "get_multiplexed_model_id",
    "get_replica_context",
    "get_trace_context",
    "ingress",
    "multiplexed",
    "run",
    "run_many",
    "shutdown",
    "shutdown_async",
    "start",
    "status",
]


def __getattr__(name: str) -> object:
    # Lazily, because these models import pydantic, which takes longer than everything else.
    if name in ("ControllerOptions", "HTTPOptions"):
        from skate.serve import config

        return getattr(config, name)
    if name == "TracingConfig":
        from skate.serve.schema import TracingConfig

        return TracingConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
