"""Work from a queue: how a consumer is configured, and what an adapter for a queue must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import BaseModel, Field

from skate.serve._config import defaults


class CeleryAdapterConfig(BaseModel):
    """How Celery reaches its broker and keeps results."""

    app_custom_config: dict[str, Any] | None = Field(
        default=None, description="Settings of the Celery application."
    )
    task_custom_config: dict[str, Any] | None = Field(
        default=None, description="Options of each Celery task."
    )
    broker_url: str = Field(description="Where tasks wait: `redis://…`, `amqp://…`, `filesystem://`.")
    backend_url: str = Field(description="Where results are kept.")
    broker_transport_options: dict[str, Any] | None = Field(
        default=None, description="Options of the broker."
    )


class TaskProcessorConfig(BaseModel):
    """Which queue a consumer takes tasks from, and through what."""

    queue_name: str = Field(description="The queue.")
    adapter: str | Callable[..., Any] = Field(
        default=defaults.TASK_PROCESSOR,
        description="A class derived from `TaskProcessorAdapter`, or its import path.",
    )
    adapter_config: Any = Field(description="Its configuration, such as a `CeleryAdapterConfig`.")
    max_retries: int | None = Field(
        default=3, description="How often a failed task is tried again; None: always."
    )
    failed_task_queue_name: str | None = Field(
        default=None, description="Where tasks go that failed for good."
    )
    unprocessable_task_queue_name: str | None = Field(
        default=None, description="Where tasks go that nobody knows."
    )


class TaskResult(BaseModel):
    """A task and what became of it."""

    id: str
    status: str
    created_at: float | None = None
    result: Any


class TaskProcessorAdapter(ABC):
    """Takes tasks from a queue, and puts them there.

    The methods that end in `_sync` must be there; those that end in `_async` may.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: B027 - what an adapter keeps is its own business
        """Take what the adapter needs; Serve gives it a `TaskProcessorConfig`."""

    @abstractmethod
    def initialize(self, consumer_concurrency: int = defaults.CONSUMER_CONCURRENCY) -> None:
        """Connect to the queue."""

    @abstractmethod
    def register_task_handle(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Let a function take the tasks of its name, or of `name`."""

    @abstractmethod
    def enqueue_task_sync(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Put a task into the queue."""

    @abstractmethod
    def get_task_status_sync(self, task_id: str) -> TaskResult:
        """Return what became of a task."""

    @abstractmethod
    def start_consumer(self, **kwargs: Any) -> None:
        """Begin to take tasks."""

    @abstractmethod
    def stop_consumer(self, timeout: float = 10.0) -> None:
        """Take no further tasks, and wait for those that run."""

    @abstractmethod
    def cancel_task_sync(self, task_id: str) -> None:
        """Cancel a task that has not begun."""

    @abstractmethod
    def get_metrics_sync(self) -> dict[str, Any]:
        """Return what the queue tells of itself."""

    @abstractmethod
    def health_check_sync(self) -> list[dict[str, Any]]:
        """Return how the consumers are doing."""

    async def enqueue_task_async(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Put a task into the queue."""
        self._is_missing("enqueue_task_async")

    async def get_task_status_async(self, task_id: str) -> TaskResult:
        """Return what became of a task."""
        self._is_missing("get_task_status_async")

    async def cancel_task_async(self, task_id: str) -> None:
        """Cancel a task that has not begun."""
        self._is_missing("cancel_task_async")

    async def get_metrics_async(self) -> dict[str, Any]:
        """Return what the queue tells of itself."""
        self._is_missing("get_metrics_async")

    async def health_check_async(self) -> list[dict[str, Any]]:
        """Return how the consumers are doing."""
        self._is_missing("health_check_async")

    def _is_missing(self, method: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no {method}: use {method.replace('_async', '_sync')}."
        )
