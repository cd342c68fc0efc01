"""Dynamic batching: groups concurrent calls into one call of a function that takes lists."""

from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, overload

from skate.serve._batching.calls import SingleCall, StreamedCall
from skate.serve._batching.function import BatchedFunction
from skate.serve._batching.settings import BatchSettings, BatchSize
from skate.serve._config import defaults
from skate.serve.context import _get_request

__all__ = ["batch"]

R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)


class _Batched(Protocol):
    """The attributes of a batched function."""

    def set_max_batch_size(self, new_max_batch_size: int) -> None:
        """Set the maximum size of later batches."""

    def set_batch_wait_timeout_s(self, new_batch_wait_timeout_s: float) -> None:
        """Set the waiting time of later batches."""


class _BatchedFunction(_Batched, Protocol[_R_co]):
    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, _R_co]: ...


class _BatchedGenerator(_Batched, Protocol[_R_co]):
    def __call__(self, *args: Any, **kwargs: Any) -> AsyncGenerator[_R_co, None]: ...


class _Decorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[..., Coroutine[Any, Any, Sequence[R]]], /
    ) -> _BatchedFunction[R]: ...
    @overload
    def __call__(self, function: Callable[..., AsyncIterator[Sequence[R]]], /) -> _BatchedGenerator[R]: ...


@overload
def batch(_func: Callable[..., Coroutine[Any, Any, Sequence[R]]], /) -> _BatchedFunction[R]: ...
@overload
def batch(_func: Callable[..., AsyncIterator[Sequence[R]]], /) -> _BatchedGenerator[R]: ...
@overload
def batch(
    _func: None = None,
    /,
    max_batch_size: int = defaults.MAX_BATCH_SIZE,
    batch_wait_timeout_s: float = defaults.BATCH_WAIT_TIMEOUT_S,
    max_concurrent_batches: int = defaults.MAX_CONCURRENT_BATCHES,
    batch_size_fn: BatchSize | None = None,
) -> _Decorator: ...
def batch(
    _func: Callable[..., Any] | None = None,
    /,
    max_batch_size: int = defaults.MAX_BATCH_SIZE,
    batch_wait_timeout_s: float = defaults.BATCH_WAIT_TIMEOUT_S,
    max_concurrent_batches: int = defaults.MAX_CONCURRENT_BATCHES,
    batch_size_fn: BatchSize | None = None,
) -> Any:
    """Let an async function process concurrent calls in one call with lists.

    Callers pass single items and get single results. The function gets a list for each parameter and returns a list
    with one result for each item, in the same order; an exception in that list is raised in its caller only. An async
    generator yields such lists: each caller then iterates over its own results, and a `StopIteration` in a list ends
    the iteration of its caller.

    Each object has its own batches. A cancelled caller leaves its batch, and a batch is cancelled once all of its
    callers have left.

    The function also gets the methods `set_max_batch_size` and `set_batch_wait_timeout_s`, for example for
    `reconfigure`.

    Args:
        max_batch_size: The most items in a batch, or their maximum size by `batch_size_fn`.
        batch_wait_timeout_s: How long the first item of a batch waits for others. With 0, a batch consists of the items
            that are already waiting.
        max_concurrent_batches: How many batches may run at the same time.
        batch_size_fn: Returns the size of a list of items, such as their number of tokens. If there are several
            parameters, it gets the first one.

    Raises:
        TypeError: If it decorates anything but an async function, or an argument has the wrong type.
        ValueError: If a number is out of range.

    Example:
        >>> import asyncio
        >>> @batch(max_batch_size=3)
        ... async def double(numbers: list[int]) -> list[int]:
        ...     print("batch", numbers)
        ...     return [2 * number for number in numbers]
        >>> async def main() -> list[int]:
        ...     return await asyncio.gather(double(1), double(2), double(3))
        >>> asyncio.run(main())
        batch [1, 2, 3]
        [2, 4, 6]
    """
    if _func is not None and not callable(_func):
        raise TypeError(f"@serve.batch decorates an async function or method, not {_func!r}.")
    settings = BatchSettings(
        max_batch_size=max_batch_size,
        batch_wait_timeout_s=batch_wait_timeout_s,
        max_concurrent_batches=max_concurrent_batches,
        batch_size_fn=batch_size_fn,
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return _decorated(BatchedFunction(function, settings))

    return decorate if _func is None else decorate(_func)


def _decorated(batched: BatchedFunction) -> Callable[..., Any]:
    """Return the function that callers see: a plain function, which other decorators and frameworks support."""
    wrapper: Any
    if batched.streams:

        @functools.wraps(batched.function)
        def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            queue, args, kwargs = batched.route(args, kwargs)
            call = StreamedCall(args, kwargs, _get_request(), queue.loop)
            queue.submit(call)
            return call.answers()

        wrapper = stream
        # A call joins a batch immediately and not on iteration, so the wrapper is not an async generator function.
        wrapper._runs_on_loop = True
    else:

        @functools.wraps(batched.function)
        async def answer(*args: Any, **kwargs: Any) -> Any:
            queue, args, kwargs = batched.route(args, kwargs)
            call = SingleCall(args, kwargs, _get_request(), queue.loop)
            queue.submit(call)
            try:
                return await call.future
            except asyncio.CancelledError:
                call.leave()
                raise

        wrapper = answer

    def set_max_batch_size(new_max_batch_size: int) -> None:
        batched.change(max_batch_size=new_max_batch_size)

    def set_batch_wait_timeout_s(new_batch_wait_timeout_s: float) -> None:
        batched.change(batch_wait_timeout_s=new_batch_wait_timeout_s)

    async def is_batching_task_alive() -> bool:
        # There is no task between batches that could have died.
        return True

    async def get_handling_task_stack() -> str:
        text = io.StringIO()
        for queue in batched.queues:
            for task in queue.tasks():
                task.print_stack(file=text)
        return text.getvalue()

    wrapper.set_max_batch_size = set_max_batch_size
    wrapper.set_batch_wait_timeout_s = set_batch_wait_timeout_s
    wrapper._get_max_batch_size = lambda: batched.settings.max_batch_size
    wrapper._get_batch_wait_timeout_s = lambda: batched.settings.batch_wait_timeout_s
    wrapper._get_curr_iteration_start_times = lambda: _RuntimeSummaryStatistics(
        [started for queue in batched.queues for started in queue.start_times()]
    )
    wrapper._is_batching_task_alive = is_batching_task_alive
    wrapper._get_handling_task_stack = get_handling_task_stack
    return cast("Callable[..., Any]", wrapper)


@dataclass(frozen=True)
class _RuntimeSummaryStatistics:
    """The start times of the running batches, in Unix time."""

    start_times: list[float]

    @property
    def min_start_time(self) -> float | None:
        return min(self.start_times, default=None)

    @property
    def mean_start_time(self) -> float | None:
        return sum(self.start_times) / len(self.start_times) if self.start_times else None

    @property
    def max_start_time(self) -> float | None:
        return max(self.start_times, default=None)

    @property
    def num_requests(self) -> int:
        return len(self.start_times)
