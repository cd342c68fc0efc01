"""Batches of calls, while they form and while they run."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from skate.serve import context as contexts
from skate.serve._batching.calls import Call, first_item, stack_arguments
from skate.serve._batching.settings import BatchSettings


class FormingBatch:
    """Calls that will run together, in order of arrival, with the settings at the arrival of the first one.

    Args:
        settings: The limits of the batch.
        due: When it stops waiting for more calls, on the loop's clock.
        context: The context of its first caller, in which it will run.
        is_empty: Called when its last caller has left.
    """

    __slots__ = (
        "_is_empty",
        "calls",
        "context",
        "due",
        "is_closed",
        "is_due",
        "parts_left",
        "settings",
        "size",
        "started",
    )

    def __init__(
        self,
        settings: BatchSettings,
        due: float,
        context: contextvars.Context,
        is_empty: Callable[[FormingBatch], None],
    ) -> None:
        self.settings = settings
        self.due = due
        self.context = context
        self.calls: dict[Call, None] = {}  # an ordered set: callers may leave in any order
        self.is_closed = False
        self.is_due = False
        self.size: float = 0
        self.started = 0.0  # on the loop's clock
        self.parts_left = 0  # unfinished runs, once the batch has started
        self._is_empty = is_empty

    def add(self, call: Call) -> bool:
        """Add a call if the batch has room; return whether it had."""
        settings = self.settings
        if settings.batch_size_fn is None:
            size: float = len(self.calls) + 1
        else:
            size = _size([*self.calls, call], settings)
            if size > settings.max_batch_size:
                return False
        self.size = size
        self.calls[call] = None
        call.holder = self
        self.is_closed = size >= settings.max_batch_size
        return True

    def leave(self, call: Call) -> None:
        """Remove a call whose caller no longer waits."""
        del self.calls[call]
        if self.settings.batch_size_fn is None:
            self.size -= 1  # otherwise the next call measures the size again
        if not self.calls:
            self._is_empty(self)


class RunningBatch:
    """Calls that one run of the batched function answers.

    Args:
        calls: The calls. They pass the same parameters, and use the same model.
        formed: The batch that contained them.
        never_ran: Called if the run is cancelled before its task has started, so that the task cannot report its end.
    """

    __slots__ = ("_never_ran", "calls", "ends_by_itself", "formed", "task")

    def __init__(
        self, calls: Sequence[Call], formed: FormingBatch, never_ran: Callable[[RunningBatch], None]
    ) -> None:
        self.calls = calls
        self.formed = formed
        self.task: asyncio.Task[None] | None = None
        self.ends_by_itself = False
        self._never_ran = never_ran
        for call in calls:
            call.holder = self

    @property
    def is_awaited(self) -> bool:
        """Whether any caller still waits."""
        return any(call.is_waiting for call in self.calls)

    def arguments(self) -> tuple[list[list[Any]], dict[str, list[Any]]]:
        """Return the arguments for the batched function."""
        return stack_arguments(self.calls)

    def requests(self) -> list[Any]:
        """Return the requests that the calls belong to."""
        return [call.request for call in self.calls if call.request is not None]

    def leave(self, call: Call) -> None:
        """React to a caller that no longer waits; cancel the run after the last one."""
        if self.is_awaited or self.task is None or self.task.done():
            return
        self.task.cancel()
        if not self.ends_by_itself:
            self._never_ran(self)

    def answer(self, results: Any) -> None:
        """Pass each caller its result.

        Raises:
            TypeError: If the results are not a list.
            RayServeException: If the number of results differs from the number of calls.
        """
        calls = self.calls
        if type(results) is not list or len(results) != len(calls):
            _check_results(results, len(calls))
        for call, result in zip(calls, results, strict=True):
            call.answer(result)

    def end(self) -> None:
        """Tell every waiting caller that there are no more results."""
        for call in self.calls:
            call.end()

    def fail(self, error: BaseException) -> None:
        """Raise an error in every waiting caller."""
        for call in self.calls:
            call.fail(error)


def split_into_runs(formed: FormingBatch, never_ran: Callable[[RunningBatch], None]) -> list[RunningBatch]:
    """Split a batch by the calls' models and parameters, in order."""
    kinds: dict[Any, list[Call]] = {}
    for call in formed.calls:
        request = call.request
        model_id = "" if request is None else request.multiplexed_model_id
        kind = (model_id, len(call.args), *sorted(call.kwargs)) if call.kwargs else (model_id, len(call.args))
        if kind in kinds:
            kinds[kind].append(call)
        else:
            kinds[kind] = [call]
    return [RunningBatch(calls, formed, never_ran) for calls in kinds.values()]


def _size(calls: Sequence[Call], settings: BatchSettings) -> float:
    assert settings.batch_size_fn is not None
    size = settings.batch_size_fn([first_item(call) for call in calls])
    try:
        size > settings.max_batch_size  # noqa: B015 # any comparable value is valid
    except TypeError:
        raise TypeError(f"batch_size_fn must return a number, got {size!r}") from None
    return size


def _check_results(results: Any, expected: int) -> None:
    if isinstance(results, str | bytes | Mapping | Set) or not hasattr(results, "__len__"):
        raise TypeError(
            f"a batched function must return a list with a result for each of its {expected} items, "
            f"got {type(results).__name__}"
        )
    if len(results) != expected:
        from skate.serve.exceptions import RayServeException

        raise RayServeException(
            f"a batched function was called with {expected} items and returned {len(results)} results: it must return "
            "one for each item, in the same order"
        )


_requests: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("skate_serve_batch", default=())


def batch_requests() -> tuple[Any, ...]:
    """Return the requests of the running batch; empty outside of a batch."""
    return _requests.get()


def enter_batch(requests: Sequence[Any]) -> None:
    """Turn the current context, that of a batch's first caller, into the context of the batch.

    The context then belongs to no single request: calls of the batched function must neither carry the id of one
    request nor be cancelled with it.
    """
    _requests.set(tuple(requests))
    contexts._request.set(None)
