"""Autoscaling decisions of a policy that covers all deployments of an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from skate.serve._autoscaling import policies
from skate.serve._autoscaling.deployment import POLICY_PERIOD_S, DeploymentAutoscaler
from skate.serve._runtime.ids import DeploymentID
from skate.serve.exceptions import ExternalScalerDisabledError

if TYPE_CHECKING:
    from skate.serve._config.autoscaling import AutoscalingPolicy


class Replicas(NamedTuple):
    """The number of running replicas, their target number so far, and the ids of the running ones."""

    current: int
    target: int
    running: Sequence[Any] = ()


class ApplicationAutoscaler:
    """Decides for all autoscaled deployments of an application with one policy.

    Args:
        policy: The policy of the application.
        deployments: The autoscalers that hold the measurements, bounds and delays of each deployment, by name.
    """

    def __init__(self, policy: AutoscalingPolicy, deployments: Mapping[str, DeploymentAutoscaler]) -> None:
        self.deployments = dict(deployments)
        self.error: str | None = None  # of the last policy call
        self._configured = policy
        self._policy: Callable[..., Any] | None = None

    def decide(self, replicas: Mapping[str, Replicas], now: float) -> dict[str, int]:
        """Return the new target of each deployment.

        A deployment that the policy omits keeps its target. If the policy fails, all deployments keep theirs.
        """
        targets: dict[str, int] = {}
        for name, (current, target, _) in replicas.items():
            decide_without_policy = self.deployments[name].decide_without_policy(current, target, now)
            if decide_without_policy is not None:
                targets[name] = decide_without_policy
        try:
            desired, states = self._call_policy(replicas, now)
        except Exception as error:  # user code must not affect other applications
            self.error = f"{type(error).__name__}: {error}"
            return {name: targets.get(name, each.target) for name, each in replicas.items()}
        self.error = None
        for name, (current, target, _) in replicas.items():
            scaler = self.deployments[name]
            scaler.set_policy_state(states.get(scaler.id) or {})
            if name not in targets:
                limited = scaler.id in desired
                targets[name] = (
                    scaler.apply_limits(desired[scaler.id], current, target, now) if limited else target
                )
        return targets

    def _call_policy(
        self, replicas: Mapping[str, Replicas], now: float
    ) -> tuple[dict[DeploymentID, float], Mapping[DeploymentID, Any]]:
        if self._policy is None:
            self._policy = policies.instantiate_policy(self._configured)
        contexts = {
            self.deployments[name].id: self.deployments[name].context(current, target, now, running)
            for name, (current, target, running) in replicas.items()
        }
        match self._policy(contexts):
            case (dict() as desired, dict() | None as states):
                numbers = {id: policies.validate_decision(number)[0] for id, number in desired.items()}
            case other:
                raise TypeError(
                    "The autoscaling policy of an application must return two dictionaries by deployment id: numbers "
                    f"of replicas, and states. It returned {other!r}."
                )
        if unknown := [str(id) for id in numbers if id not in contexts]:
            raise ValueError(
                f"The autoscaling policy of an application returned decisions for {', '.join(unknown)}, which are "
                f"not autoscaled deployments of it. Its deployments are {', '.join(map(str, contexts))}."
            )
        return numbers, states or {}

    def next_due(self, now: float) -> float:
        """Return when to decide again if no report arrives."""
        dues = [scaler.next_due(now) for scaler in self.deployments.values()]
        return min([now + POLICY_PERIOD_S, *(due for due in dues if due is not None)])


def validate_external_target(enabled: bool, app: str, deployment: str, desired: int) -> int:
    """Return the number of replicas that an external scaler requests.

    Raises:
        ExternalScalerDisabledError: If the application does not allow external scaling.
        ValueError: If the number is not a non-negative integer.
    """
    if not enabled:
        raise ExternalScalerDisabledError(app, deployment)
    if isinstance(desired, bool) or not isinstance(desired, int) or desired < 0:
        raise ValueError(f"target_num_replicas must be 0 or more, got {desired!r}.")
    return desired
