"""The default autoscaling policy, scaling factors, and calls of user-defined policies."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skate.serve._autoscaling.context import AutoscalingContext
    from skate.serve._config.autoscaling import AutoscalingConfig, AutoscalingPolicy

# For rounding errors of means: 2.0000000001 requests count as two.
_ROUNDING = 1e-9


def desired_by_ongoing_requests(context: AutoscalingContext) -> float:
    """Return the number of replicas at which each has `target_ongoing_requests` requests.

    Without running replicas the throughput is unknown: the result is the current target, or the initial step.
    """
    config = context.config
    assert config is not None, "an autoscaled deployment has a configuration"
    if context.current_num_replicas == 0:
        if _ceil(context.total_num_requests) == 0:
            return context.target_num_replicas
        return max(first_replicas(config), context.target_num_replicas)
    target = config.get_target_ongoing_requests()
    if target is None:
        raise ValueError(
            "target_ongoing_requests is None, but this policy requires it: set a number in autoscaling_config."
        )
    return context.total_num_requests / target


def first_replicas(config: AutoscalingConfig) -> int:
    """Return the number of replicas that the first request starts."""
    return math.ceil(config.get_upscaling_factor())


def apply_scaling_factor(desired: float, current: int, config: AutoscalingConfig) -> int:
    """Return the step from `current` towards `desired` that the factors allow, rounded up.

    Rounding up does not stop a scale-down before it reaches `desired`.
    """
    if current == 0:
        return _ceil(desired)
    factor = config.get_upscaling_factor() if desired > current else config.get_downscaling_factor()
    result = _ceil(current + factor * (desired - current))
    if result == current and _ceil(desired) < current:
        result = current - 1
    return max(result, 0)


def _ceil(number: float) -> int:
    return math.ceil(number - _ROUNDING * max(1.0, abs(number)))


def instantiate_policy(policy: AutoscalingPolicy) -> Callable[..., Any]:
    """Return the callable of a policy: an instance of its class, or its function with its arguments bound."""
    policy_object = policy.get_policy()
    if inspect.isclass(policy_object):
        instance = policy_object(**policy.policy_kwargs)
        if not callable(instance):
            raise TypeError(
                f"The autoscaling policy {policy_object.__name__} has no __call__(self, ctx): add it."
            )
        return instance
    return functools.partial(policy_object, **policy.policy_kwargs) if policy.policy_kwargs else policy_object


def validate_decision(returned: Any) -> tuple[float, dict[str, Any]]:
    """Return the number of replicas and the state that a policy returned.

    Raises:
        TypeError: If the policy returned anything else.
    """
    match returned:
        case (int() | float() as desired, dict() | None as state) if _is_number(desired):
            return desired, dict(state or {})
        case int() | float() as desired if _is_number(desired):
            return desired, {}
    raise TypeError(
        "An autoscaling policy must return the number of replicas and a dictionary with its state, "
        f"such as (3, {{}}). It returned {returned!r}."
    )


def _is_number(desired: Any) -> bool:
    return not isinstance(desired, bool) and math.isfinite(desired) and desired >= 0
