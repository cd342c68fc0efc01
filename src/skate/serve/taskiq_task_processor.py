"""The taskiq adapter of task consumers. It supports the brokers of taskiq, and several processes may share a queue."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import logging
import socket
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from skate.air._optional import load
from skate.serve._config import defaults
from skate.serve._runtime.loop import ServeLoop
from skate.serve._runtime.taskiq_brokers import BROKERS, new_broker
from skate.serve.schema import TaskProcessorAdapter, TaskProcessorConfig, TaskResult

__all__ = ["TaskiqAdapterConfig", "TaskiqTaskProcessorAdapter"]

logger = logging.getLogger("skate.serve")

T = TypeVar("T")

_CONSUMER_RESTART_DELAY_S = 1.0  # seconds until a consumer that ended unexpectedly restarts
_FIRST_RETRY_DELAY_S = 1.0
_LAST_RETRY_DELAY_S = 600.0
_DISCONNECT_TIMEOUT_S = 5.0
_RETRIES = "_retries"  # the label that counts the retries of a task


class TaskiqAdapterConfig(BaseModel):
    """The connection of taskiq to its broker and result backend.

    Example:
        >>> TaskiqAdapterConfig(
        ...     broker_type="redis_stream", broker_kwargs={"url": "redis://…"}, result_backend_url="redis://…"
        ... ).broker_type
        'redis_stream'
    """

    broker_type: str = Field(
        description=f"The broker: {', '.join(BROKERS)}, or the import path of a class, such as `package.module:Broker`."
    )
    broker_kwargs: dict[str, Any] | None = Field(
        default=None, description="Arguments of the broker except for the name of the queue."
    )
    result_backend_url: str | None = Field(
        default=None,
        description="The URL of the Redis server that keeps results; without it, there are none.",
    )


class TaskiqTaskProcessorAdapter(TaskProcessorAdapter):
    """Process tasks from a taskiq queue in this process, and enqueue tasks.

    Synchronous handlers run in threads, asynchronous ones on an event loop of the adapter. A failed task is retried up
    to `max_retries` times, after 1, 2, 4, … seconds. If they are set, `failed_task_queue_name` receives tasks that
    failed finally, and `unprocessable_task_queue_name` tasks without a handler: under their own names, with id, error,
    arguments and traceback as text. Brokers with acknowledgements return the tasks of a consumer that dies.

    Args:
        config: The queue, with a `TaskiqAdapterConfig`.

    Raises:
        ImportError: If taskiq is not installed.
        TypeError: If the `adapter_config` is not a `TaskiqAdapterConfig`.
    """

    def __init__(self, config: TaskProcessorConfig) -> None:
        load("taskiq", "TaskiqTaskProcessorAdapter")
        if not isinstance(config.adapter_config, TaskiqAdapterConfig):
            raise TypeError(
                f"adapter_config must be an instance of TaskiqAdapterConfig, got {config.adapter_config!r}."
            )
        self._config = config
        self._concurrency = defaults.CONSUMER_CONCURRENCY
        self._handlers: dict[str, Callable[..., Any]] = {}
        self._counts: collections.Counter[str] = collections.Counter()
        self._loop: ServeLoop | None = None
        self._prepared: Any = None
        self._senders: dict[str, asyncio.Future[Any]] = {}
        self._stopping = asyncio.Event()
        self._consumer: Future[None] | None = None
        self._is_listening = False

    def initialize(self, consumer_concurrency: int = defaults.CONSUMER_CONCURRENCY) -> None:
        """Check the configuration of the broker; the first task that is sent or taken connects to it."""
        self._concurrency = consumer_concurrency
        try:
            self._wait(self._prepare())
        except BaseException:
            self.stop_consumer()  # the event loop
            raise

    def register_task_handle(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Process the tasks of the function's name, or of `name`, with a function or coroutine function."""

        # Its signature stays hidden, because taskiq would convert arguments by their annotations.
        async def handle_async(*args: Any, **kwargs: Any) -> Any:
            return await func(*args, **kwargs)

        def handle(*args: Any, **kwargs: Any) -> Any:
            return func(*args, **kwargs)

        self._handlers[name or func.__name__] = handle_async if inspect.iscoroutinefunction(func) else handle

    def enqueue_task_sync(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Enqueue a task.

        Args:
            task_name: The name of its handler.
            args: The arguments of the handler, serializable as JSON.
            kwargs: The keyword arguments of the handler.
            options: Labels of the task for the broker and its middlewares.
        """
        return self._wait(self._enqueue(task_name, args, kwargs, options))

    def get_task_status_sync(self, task_id: str) -> TaskResult:
        """Return the status of a task, and its result or error.

        Raises:
            RuntimeError: If the broker keeps no results.
        """
        return self._wait(self._status(task_id))

    def start_consumer(self, **kwargs: Any) -> None:
        """Start to process tasks.

        Args:
            kwargs: Further arguments of taskiq's `Receiver`.
        """
        if self._consumer is None or self._consumer.done():
            self._stopping = asyncio.Event()
            self._consumer = self._own_loop().submit(self._consume(self._stopping, kwargs))

    def stop_consumer(self, timeout: float = 10.0) -> None:
        """Stop taking tasks, wait for the running ones, and close the connections.

        Args:
            timeout: The longest time to wait, in seconds.
        """
        loop, self._loop = self._loop, None
        if loop is None:
            return
        loop.call(self._stopping.set)
        if loop.is_current:  # a garbage collection in a handler
            return
        if self._consumer is not None:
            try:
                self._consumer.result(timeout)
            except TimeoutError:
                self._consumer.cancel()
            self._consumer = None
        _end(loop, self._senders)

    def cancel_task_sync(self, task_id: str) -> None:
        """Raise NotImplementedError, because taskiq cannot cancel tasks."""
        raise NotImplementedError(f"taskiq cannot cancel tasks, and {task_id!r} stays in its queue")

    def get_metrics_sync(self) -> dict[str, Any]:
        """Return the number of tasks that the consumer of this process runs and has processed."""
        names = ("running", "succeeded", "failed", "retried", "unprocessable")
        return {
            "queue_name": self._config.queue_name,
            "max_concurrency": self._concurrency,
            **{name: self._counts[name] for name in names},
        }

    def health_check_sync(self) -> list[dict[str, Any]]:
        """Return the answer of the consumer of this process, if it is healthy."""
        name = f"{self._config.queue_name}@{socket.gethostname()}"
        return [{name: {"ok": "pong"}}] if self._is_listening else []

    async def enqueue_task_async(
        self, task_name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> TaskResult:
        """Enqueue a task without blocking the event loop."""
        return await self._await(self._enqueue(task_name, args, kwargs, options))

    async def get_task_status_async(self, task_id: str) -> TaskResult:
        """Return the status of a task without blocking the event loop."""
        return await self._await(self._status(task_id))

    async def cancel_task_async(self, task_id: str) -> None:
        """Raise NotImplementedError, because taskiq cannot cancel tasks."""
        self.cancel_task_sync(task_id)

    async def get_metrics_async(self) -> dict[str, Any]:
        """Return the number of tasks that the consumer of this process runs and has processed."""
        return self.get_metrics_sync()

    async def health_check_async(self) -> list[dict[str, Any]]:
        """Return the answer of the consumer of this process, if it is healthy."""
        return self.health_check_sync()

    # ------------------------------------------------------------ the event loop

    def _own_loop(self) -> ServeLoop:
        """Return the event loop of all connections, which cannot be shared between event loops."""
        if self._loop is None:
            self._loop = ServeLoop("serve-tasks")
            weakref.finalize(self, _end, self._loop, self._senders)
        return self._loop

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        loop = self._own_loop()
        if loop.is_current:
            coroutine.close()
            raise RuntimeError("an async handler would block its own event loop: use the _async methods")
        return loop.wait(coroutine)

    async def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._own_loop().submit(coroutine))

    # ------------------------------------------------------------ sending

    async def _sender(self, queue: str) -> Any:
        """Return a broker that is connected and sends to a queue."""
        if queue not in self._senders:
            self._senders[queue] = asyncio.ensure_future(self._connect(queue))
        try:
            return await asyncio.shield(self._senders[queue])
        except Exception:
            self._senders.pop(queue, None)  # the next call connects again
            raise

    async def _prepare(self) -> None:
        self._prepared = self._new_broker(self._config.queue_name)

    async def _connect(self, queue: str) -> Any:
        broker = None
        if queue == self._config.queue_name:
            broker, self._prepared = self._prepared, None
        broker = broker or self._new_broker(queue)
        await broker.startup()
        return broker

    def _new_broker(self, queue: str) -> Any:
        config: TaskiqAdapterConfig = self._config.adapter_config
        return new_broker(config.broker_type, queue, config.broker_kwargs or {}, config.result_backend_url)

    async def _enqueue(self, name: str, args: Any, kwargs: Any, labels: dict[str, Any]) -> TaskResult:
        sent = await _send(await self._sender(self._config.queue_name), name, args, kwargs, labels)
        return TaskResult(id=sent.task_id, status="PENDING", created_at=time.time(), result=None)

    async def _status(self, task_id: str) -> TaskResult:
        backend = (await self._sender(self._config.queue_name)).result_backend
        dummy = load("taskiq.result_backends.dummy", "TaskiqTaskProcessorAdapter").DummyResultBackend
        if isinstance(backend, dummy):
            raise RuntimeError(
                "the broker keeps no results: set result_backend_url of the TaskiqAdapterConfig"
            )
        if not await backend.is_result_ready(task_id):
            return TaskResult(id=task_id, status="PENDING", result=None)
        found = await backend.get_result(task_id)
        if found.is_err:
            return TaskResult(id=task_id, status="FAILURE", result=found.error)
        return TaskResult(id=task_id, status="SUCCESS", result=found.return_value)

    # ------------------------------------------------------------ consuming

    async def _consume(self, stopping: asyncio.Event, options: dict[str, Any]) -> None:
        threads = ThreadPoolExecutor(self._concurrency, "serve-task")
        try:
            while True:
                error = None
                try:
                    await self._listen(stopping, threads, options)
                except Exception as failure:
                    error = failure
                if stopping.is_set():
                    return
                logger.error(
                    "The consumer of queue %r ended unexpectedly; restarting it.",
                    self._config.queue_name,
                    exc_info=error,
                )
                await _pause(_CONSUMER_RESTART_DELAY_S, stopping)
        finally:
            # After a time-out, handlers may still run.
            threads.shutdown(wait=False, cancel_futures=True)

    async def _listen(
        self, stopping: asyncio.Event, threads: ThreadPoolExecutor, options: dict[str, Any]
    ) -> None:
        broker = self._new_broker(self._config.queue_name)
        broker.is_worker_process = True
        for name, handler in self._handlers.items():
            broker.register_task(handler, task_name=name)
        receiver, middleware = _consumer_classes()
        broker.add_middlewares(middleware(self, stopping))
        consumer = receiver(
            self,
            broker=broker,
            executor=threads,
            run_startup=False,
            **{"max_async_tasks": self._concurrency, **options},
        )
        try:
            await broker.startup()
            self._is_listening = True
            await consumer.listen(stopping)
        finally:
            self._is_listening = False
            await broker.shutdown()

    async def _on_error(
        self, broker: Any, message: Any, error: BaseException, stopping: asyncio.Event
    ) -> bool:
        """Retry a failed task, or put it aside. Return whether it is retried."""
        retries = int(message.labels.get(_RETRIES, 0))
        most = self._config.max_retries
        if most is None or retries < most:
            self._counts["retried"] += 1
            delay = min(_FIRST_RETRY_DELAY_S * 2 ** min(retries, 32), _LAST_RETRY_DELAY_S)
            await _pause(delay, stopping)
            labels = {**message.labels, _RETRIES: retries + 1}
            await _send(broker, message.task_name, message.args, message.kwargs, labels, message.task_id)
            return True
        self._counts["failed"] += 1
        await self._put_aside(self._config.failed_task_queue_name, message, error)
        return False

    async def _on_unknown(self, message: Any) -> None:
        """Put a task without a handler aside."""
        self._counts["unprocessable"] += 1
        error = LookupError(
            f"no consumer of the queue {self._config.queue_name!r} handles tasks called {message.task_name!r}"
        )
        await self._put_aside(self._config.unprocessable_task_queue_name, message, error)

    def _count(self, what: str, change: int = 1) -> None:
        """Count tasks, for the metrics."""
        self._counts[what] += change

    async def _put_aside(self, queue: str | None, message: Any, error: BaseException) -> None:
        if queue is None:
            return
        what = f"{type(error).__name__}: {error}"
        details = "".join(traceback.format_exception(error)) if error.__traceback__ is not None else ""
        args = [message.task_id, what, str(message.args), str(message.kwargs), details]
        await _send(await self._sender(queue), message.task_name, args, None, {})


async def _disconnect(senders: dict[str, asyncio.Future[Any]]) -> None:
    while senders:
        _, sender = senders.popitem()
        with contextlib.suppress(Exception):  # it is not connected, or no longer
            await (await sender).shutdown()


def _end(loop: ServeLoop, senders: dict[str, asyncio.Future[Any]]) -> None:
    """Close all connections and end the event loop."""
    if not loop.loop.is_closed() and not loop.is_current:
        with contextlib.suppress(TimeoutError):
            loop.wait(_disconnect(senders), _DISCONNECT_TIMEOUT_S)
    loop.stop()


async def _send(
    broker: Any, name: str, args: Any, kwargs: Any, labels: dict[str, Any], task_id: str | None = None
) -> Any:
    kicker = load("taskiq.kicker", "TaskiqTaskProcessorAdapter").AsyncKicker(name, broker, labels)
    return await kicker.with_task_id(task_id).kiq(*(args or ()), **(kwargs or {}))


async def _pause(delay: float, stopping: asyncio.Event) -> None:
    """Wait for some seconds, or until the consumer is stopped."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(delay):
            await stopping.wait()


def _consumer_classes() -> tuple[Any, Any]:
    """Return the receiver of tasks and the middleware that retries them, which derive from classes of taskiq."""
    taskiq = load("taskiq", "TaskiqTaskProcessorAdapter")
    receivers: Any = load("taskiq.receiver", "TaskiqTaskProcessorAdapter")
    exceptions = load("taskiq.exceptions", "TaskiqTaskProcessorAdapter")

    class Receiver(receivers.Receiver):  # type: ignore[misc] # taskiq is not installed where types are checked
        """Reports tasks without a handler."""

        def __init__(self, adapter: TaskiqTaskProcessorAdapter, **options: Any) -> None:
            super().__init__(**options)
            self._adapter = adapter

        async def callback(self, message: Any, raise_err: bool = False) -> None:
            data = message.data if isinstance(message, taskiq.AckableMessage) else message
            parsed = None
            with contextlib.suppress(Exception):  # taskiq logs and skips what it cannot read
                parsed = self.broker.formatter.loads(message=data)
            self._adapter._count("running")
            try:
                if parsed is not None and self.broker.find_task(parsed.task_name) is None:
                    await self._adapter._on_unknown(parsed)
                await super().callback(message, raise_err)
            except Exception:
                logger.exception(
                    "A task could not be retried, put aside or acknowledged. It stays in the queue, if the broker has "
                    "acknowledgements: %r",
                    data,
                )
            finally:
                self._adapter._count("running", -1)

    class Retries(taskiq.TaskiqMiddleware):  # type: ignore[misc, name-defined] # likewise
        """Retries failed tasks."""

        def __init__(self, adapter: TaskiqTaskProcessorAdapter, stopping: asyncio.Event) -> None:
            super().__init__()
            self._adapter = adapter
            self._stopping = stopping

        async def on_error(self, message: Any, result: Any, exception: BaseException) -> None:
            if isinstance(exception, asyncio.CancelledError):
                raise exception  # without an acknowledgement, the broker returns the task
            if isinstance(exception, exceptions.NoResultError):
                return
            if await self._adapter._on_error(self.broker, message, exception, self._stopping):
                result.error = exceptions.NoResultError()  # not yet

        def post_execute(self, message: Any, result: Any) -> None:
            if not result.is_err:
                self._adapter._count("succeeded")

    return Receiver, Retries
