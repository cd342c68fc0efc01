"""Policies that decide how many replicas a deployment should have, and parts to make others of."""

from __future__ import annotations

from typing import Any

from skate.serve._autoscaling.context import AutoscalingContext
from skate.serve._autoscaling.rules import by_ongoing_requests
from skate.serve._observability.prometheus import (
    PrometheusQueryMixin,
    PrometheusQueryResult,
    PrometheusSample,
    PrometheusScalar,
    PrometheusVector,
)

__all__ = [
    "PrometheusQueryMixin",
    "PrometheusQueryResult",
    "PrometheusSample",
    "PrometheusScalar",
    "PrometheusVector",
    "default_autoscaling_policy",
    "replica_queue_length_autoscaling_policy",
]


def replica_queue_length_autoscaling_policy(ctx: AutoscalingContext) -> tuple[int | float, dict[str, Any]]:
    """Return as many replicas as give each `target_ongoing_requests`, running and waiting ones together.

    Factors, bounds and delays of the `AutoscalingConfig` apply to what a policy returns, this one and others.
    """
    return by_ongoing_requests(ctx), {}


def default_autoscaling_policy(ctx: AutoscalingContext) -> tuple[int | float, dict[str, Any]]:
    """Decide by the number of requests: what a deployment does that names no policy."""
    return replica_queue_length_autoscaling_policy(ctx)
