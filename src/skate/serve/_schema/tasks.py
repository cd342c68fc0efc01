"""Task queues: the configuration of consumers, and the interface of queue adapters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import BaseModel, Field

from skate.serve._config import defaults


class CeleryAdapterConfig(BaseModel):
    """The connection of Celery to its broker and result backend."""

    app_custom_config: dict[str, Any] | None = Field(
        default=None, description="Settings of the Celery application."
    )
    task_custom_config: dict[str, Any] | None = Field(
        default=None, description="Options of each Celery task."
    )
    broker_url: str = Field(description="The URL of the broker: `redis://…`, `amqp://…`, `filesystem://`.")
    backend_url: str = Field(description="The URL of the result backend.")
    broker_transport_options: dict[str, Any] | None = Field(
        default=None, description="Options of the broker."
    )


class TaskProcessorConfig(BaseModel):
    """The queue of a consumer and the adapter that accesses it."""

    queue_name: str = Field(description="The name of the queue.")
    adapter: str | Callable[..., Any] = Field(
        default=defaults.TASK_PROCESSOR,
        description="A class derived from `TaskProcessorAdapter`, or its import path.",
    )
    adapter_config: Any = Field(description="Its configuration, such as a `CeleryAdapterConfig`.")
    max_retries: int | None = Field(
        default=3, description="The number of retries of a failed task; None for no limit."
    )
    failed_task_queue_name: str | None = Field(
        default=None, description="The queue for tasks that failed permanently."
    )
    unprocessable_task_queue_name: str | None = Field(
        default=None, description="The queue for tasks without a handler."
    )


class TaskResult(BaseModel):
    """A task, its status and its result."""

    id: str
    status: str
    created_at: float | None = None
    result: Any


class TaskProcessorAdapter(ABC):
    """The interface between Serve and a task queue.

    The `_sync` methods are required; the `_async` methods are optional.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: B027 - the base class has no state
        """Accept the adapter's configuration; Serve passes a `TaskProcessorConfig`."""

    @abstractmethod
    def initialize(self, consumer_concurrency: int = defaults.CONSUMER_CONCURRENCY) -> None:
        """Connect to the queue."""

    @abstractmethod
    def register_task_handle(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Register the handler of the tasks with its name, or with `name`."""

    @abstractmethod
    def enqueue_task_sync(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Add a task to the queue."""

    @abstractmethod
    def get_task_status_sync(self, task_id: str) -> TaskResult:
        """Return the status and result of a task."""

    @abstractmethod
    def start_consumer(self, **kwargs: Any) -> None:
        """Start to consume tasks."""

    @abstractmethod
    def stop_consumer(self, timeout: float = 10.0) -> None:
        """Stop consuming tasks, and wait for the running ones."""

    @abstractmethod
    def cancel_task_sync(self, task_id: str) -> None:
        """Cancel a task that has not started."""

    @abstractmethod
    def get_metrics_sync(self) -> dict[str, Any]:
        """Return metrics of the queue."""

    @abstractmethod
    def health_check_sync(self) -> list[dict[str, Any]]:
        """Return the health of the consumers."""

    async def enqueue_task_async(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Add a task to the queue."""
        self._is_missing("enqueue_task_async")

    async def get_task_status_async(self, task_id: str) -> TaskResult:
        """Return the status and result of a task."""
        self._is_missing("get_task_status_async")

    async def cancel_task_async(self, task_id: str) -> None:
        """Cancel a task that has not started."""
        self._is_missing("cancel_task_async")

    async def get_metrics_async(self) -> dict[str, Any]:
        """Return metrics of the queue."""
        self._is_missing("get_metrics_async")

    async def health_check_async(self) -> list[dict[str, Any]]:
        """Return the health of the consumers."""
        self._is_missing("health_check_async")

    def _is_missing(self, method: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no {method}: use {method.replace('_async', '_sync')}."
        )
