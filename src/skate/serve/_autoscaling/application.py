"""The decisions of a policy that sees all deployments of an application together."""

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
    """How many replicas run, how many there should be so far, and the ids of those that run."""

    current: int
    target: int
    running: Sequence[Any] = ()


class ApplicationAutoscaler:
    """Decides for the autoscaled deployments of an application with one policy.

    Args:
        policy: The application's.
        deployments: Who measures, and knows the bounds and delays of each deployment, by name.
    """

    def __init__(self, policy: AutoscalingPolicy, deployments: Mapping[str, DeploymentAutoscaler]) -> None:
        self.deployments = dict(deployments)
        self.error: str | None = None  # of the policy, when it was last asked
        self._configured = policy
        self._policy: Callable[..., Any] | None = None

    def decide(self, replicas: Mapping[str, Replicas], now: float) -> dict[str, int]:
        """Return how many replicas each deployment should have from now on.

        A deployment that the policy does not mention stays as it is; where the policy fails, all do.
        """
        targets: dict[str, int] = {}
        for name, (current, target, _) in replicas.items():
            decide_without_policy = self.deployments[name].decide_without_policy(current, target, now)
            if decide_without_policy is not None:
                targets[name] = decide_without_policy
        try:
            desired, states = self._call_policy(replicas, now)
        except Exception as error:  # the user's code: it must not take the other applications with it
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
                f"The autoscaling policy of an application decided for {', '.join(unknown)}, which it was not asked "
                f"for. It was asked for {', '.join(map(str, contexts))}."
            )
        return numbers, states or {}

    def next_due(self, now: float) -> float:
        """Return when to decide again though nobody reports anything."""
        dues = [scaler.next_due(now) for scaler in self.deployments.values()]
        return min([now + POLICY_PERIOD_S, *(due for due in dues if due is not None)])


def validate_external_target(enabled: bool, app: str, deployment: str, desired: int) -> int:
    """Return the number of replicas that somebody outside asked for.

    Raises:
        ExternalScalerDisabledError: The application does not allow it.
        ValueError: It is no number of replicas.
    """
    if not enabled:
        raise ExternalScalerDisabledError(app, deployment)
    if isinstance(desired, bool) or not isinstance(desired, int) or desired < 0:
        raise ValueError(f"target_num_replicas must be 0 or more, got {desired!r}.")
    return desired
