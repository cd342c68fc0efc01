"""Calls of batched functions: their arguments, and the delivery of results to their callers."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

Positional = tuple[Any, ...]
ByName = dict[str, Any]


class Holder(Protocol):
    """The batch that contains a call, forming or running."""

    def leave(self, call: Call) -> None:
        """Remove a call whose caller no longer waits."""


class Call:
    """A call that one batch will answer: the common part of single and streamed calls."""

    __slots__ = ("args", "holder", "kwargs", "request")

    def __init__(self, args: Positional, kwargs: ByName, request: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.request = request
        self.holder: Holder | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the caller still waits for results."""
        raise NotImplementedError

    def answer(self, value: Any) -> None:
        """Deliver the only result, or the next one."""
        raise NotImplementedError

    def end(self) -> None:
        """Signal that there are no more results."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Raise an error in the caller."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the batch, without an answer or with all of them."""
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.leave(self)


class SingleCall(Call):
    """A call with one result: its caller awaits `future`."""

    __slots__ = ("future",)

    def __init__(
        self, args: Positional, kwargs: ByName, request: Any, loop: asyncio.AbstractEventLoop
    ) -> None:
        # Does not call the base class, because this dominates the overhead of a call.
        self.args = args
        self.kwargs = kwargs
        self.request = request
        self.holder = None
        self.future: asyncio.Future[Any] = loop.create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.future.done()

    def answer(self, value: Any) -> None:
        self.holder = None  # breaks a reference cycle
        if isinstance(value, Exception):
            self.fail(value)
        elif not self.future.done():
            self.future.set_result(value)

    def end(self) -> None:
        """Do nothing: the only result was the end."""

    def fail(self, error: BaseException) -> None:
        self.holder = None
        if self.future.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        elif isinstance(error, StopIteration):
            # A future cannot raise StopIteration: `await` would treat it as a result.
            wrapped = RuntimeError(f"a batched function returned {error!r} for this call")
            wrapped.__cause__ = error
            self.future.set_exception(wrapped)
        else:
            self.future.set_exception(error)


class StreamedCall(Call):
    """A call with several results: its caller iterates over `answers`."""

    __slots__ = ("_answers", "_error", "_generator_ref", "_has_ended", "_loop", "_traceback", "_waiter")

    def __init__(
        self, args: Positional, kwargs: ByName, request: Any, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(args, kwargs, request)
        self._loop = loop
        self._answers: deque[Any] = deque()
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._has_ended = False
        self._waiter: asyncio.Future[None] | None = None
        self._generator_ref: weakref.ref[Any] | None = None

    @property
    def is_waiting(self) -> bool:
        return not self._has_ended

    def answer(self, value: Any) -> None:
        if self._has_ended:
            return
        if _is_stop(value):
            self.end()
        elif isinstance(value, Exception):
            self.fail(value)
        else:
            self._answers.append(value)
            self._wake()

    def end(self) -> None:
        # The call is complete, so the batch need not know when its caller leaves.
        self.holder = None
        self._has_ended = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        if self._has_ended:
            return
        self._error, self._traceback = error, error.__traceback__
        self.end()

    def leave(self) -> None:
        self._has_ended = True
        super().leave()

    def answers(self) -> AsyncGenerator[Any, None]:
        """Return an asynchronous iterator over the results. Dropping it leaves the batch."""
        generator = self._iterate()
        # A generator that was never started does not run its `finally` block, so a weak reference reports its end.
        self._generator_ref = weakref.ref(generator, self._handle_dropped)
        return generator

    async def _iterate(self) -> AsyncGenerator[Any, None]:
        try:
            while True:
                while self._answers:
                    yield self._answers.popleft()
                if self._has_ended:
                    break
                self._waiter = self._loop.create_future()
                await self._waiter
            if self._error is not None:
                # All callers of a batch share the error, and each raise would add its frames to the shared traceback.
                raise self._error.with_traceback(self._traceback)
        finally:
            self.leave()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _handle_dropped(self, _: object) -> None:
        # The garbage collector calls this from any thread, possibly after the loop was closed.
        if self.holder is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.leave)


def _is_stop(value: Any) -> bool:
    return (
        value is StopIteration
        or value is StopAsyncIteration
        or isinstance(value, StopIteration | StopAsyncIteration)
    )


class Parameters:
    """The parameters of a batched function for a call with one item.

    Args:
        function: The batched function.
        is_method: Whether its first parameter is the object that it belongs to.
    """

    def __init__(self, function: Callable[..., Any], *, is_method: bool) -> None:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self._signature = signature.replace(parameters=parameters[1:] if is_method else parameters)
        self._name = getattr(function, "__qualname__", repr(function))
        self._fewest, self._most = _positional_range(self._signature)

    def normalise(self, args: Positional, kwargs: ByName) -> tuple[Positional, ByName]:
        """Return the arguments with as many by position as possible, so that equal calls look equal.

        Raises:
            TypeError: If the function cannot be called with them.
        """
        if not kwargs and self._fewest <= len(args) <= self._most:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}") from None
        return bound.args, bound.kwargs


def stack_arguments(calls: Sequence[Call]) -> tuple[list[list[Any]], dict[str, list[Any]]]:
    """Return a list per parameter. All calls must pass the same parameters."""
    first = calls[0]
    if len(first.args) == 1 and not first.kwargs:
        return [[call.args[0] for call in calls]], {}
    columns = [list(column) for column in zip(*(call.args for call in calls), strict=True)]
    return columns, {name: [call.kwargs[name] for call in calls] for name in first.kwargs}


def first_item(call: Call) -> Any:
    """Return the item of a call whose size counts: its first argument."""
    return call.args[0] if call.args else next(iter(call.kwargs.values()), None)


def _positional_range(signature: inspect.Signature) -> tuple[int, float]:
    """Return the minimum and maximum number of positional arguments of a complete call."""
    fewest, most = 0, 0.0
    for parameter in signature.parameters.values():
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                most = float("inf")
            case inspect.Parameter.POSITIONAL_ONLY | inspect.Parameter.POSITIONAL_OR_KEYWORD:
                most += 1
                fewest += parameter.default is inspect.Parameter.empty
            case inspect.Parameter.KEYWORD_ONLY if parameter.default is inspect.Parameter.empty:
                return 0, -1  # a required keyword-only parameter: positional arguments never suffice
    return fewest, most
