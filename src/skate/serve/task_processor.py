"""The Celery adapter of task consumers. It supports all brokers of Celery, and several processes may share a queue."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from skate.air._optional import load
from skate.serve._config import defaults
from skate.serve.schema import CeleryAdapterConfig, TaskProcessorAdapter, TaskProcessorConfig, TaskResult

__all__ = ["CeleryTaskProcessorAdapter"]

logger = logging.getLogger("skate.serve")

_CONSUMER_RESTART_DELAY_S = 1.0  # seconds until a consumer that ended unexpectedly restarts


class CeleryTaskProcessorAdapter(TaskProcessorAdapter):
    """Process tasks from a Celery queue in threads of this process, and enqueue tasks.

    A failed task is retried up to `max_retries` times, after 1, 2, 4, … seconds. If they are set,
    `failed_task_queue_name` receives tasks that failed finally, and `unprocessable_task_queue_name` tasks without a
    handler: under their own names, with id, error, arguments and traceback as text. A task whose consumer dies returns
    to the queue.

    Args:
        config: The queue, with a `CeleryAdapterConfig`.

    Raises:
        ImportError: If Celery is not installed.
        TypeError: If the `adapter_config` is not a `CeleryAdapterConfig`.
    """

    def __init__(self, config: TaskProcessorConfig) -> None:
        self._celery = load("celery", "CeleryTaskProcessorAdapter")
        if not isinstance(config.adapter_config, CeleryAdapterConfig):
            raise TypeError(
                f"adapter_config must be an instance of CeleryAdapterConfig, got {config.adapter_config!r}."
            )
        self._config = config
        self._app: Any = None
        self._worker: Any = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._has_stopped = threading.Event()

    def initialize(self, consumer_concurrency: int = defaults.CONSUMER_CONCURRENCY) -> None:
        """Create the Celery application."""
        config: CeleryAdapterConfig = self._config.adapter_config
        # It does not become the current application of the process, which may belong to the user or to another
        # consumer.
        self._app = self._celery.Celery(
            self._config.queue_name,
            broker=config.broker_url,
            backend=config.backend_url,
            set_as_current=False,
            fixups=[],
        )
        self._app.conf.update(
            broker_connection_retry_on_startup=True,
            broker_transport_options=config.broker_transport_options or {},
            task_acks_late=True,
            task_default_queue=self._config.queue_name,
            task_ignore_result=False,
            task_reject_on_worker_lost=True,
            worker_concurrency=consumer_concurrency,
            worker_hijack_root_logger=False,
        )
        self._app.conf.update(config.app_custom_config or {})

    def register_task_handle(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Process the tasks of the function's name, or of `name`, with a function.

        Raises:
            NotImplementedError: If it is a coroutine function, because Celery runs tasks in threads.
        """
        if inspect.iscoroutinefunction(func):
            raise NotImplementedError(
                f"Celery runs tasks in threads, but the handler {func.__qualname__} is async: make it a synchronous "
                "function."
            )
        options = {
            "name": name or func.__name__,
            "autoretry_for": (Exception,),
            "retry_backoff": True,
            "retry_kwargs": {"max_retries": self._config.max_retries},
            **(self._config.adapter_config.task_custom_config or {}),
        }
        adapter = self

        class HandledTask(self._celery.Task):  # type: ignore[misc, name-defined] # Celery has no types
            def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
                adapter._put_aside(
                    adapter._config.failed_task_queue_name, self.name, task_id, exc, args, kwargs, einfo
                )

        def handle(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        # By default, Celery shares tasks with all applications of the process.
        self._app.task(handle, base=HandledTask, shared=False, **options)

    def enqueue_task_sync(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Enqueue a task.

        Args:
            task_name: The name of its handler.
            args: The arguments of the handler, serializable as JSON.
            kwargs: The keyword arguments of the handler.
            options: Further options of Celery's `apply_async`.
        """
        sent = self._app.send_task(
            task_name, args=args, kwargs=kwargs, **{"queue": self._config.queue_name, **options}
        )
        return TaskResult(id=sent.id, status=sent.status, created_at=time.time(), result=sent.result)

    def get_task_status_sync(self, task_id: str) -> TaskResult:
        """Return the status of a task, and its result or error."""
        found = self._app.AsyncResult(task_id)
        return TaskResult(id=task_id, status=found.status, result=found.result)

    def start_consumer(self, **kwargs: Any) -> None:
        """Start to process tasks in a thread.

        Args:
            kwargs: Further arguments of Celery's `WorkController`.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        self._is_stopping = False
        self._has_stopped.clear()
        self._celery.signals.task_unknown.connect(self._on_unknown, weak=False, dispatch_uid=id(self))
        self._app.finalize()
        self._worker = self._new_worker(kwargs)
        self._thread = threading.Thread(target=self._consume, args=(kwargs,), name="serve-tasks", daemon=True)
        self._thread.start()

    def _new_worker(self, options: dict[str, Any]) -> Any:
        return load("celery.worker", "CeleryTaskProcessorAdapter").WorkController(
            app=self._app,
            hostname=f"{self._config.queue_name}-{uuid.uuid4().hex[:8]}@{socket.gethostname()}",
            pool_cls=_pool_class(),
            queues=[self._config.queue_name],
            ready_callback=self._on_ready,
            **options,
        )

    def _consume(self, options: dict[str, Any]) -> None:
        self._worker.start()
        while not self._has_stopped.wait(_CONSUMER_RESTART_DELAY_S):
            logger.error(
                "The consumer of queue %r ended unexpectedly; restarting it.", self._config.queue_name
            )
            self._worker = self._new_worker(options)
            self._worker.start()

    def stop_consumer(self, timeout: float = 10.0) -> None:
        """Stop taking tasks, and wait for the running ones.

        Args:
            timeout: The longest time to wait, in seconds.
        """
        if self._thread is None:
            return
        self._celery.signals.task_unknown.disconnect(dispatch_uid=id(self))
        self._is_stopping = True
        consumer = self._worker.consumer
        if consumer is not None:
            consumer.call_soon(self._shut_down)
        self._thread.join(timeout)
        self._thread = None

    def cancel_task_sync(self, task_id: str) -> None:
        """Cancel a task that has not started."""
        self._app.control.revoke(task_id)

    def get_metrics_sync(self) -> dict[str, Any]:
        """Return the statistics of each consumer."""
        return self._app.control.inspect().stats() or {}

    def health_check_sync(self) -> list[dict[str, Any]]:
        """Return the answers of all healthy consumers."""
        return self._app.control.ping() or []

    async def enqueue_task_async(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Enqueue a task without blocking the event loop."""
        return await asyncio.to_thread(self.enqueue_task_sync, task_name, args, kwargs, **options)

    async def get_task_status_async(self, task_id: str) -> TaskResult:
        """Return the status of a task without blocking the event loop."""
        return await asyncio.to_thread(self.get_task_status_sync, task_id)

    async def cancel_task_async(self, task_id: str) -> None:
        """Cancel a task that has not started, without blocking the event loop."""
        await asyncio.to_thread(self.cancel_task_sync, task_id)

    async def get_metrics_async(self) -> dict[str, Any]:
        """Return the statistics of each consumer without blocking the event loop."""
        return await asyncio.to_thread(self.get_metrics_sync)

    async def health_check_async(self) -> list[dict[str, Any]]:
        """Return the answers of all healthy consumers without blocking the event loop."""
        return await asyncio.to_thread(self.health_check_sync)

    def _on_ready(self, consumer: Any) -> None:
        if self._is_stopping:  # stopped before it was ready
            consumer.call_soon(self._shut_down)

    def _shut_down(self) -> None:
        if self._is_stopping and not self._has_stopped.is_set():  # both callers may run
            self._has_stopped.set()
            raise load("celery.exceptions", "CeleryTaskProcessorAdapter").WorkerShutdown(0)

    def _on_unknown(self, sender: Any = None, **about: Any) -> None:
        if sender is not self._worker.consumer:
            return
        args, kwargs, _ = about["message"].payload
        name = about["name"]
        error = LookupError(
            f"no consumer of the queue {self._config.queue_name!r} handles tasks called {name!r}"
        )
        self._put_aside(
            self._config.unprocessable_task_queue_name, name, about["id"], error, args, kwargs, ""
        )

    def _put_aside(
        self, queue: str | None, name: str, task_id: str, error: Exception, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        if queue is not None:
            what = f"{type(error).__name__}: {error}"
            self._app.send_task(name, args=[task_id, what, str(args), str(kwargs), str(einfo)], queue=queue)


def _pool_class() -> type:
    base: Any = load("celery.concurrency.thread", "CeleryTaskProcessorAdapter").TaskPool

    class Pool(base):  # type: ignore[misc] # Celery has no types
        """Threads that make the task's application current, because a process may have several."""

        def on_apply(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            def in_app(*arguments: Any, **named: Any) -> Any:
                self.app.set_current()
                return target(*arguments, **named)

            return super().on_apply(in_app, *args, **kwargs)

        def on_stop(self) -> None:
            # Fetched tasks that have not started return to the queue.
            self.executor.shutdown(wait=True, cancel_futures=True)

    return Pool
