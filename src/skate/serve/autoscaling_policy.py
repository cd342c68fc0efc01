"""Autoscaling policies, and building blocks for further ones."""

from __future__ import annotations

from typing import Any

from skate.serve._autoscaling.context import AutoscalingContext
from skate.serve._autoscaling.policies import desired_by_ongoing_requests
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
    """Return the number of replicas at which each has `target_ongoing_requests` running and waiting requests.

    The factors, bounds and delays of the `AutoscalingConfig` apply to the results of all policies.
    """
    return desired_by_ongoing_requests(ctx), {}


def default_autoscaling_policy(ctx: AutoscalingContext) -> tuple[int | float, dict[str, Any]]:
    """Return the decision of `replica_queue_length_autoscaling_policy`, the default policy."""
    return replica_queue_length_autoscaling_policy(ctx)
