"""Autoscaling decisions about one deployment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from skate.serve._autoscaling import policies
from skate.serve._autoscaling.context import AutoscalingContext
from skate.serve._autoscaling.delays import Delays, DelayTracker
from skate.serve._autoscaling.measurements import Measurements
from skate.serve._autoscaling.replica_counts import apply_target_capacity, round_up_to_gangs
from skate.serve._runtime.ids import DeploymentID

if TYPE_CHECKING:
    from skate.serve._config.autoscaling import AutoscalingConfig

MAX_KEPT_DECISIONS = 10  # for the details of the deployment
# How often to call a user's policy, which may depend on the time or on external data.
POLICY_PERIOD_S = 1.0
# Aggregates change as old measurements leave the look-back period: how often to evaluate them within one period.
EVALUATIONS_PER_PERIOD = 10


class Decision(NamedTuple):
    """A change of the target number of replicas."""

    time: float
    before: int
    after: int
    reason: str


class DeploymentAutoscaler:
    """Decides how many replicas a deployment should have, from the reports of handles and replicas.

    It has no clock and does no I/O: methods that depend on the time take it as an argument.

    Args:
        config: The deployment's autoscaling configuration.
        deployment: Its name.
        app: Its application's name.
        now: The time.
        gang_size: The number of replicas that start and stop together.
    """

    def __init__(
        self, config: AutoscalingConfig, deployment: str, app: str, now: float, *, gang_size: int = 1
    ) -> None:
        self.id = DeploymentID(deployment, app)
        self.decisions: deque[Decision] = deque(maxlen=MAX_KEPT_DECISIONS)
        self.error: str | None = None  # of the last policy call
        self.desired: float | None = None  # the last result of the policy
        self._target_capacity: float | None = None
        self._is_ramping_up = False
        self._last_up: float | None = None
        self._last_down: float | None = None
        self._configure(config, gang_size)

    def _configure(self, config: AutoscalingConfig, gang_size: int) -> None:
        self.config = config
        self._gang_size = gang_size
        self._policy: Callable[..., Any] | None = None
        self._policy_state: dict[str, Any] = {}
        self._measurements = Measurements(config.look_back_period_s)
        self._delay = DelayTracker()

    def reconfigure(self, config: AutoscalingConfig, gang_size: int = 1) -> None:
        """Replace the configuration; keep measurements and policy state where they still apply."""
        kept, policy, state = self._measurements, self._policy, self._policy_state
        is_same_period = config.look_back_period_s == self.config.look_back_period_s
        is_same_policy = config.policy == self.config.policy
        self._configure(config, gang_size)
        if is_same_period:
            self._measurements = kept
        if is_same_policy:
            self._policy, self._policy_state = policy, state

    def set_target_capacity(self, percent: float | None, is_ramping_up: bool = False) -> None:
        """Scale the bounds by a percentage.

        Args:
            percent: The percentage; None for full capacity.
            is_ramping_up: Whether the capacity is increasing step by step. Since there is little load to measure yet,
                the number of replicas then does not fall below the percentage of `initial_replicas`.
        """
        self._target_capacity, self._is_ramping_up = percent, is_ramping_up

    @property
    def bounds(self) -> tuple[int, int]:
        """The minimum and the maximum number of replicas."""
        config = self.config
        fewest = config.min_replicas
        if self._is_ramping_up and config.initial_replicas is not None:
            fewest = config.initial_replicas
        low = round_up_to_gangs(apply_target_capacity(fewest, self._target_capacity), self._gang_size)
        high = apply_target_capacity(config.max_replicas, self._target_capacity)
        return low, max(high - high % self._gang_size, low)

    def record(self, handle_id: Hashable, queued: float, running: Mapping[Any, float], now: float) -> None:
        """Record a handle's report: its waiting requests, and its running requests by replica."""
        self._measurements.record(handle_id, queued, running, now)

    def record_replica(
        self, replica_id: Hashable, running: float, custom: Mapping[str, float], now: float
    ) -> None:
        """Record a replica's report: its running requests, and the result of `record_autoscaling_stats`."""
        self._measurements.record_replica(replica_id, running, custom, now)

    def forget(self, id: Hashable) -> None:
        """Remove the reports of a handle or a replica that is gone."""
        self._measurements.forget(id)

    def decide(self, current: int, target: int, now: float, running: Sequence[Any] = ()) -> int:
        """Return the new target number of replicas.

        Args:
            current: The number of running replicas.
            target: The target so far.
            now: The time.
            running: The ids of the running replicas, for the policy.
        """
        if (decide_without_policy := self.decide_without_policy(current, target, now)) is not None:
            return decide_without_policy
        try:
            if self.config.policy.is_default_policy_function():
                desired = policies.desired_by_ongoing_requests(self.context(current, target, now, running))
            else:
                desired, self._policy_state = self._call_policy(self.context(current, target, now, running))
        except Exception as error:  # user code must not affect other deployments
            return self.keep_after_error(error, target)
        return self.apply_limits(desired, current, target, now)

    def _call_policy(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        if self._policy is None:
            self._policy = policies.instantiate_policy(self.config.policy)
        return policies.validate_decision(self._policy(context))

    def decide_without_policy(self, current: int, target: int, now: float) -> int | None:
        """Return a target that overrides the policy: the bounds have changed, or first requests have arrived."""
        low, high = self.bounds
        if not low <= target <= high:
            self._delay.reset()
            return self._record_change(target, min(max(target, low), high), now, "the bounds have changed")
        if current == target == 0 and high and self._measurements.requests_now > 0:
            self._delay.reset()
            first = round_up_to_gangs(policies.first_replicas(self.config), self._gang_size)
            return self._record_change(0, min(first, high), now, "the first requests wait")
        return None

    def keep_after_error(self, error: Exception, target: int) -> int:
        """Record the error of the policy and return the unchanged target."""
        self.error = f"{type(error).__name__}: {error}"
        return target

    def apply_limits(self, desired: float, current: int, target: int, now: float) -> int:
        """Return the target after applying scaling factors, gangs, bounds and delays to a policy's result."""
        self.error = None
        self.desired = desired
        low, high = self.bounds
        scaled = round_up_to_gangs(
            policies.apply_scaling_factor(desired, current, self.config), self._gang_size
        )
        if scaled == 0 and self._measurements.requests_now > 0:
            # The mean over the period rounds to none, but the open request would start a replica again.
            scaled = self._gang_size
        bounded = min(max(scaled, low), high)
        to_zero = self.config.downscale_to_zero_delay_s
        delays = Delays(
            up=self.config.upscale_delay_s,
            down=self.config.downscale_delay_s,
            to_zero=self.config.downscale_delay_s if to_zero is None else to_zero,
        )
        limited = self._delay.update(bounded, target, self._gang_size, delays, now)
        return self._record_change(target, limited, now, f"{desired:g} replicas wanted, {current} running")

    def _record_change(self, before: int, after: int, now: float, reason: str) -> int:
        if after != before:
            self.decisions.append(Decision(now, before, after, reason))
            if after > before:
                self._last_up = now
            else:
                self._last_down = now
        return after

    def next_due(self, now: float) -> float | None:
        """Return when `decide` may return another result without new reports or replica changes, or None.

        A controller decides after reports and replica changes, and otherwise sleeps until this time.
        """
        due = [] if (over := self._delay.expires_at) is None else [max(over, now)]
        if not self.config.policy.is_default_policy_function():
            due.append(now + POLICY_PERIOD_S)
        elif not self._measurements.is_constant(now):
            due.append(now + self.config.look_back_period_s / EVALUATIONS_PER_PERIOD)
        return min(due, default=None)

    @property
    def direction(self) -> int:
        """1 while a scale-up is pending, -1 while a scale-down is, 0 otherwise."""
        return self._delay.direction

    def requests(self, now: float) -> float:
        """Return the number of requests, aggregated over the look-back period."""
        return self._measurements.requests(self.config.aggregation_function, now)

    def context(
        self, current: int, target: int, now: float, running: Sequence[Any] = ()
    ) -> AutoscalingContext:
        """Return the input of the policy."""
        low, high = self.bounds
        how, measured = self.config.aggregation_function, self._measurements
        return AutoscalingContext(
            deployment_id=self.id,
            deployment_name=self.id.name,
            app_name=self.id.app_name,
            current_num_replicas=current,
            target_num_replicas=target,
            running_replicas=list(running),
            total_num_requests=lambda: self.requests(now),
            total_queued_requests=lambda: measured.queued(how, now),
            aggregated_metrics=lambda: measured.custom(how, now),
            raw_metrics=lambda: measured.raw(now),
            capacity_adjusted_min_replicas=low,
            capacity_adjusted_max_replicas=high,
            policy_state=dict(self._policy_state),
            last_scale_up_time=self._last_up,
            last_scale_down_time=self._last_down,
            current_time=now,
            config=self.config,
        )

    def set_policy_state(self, state: Mapping[str, Any]) -> None:
        """Store the state that the application's policy returned for this deployment."""
        self._policy_state = dict(state)
