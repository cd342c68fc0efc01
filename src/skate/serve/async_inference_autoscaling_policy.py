"""A policy that scales task consumers by the length of their queue."""

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
    """Gives each replica `target_ongoing_requests`, counting requests and the tasks that wait in a queue.

    A thread asks the broker for the length of the queue; a decision goes by what it said last. It is meant for
    deployments with `task_consumer`, and works with every broker that Celery has.

    Args:
        broker_url: The broker, such as `redis://localhost:6379/0`.
        queue_name: The queue that the consumers take tasks from.
        rabbitmq_management_url: Has no effect: RabbitMQ tells the length of a queue to its clients, too.
        poll_interval_s: How long to wait between two questions, in seconds.
        broker_transport_options: Options of the broker, as in `CeleryAdapterConfig`. This one is Skate's own.

    Raises:
        ImportError: If Celery is not installed, whose package `kombu` talks to brokers.

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
        """Return how many replicas there should be."""
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
                "target_ongoing_requests is None, but AsyncInferenceAutoscalingPolicy decides by it: give a number in "
                "autoscaling_config."
            )
        return workload / target, state

    def _poll_if_due(self) -> None:
        """Ask the broker in a thread, which ends with the answer: a policy that is dropped leaves nothing behind."""
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
            logger.warning("The broker did not tell the length of the queue %r: %s", self._queue_name, error)


def _length(connection: Any, queue: str) -> int:
    """Return how many messages wait in a queue; none in one that nobody has made yet."""
    try:
        return int(connection.default_channel.queue_declare(queue=queue, passive=True).message_count)
    except connection.channel_errors:
        return 0
