"""A batched function: its settings, and a queue for each object that it is a method of."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from skate.serve._batching.calls import ByName, Parameters, Positional
from skate.serve._batching.queue import BatchQueue
from skate.serve._batching.settings import BatchSettings
from skate.serve._runtime.method_state import MethodState
from skate.serve.context import _get_replica

_logger = logging.getLogger("skate.serve")


class BatchedFunction:
    """Finds the queue of a call.

    It is pickled with the function; the pickle contains the settings but no queue.

    Args:
        function: The function that takes lists: a coroutine function or an async generator function.
        settings: The arguments of the decorator.

    Raises:
        TypeError: If the function is not async.
    """

    def __init__(self, function: Callable[..., Any], settings: BatchSettings) -> None:
        if not inspect.isasyncgenfunction(function) and not inspect.iscoroutinefunction(function):
            raise TypeError(
                f"@serve.batch decorates an async function or method, and {function!r} is not async: write 'async def'."
            )
        self.__setstate__((function, settings))

    def __getstate__(self) -> tuple[Callable[..., Any], BatchSettings]:
        return self.function, self.settings

    def __setstate__(self, state: tuple[Callable[..., Any], BatchSettings]) -> None:
        self.function, self.settings = state
        self.streams = inspect.isasyncgenfunction(self.function)
        self.name: str = getattr(self.function, "__name__", repr(self.function))
        self.queues: weakref.WeakSet[BatchQueue] = weakref.WeakSet()
        self._queue: BatchQueue | None = None  # for calls that are not method calls
        self._method_state = MethodState(self.function, "@serve.batch")

    def change(self, **changes: Any) -> None:
        """Change settings for batches that form later.

        Raises:
            TypeError: If a value has the wrong type.
            ValueError: If a value is out of range.
        """
        self.settings = replace(self.settings, **changes)
        self._warn_if_never_full()

    def route(self, args: Positional, kwargs: ByName) -> tuple[BatchQueue, Positional, ByName]:
        """Return the queue of a call, and the call's arguments without `self`.

        Raises:
            TypeError: If the function cannot be called with these arguments.
        """
        if args and self._method_state.is_owner(args[0]):
            return self._queue_of(args[0]), *self._bound.normalise(args[1:], kwargs)
        queue = self._queue
        if queue is None or queue.loop is not asyncio.get_running_loop():
            queue = self._queue = self._new_queue(self.function, None)
        return queue, *self._plain.normalise(args, kwargs)

    @functools.cached_property
    def _plain(self) -> Parameters:
        return Parameters(self.function, is_method=False)

    @functools.cached_property
    def _bound(self) -> Parameters:
        return Parameters(self.function, is_method=True)

    def _queue_of(self, owner: Any) -> BatchQueue:
        attributes = self._method_state.attributes_of(owner)
        queue: BatchQueue | None = attributes.get(self._method_state.key)
        # A copied object still refers to the queue of the original.
        if queue is None or queue.owner is not owner or queue.loop is not asyncio.get_running_loop():
            queue = self._new_queue(functools.partial(self.function, owner), owner)
            attributes[self._method_state.key] = queue
        return queue

    def _new_queue(self, function: Callable[..., Any], owner: Any) -> BatchQueue:
        self._warn_if_never_full()
        metrics = None
        if _get_replica() is not None:
            from skate.serve._batching.metrics import BatchMetrics

            metrics = BatchMetrics(self.name)
        queue = BatchQueue(
            function, lambda: self.settings, streams=self.streams, owner=owner, metrics=metrics
        )
        self.queues.add(queue)
        return queue

    def _warn_if_never_full(self) -> None:
        """Warn if a replica's `max_ongoing_requests` is too low to fill its batches."""
        replica = _get_replica()
        limit = getattr(replica and replica._deployment_config, "max_ongoing_requests", None)
        settings = self.settings
        wanted = settings.max_batch_size * settings.max_concurrent_batches
        if limit is not None and settings.batch_size_fn is None and wanted > limit:
            _logger.warning(
                "The batches of %s are never full: max_batch_size=%d times max_concurrent_batches=%d is more than "
                "the deployment's max_ongoing_requests=%d. Set max_ongoing_requests to at least %d.",
                self.name,
                settings.max_batch_size,
                settings.max_concurrent_batches,
                limit,
                wanted,
            )
