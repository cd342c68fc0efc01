"""Models of the options of `@serve.deployment` and `serve.start`."""

from __future__ import annotations

from skate.serve._autoscaling.context import AutoscalingContext
from skate.serve._config.autoscaling import AutoscalingConfig, AutoscalingPolicy
from skate.serve._config.defaults import (
    AggregationFunction,
    GangPlacementStrategy,
    GangRuntimeFailurePolicy,
    ProxyLocation,
)
from skate.serve._config.http import ControllerOptions, HTTPOptions, gRPCOptions
from skate.serve._config.option_models import (
    BackpressureConfig,
    DeploymentActorConfig,
    GangSchedulingConfig,
    RequestRouterConfig,
)

__all__ = [
    "AggregationFunction",
    "AutoscalingConfig",
    "AutoscalingContext",
    "AutoscalingPolicy",
    "BackpressureConfig",
    "ControllerOptions",
    "DeploymentActorConfig",
    "GangPlacementStrategy",
    "GangRuntimeFailurePolicy",
    "GangSchedulingConfig",
    "HTTPOptions",
    "ProxyLocation",
    "RequestRouterConfig",
    "gRPCOptions",
]
