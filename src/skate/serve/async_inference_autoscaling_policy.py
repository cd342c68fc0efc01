"""An autoscaling policy for task consumers, based on the length of their queue."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from skate.air._optional import load
from skate.serve._autoscaling.context import AutoscalingContext

__all__ = ["AsyncInferenceAutoscalingPolicy"]

logger = logging.getLogger("skate.serve")

DEFAULT_ASYNC_INFERENCE_QUEUE_POLL_INTERVAL_S = 10.0


class AsyncInferenceAutoscalingPolicy:
    """Aims at `target_ongoing_requests` per replica, counting requests and the tasks in a queue.

    A thread polls the broker for the length of the queue, and decisions use the last result. The policy is meant for
    deployments with `task_consumer`, and supports every broker of Celery.

    Args:
        broker_url: The broker, such as `redis://localhost:6379/0`.
        queue_name: The queue of the consumers.
        rabbitmq_management_url: Has no effect: RabbitMQ also reports the length of a queue to its clients.
        poll_interval_s: The interval between two polls, in seconds.
        broker_transport_options: Options of the broker, as in `CeleryAdapterConfig`. Ray does not have this argument.

    Raises:
        ImportError: If Celery is not installed, whose package `kombu` connects to brokers.

    Example:
        >>> from skate.serve.config import AutoscalingConfig, AutoscalingPolicy
        >>> scaling = AutoscalingConfig(
        ...     max_replicas=10,
        ...     policy=AutoscalingPolicy(
        ...         policy_function="skate.serve.async_inference_autoscaling_policy:AsyncInferenceAutoscalingPolicy",
        ...         policy_kwargs={"broker_url": "redis://localhost:6379/0", "queue_name": "thumbnails"},
        ...     ),
        ... )
    """

    def __init__(
        self,
        broker_url: str,
        queue_name: str,
        rabbitmq_management_url: str | None = None,
        poll_interval_s: float = DEFAULT_ASYNC_INFERENCE_QUEUE_POLL_INTERVAL_S,
        broker_transport_options: dict[str, Any] | None = None,
    ) -> None:
        self._kombu = load("kombu", "AsyncInferenceAutoscalingPolicy", "celery")
        self._broker_url = broker_url
        self._queue_name = queue_name
        self._poll_interval_s = poll_interval_s
        self._options = broker_transport_options or {}
        self._queue_length = 0
        self._polled_at: float | None = None
        self._poll: threading.Thread | None = None

    def __call__(self, ctx: AutoscalingContext) -> tuple[int | float, dict[str, Any]]:
        """Return the desired number of replicas."""
        self._poll_if_due()
        queued = self._queue_length
        state = {"queue_length": queued}
        workload = ctx.total_num_requests + queued
        if ctx.current_num_replicas == 0:
            return int(workload > 0), state
        assert ctx.config is not None, "an autoscaled deployment has a configuration"
        target = ctx.config.get_target_ongoing_requests()
        if target is None:
            raise ValueError(
                "target_ongoing_requests is None, but AsyncInferenceAutoscalingPolicy requires it: set a number in "
                "autoscaling_config."
            )
        return workload / target, state

    def _poll_if_due(self) -> None:
        """Poll the broker in a thread that ends with the answer, so that a dropped policy leaves no thread behind."""
        now = time.monotonic()
        if self._poll is not None and self._poll.is_alive():
            return
        if self._polled_at is None or now - self._polled_at >= self._poll_interval_s:
            self._polled_at = now
            self._poll = threading.Thread(target=self._ask, name="skate-serve-queue-length", daemon=True)
            self._poll.start()

    def _ask(self) -> None:
        try:
            with self._kombu.Connection(self._broker_url, transport_options=self._options) as connection:
                self._queue_length = _length(connection, self._queue_name)
        except Exception as error:
            logger.warning(
                "The broker did not report the length of the queue %r: %s", self._queue_name, error
            )


def _length(connection: Any, queue: str) -> int:
    """Return the number of messages in a queue; 0 if the queue does not exist yet."""
    try:
        return int(connection.default_channel.queue_declare(queue=queue, passive=True).message_count)
    except connection.channel_errors:
        return 0
