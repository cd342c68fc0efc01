"""The input of an autoscaling policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from skate.serve._autoscaling.measurements import TimeStampedValue
    from skate.serve._config.autoscaling import AutoscalingConfig
    from skate.serve._runtime.ids import DeploymentID, ReplicaID

    Aggregated = dict[str, dict[ReplicaID, float]]
    Raw = dict[str, dict[ReplicaID, list[TimeStampedValue]]]

T = TypeVar("T")


class AutoscalingContext:
    """The state of a deployment at one moment, as the input of a policy.

    Expensive values may be given as functions; each is called once, on first access.

    Attributes:
        deployment_id: The deployment, with its application.
        deployment_name: Its name.
        app_name: The application's name.
        current_num_replicas: The number of running replicas.
        target_num_replicas: The target number of replicas, by the previous decision.
        running_replicas: The ids of the running replicas.
        capacity_adjusted_min_replicas: Fewest replicas, after `target_capacity`.
        capacity_adjusted_max_replicas: Most replicas, after `target_capacity`.
        policy_state: The state that the policy returned last.
        last_scale_up_time: When replicas were last added.
        last_scale_down_time: When replicas were last removed.
        current_time: The current time on the same clock.
        config: The deployment's autoscaling configuration.
        total_pending_async_requests: The number of tasks that wait in a queue for a task consumer.
    """

    def __init__(
        self,
        deployment_id: DeploymentID,
        deployment_name: str,
        app_name: str | None,
        current_num_replicas: int,
        target_num_replicas: int,
        running_replicas: Sequence[ReplicaID],
        total_num_requests: float | Callable[[], float],
        total_queued_requests: float | Callable[[], float] | None,
        aggregated_metrics: Aggregated | Callable[[], Aggregated] | None,
        raw_metrics: Raw | Callable[[], Raw] | None,
        capacity_adjusted_min_replicas: int,
        capacity_adjusted_max_replicas: int,
        policy_state: dict[str, Any],
        last_scale_up_time: float | None,
        last_scale_down_time: float | None,
        current_time: float | None,
        config: AutoscalingConfig | None,
        total_pending_async_requests: int = 0,
    ) -> None:
        self.deployment_id = deployment_id
        self.deployment_name = deployment_name
        self.app_name = app_name
        self.current_num_replicas = current_num_replicas
        self.target_num_replicas = target_num_replicas
        self.running_replicas = running_replicas
        self.capacity_adjusted_min_replicas = capacity_adjusted_min_replicas
        self.capacity_adjusted_max_replicas = capacity_adjusted_max_replicas
        self.policy_state = policy_state
        self.last_scale_up_time = last_scale_up_time
        self.last_scale_down_time = last_scale_down_time
        self.current_time = current_time
        self.config = config
        self.total_pending_async_requests = total_pending_async_requests
        self._total_num_requests = total_num_requests
        self._total_queued_requests = total_queued_requests
        self._aggregated_metrics = aggregated_metrics
        self._raw_metrics = raw_metrics

    @cached_property
    def total_num_requests(self) -> float:
        """Running and waiting requests, aggregated over the look-back period."""
        return _value(self._total_num_requests)

    @cached_property
    def total_queued_requests(self) -> float | None:
        """Waiting requests, aggregated over the look-back period."""
        return _value(self._total_queued_requests)

    @property
    def total_running_requests(self) -> float:
        """Running requests, aggregated over the look-back period."""
        return self.total_num_requests - (self.total_queued_requests or 0.0)

    @cached_property
    def aggregated_metrics(self) -> Aggregated | None:
        """Results of `record_autoscaling_stats` by name and replica, aggregated over the look-back period."""
        return _value(self._aggregated_metrics)

    @cached_property
    def raw_metrics(self) -> Raw | None:
        """The single measurements behind `aggregated_metrics`, oldest first."""
        return _value(self._raw_metrics)


def _value(given: T | Callable[[], T]) -> T:
    return given() if callable(given) else given
