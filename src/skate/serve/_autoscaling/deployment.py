"""The decisions about one deployment's number of replicas."""

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

MAX_KEPT_DECISIONS = 10  # that are kept to be told
# A policy of the user's may change its mind by the clock, or by what it reads elsewhere: it is asked this often.
POLICY_PERIOD_S = 1.0
# What old measurements amount to changes as they leave the period: it is looked at this often in a period.
EVALUATIONS_PER_PERIOD = 10


class Decision(NamedTuple):
    """A change of the number of replicas."""

    time: float
    before: int
    after: int
    reason: str


class DeploymentAutoscaler:
    """Decides how many replicas a deployment should have, from what is reported to it.

    It has no clock and does no I/O: the time is an argument of all that depends on it.

    Args:
        config: The deployment's autoscaling configuration.
        deployment: Its name.
        app: Its application's name.
        now: The time.
        gang_size: How many replicas start and stop together.
    """

    def __init__(
        self, config: AutoscalingConfig, deployment: str, app: str, now: float, *, gang_size: int = 1
    ) -> None:
        self.id = DeploymentID(deployment, app)
        self.decisions: deque[Decision] = deque(maxlen=MAX_KEPT_DECISIONS)
        self.error: str | None = None  # of the policy, when it was last asked
        self.desired: float | None = None  # what it said then
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
        """Decide by another configuration from now on; measurements stay where they fit."""
        kept, policy, state = self._measurements, self._policy, self._policy_state
        is_same_period = config.look_back_period_s == self.config.look_back_period_s
        is_same_policy = config.policy == self.config.policy
        self._configure(config, gang_size)
        if is_same_period:
            self._measurements = kept
        if is_same_policy:
            self._policy, self._policy_state = policy, state

    def set_target_capacity(self, percent: float | None, is_ramping_up: bool = False) -> None:
        """Let the bounds be a part of what they are, in percent.

        Args:
            percent: The part; None for all of it.
            is_growing: Whether it is a step on the way up. There is no load yet to go by then, so there are no fewer
                replicas than the part of `initial_replicas`.
        """
        self._target_capacity, self._is_ramping_up = percent, is_ramping_up

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most replicas that there may be."""
        config = self.config
        fewest = config.min_replicas
        if self._is_ramping_up and config.initial_replicas is not None:
            fewest = config.initial_replicas
        low = round_up_to_gangs(apply_target_capacity(fewest, self._target_capacity), self._gang_size)
        high = apply_target_capacity(config.max_replicas, self._target_capacity)
        return low, max(high - high % self._gang_size, low)

    def record(self, handle_id: Hashable, queued: float, running: Mapping[Any, float], now: float) -> None:
        """Take a handle's report: requests that wait in it, and that it has running at each replica."""
        self._measurements.record(handle_id, queued, running, now)

    def record_replica(
        self, replica_id: Hashable, running: float, custom: Mapping[str, float], now: float
    ) -> None:
        """Take a replica's report: requests that it works on, and what `record_autoscaling_stats` returned."""
        self._measurements.record_replica(replica_id, running, custom, now)

    def forget(self, id: Hashable) -> None:
        """Drop what a handle or a replica reported: it is gone."""
        self._measurements.forget(id)

    def decide(self, current: int, target: int, now: float, running: Sequence[Any] = ()) -> int:
        """Return how many replicas there should be from now on.

        Args:
            current: Replicas that run.
            target: Replicas that there should be so far.
            now: The time.
            running: The ids of those that run, for the policy to see.
        """
        if (decide_without_policy := self.decide_without_policy(current, target, now)) is not None:
            return decide_without_policy
        try:
            if self.config.policy.is_default_policy_function():
                desired = policies.desired_by_ongoing_requests(self.context(current, target, now, running))
            else:
                desired, self._policy_state = self._call_policy(self.context(current, target, now, running))
        except Exception as error:  # the user's code: it must not take the other deployments with it
            return self.keep_after_error(error, target)
        return self.apply_limits(desired, current, target, now)

    def _call_policy(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        if self._policy is None:
            self._policy = policies.instantiate_policy(self.config.policy)
        return policies.validate_decision(self._policy(context))

    def decide_without_policy(self, current: int, target: int, now: float) -> int | None:
        """Return the number that no policy is asked for: bounds have moved, or the first request is there."""
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
        """Keep the number as it is, because the policy failed."""
        self.error = f"{type(error).__name__}: {error}"
        return target

    def apply_limits(self, desired: float, current: int, target: int, now: float) -> int:
        """Return what becomes of a wish after factors, gangs, bounds and delays."""
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
        """Return when `decide` may say something else though nobody reports, and no replica comes or goes.

        None: never. So a controller decides after reports and changes of replicas, and sleeps otherwise.
        """
        due = [] if (over := self._delay.expires_at) is None else [max(over, now)]
        if not self.config.policy.is_default_policy_function():
            due.append(now + POLICY_PERIOD_S)
        elif not self._measurements.is_constant(now):
            due.append(now + self.config.look_back_period_s / EVALUATIONS_PER_PERIOD)
        return min(due, default=None)

    @property
    def direction(self) -> int:
        """1 while more replicas are wanted than there should be, -1 while fewer are, 0 otherwise."""
        return self._delay.direction

    def requests(self, now: float) -> float:
        """Return how many requests there are, over the period that is looked at."""
        return self._measurements.requests(self.config.aggregation_function, now)

    def context(
        self, current: int, target: int, now: float, running: Sequence[Any] = ()
    ) -> AutoscalingContext:
        """Return what a policy gets to see."""
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
        """Keep what the policy of the application returned as its state for this deployment."""
        self._policy_state = dict(state)
