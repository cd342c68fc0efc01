"""Deployments that process tasks from a queue, in addition to requests."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from skate.serve.schema import TaskProcessorAdapter, TaskProcessorConfig

__all__ = ["instantiate_adapter_from_config", "task_consumer", "task_handler"]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


class TaskConsumerWrapper:
    """The base class that `task_consumer` adds. Replicas call `initialize_callable` after creating an instance."""

    _adapter: TaskProcessorAdapter

    def initialize_callable(self, consumer_concurrency: int) -> None:
        """Connect to the queue, and start to process up to `consumer_concurrency` tasks at a time."""
        raise NotImplementedError


def task_consumer(*, task_processor_config: TaskProcessorConfig) -> Callable[[C], C]:
    """Process tasks from a queue in the replicas of a deployment.

    Mark the methods that process tasks with `task_handler`. A replica processes up to `max_ongoing_requests` tasks at a
    time. When it shuts down, it finishes the tasks that it has begun.

    Args:
        task_processor_config: The queue and its adapter.

    Example:
        >>> from skate.serve.schema import CeleryAdapterConfig, TaskProcessorConfig
        >>> config = TaskProcessorConfig(
        ...     queue_name="thumbnails",
        ...     adapter_config=CeleryAdapterConfig(broker_url="redis://…", backend_url="redis://…"),
        ... )
        >>> @task_consumer(task_processor_config=config)
        ... class Thumbnails:
        ...     @task_handler(name="make")
        ...     def make(self, path: str) -> str:
        ...         return f"{path}.small"
    """

    def decorate(target: C) -> C:
        from skate.serve.schema import TaskProcessorAdapter

        class Consumer(target, TaskConsumerWrapper):  # type: ignore[misc, valid-type] # the user's class
            def initialize_callable(self, consumer_concurrency: int) -> None:
                self._adapter = _new_adapter(task_processor_config, consumer_concurrency)
                for name, handler in _handlers(self):
                    self._adapter.register_task_handle(handler, name=name)
                self._adapter.start_consumer()

            def __del__(self) -> Any:
                adapter = self.__dict__.get("_adapter")
                if adapter is not None:
                    adapter.stop_consumer()
                ending = getattr(super(), "__del__", None)
                # A replica awaits the result of an async `__del__`.
                return None if ending is None else ending()

        functools.update_wrapper(Consumer, target, updated=())
        Consumer.__annotations__ = {
            **inspect.get_annotations(target),
            "_adapter": TaskProcessorAdapter,
        }
        return Consumer  # type: ignore[return-value] # it is a class like the one that was given

    return decorate


@overload
def task_handler(_func: F) -> F: ...
@overload
def task_handler(_func: None = None, *, name: str | None = None) -> Callable[[F], F]: ...
def task_handler(_func: Any = None, *, name: str | None = None) -> Any:
    """Process the tasks of a name with a method.

    Args:
        name: The name of the tasks. Defaults to the name of the method.

    Raises:
        ValueError: If the name is not a string, or empty.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ValueError(f"Task name must be a non-empty string, got {name}")

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def handle(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        @functools.wraps(function)
        async def handle_async(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        handler: Any = handle_async if inspect.iscoroutinefunction(function) else handle
        handler._task_name = name or function.__name__
        return handler  # type: ignore[no-any-return] # what `wraps` makes is like what it was given

    return decorate if _func is None else decorate(_func)


def instantiate_adapter_from_config(task_processor_config: TaskProcessorConfig) -> TaskProcessorAdapter:
    """Return an adapter that enqueues tasks and reports their status.

    Args:
        task_processor_config: The queue and its adapter, the same as the consumer's.

    Raises:
        TypeError: If the adapter is not a `TaskProcessorAdapter`.
    """
    return _new_adapter(task_processor_config)


def _new_adapter(config: TaskProcessorConfig, concurrency: int | None = None) -> TaskProcessorAdapter:
    from skate.serve.schema import TaskProcessorAdapter

    kind: Any = config.adapter
    if isinstance(kind, str):
        separator = ":" if ":" in kind else "."
        module, _, name = kind.rpartition(separator)
        kind = getattr(importlib.import_module(module), name)
    adapter = kind(config)
    if not isinstance(adapter, TaskProcessorAdapter):
        raise TypeError(f"{config.adapter!r} must create a TaskProcessorAdapter, got {adapter!r}.")
    if concurrency is None:
        adapter.initialize()
    else:
        adapter.initialize(concurrency)
    return adapter


def _handlers(consumer: Any) -> list[tuple[str, Callable[..., Any]]]:
    """Return the task handlers with their task names, sorted by method name."""
    methods = inspect.getmembers(consumer, inspect.ismethod)
    return [(method._task_name, method) for _, method in methods if hasattr(method, "_task_name")]
