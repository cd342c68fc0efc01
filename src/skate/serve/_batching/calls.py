"""One caller's part of a batch: what it handed in, and how it gets its answer."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from skate.serve._batching.arguments import ByName, Positional


class Holder(Protocol):
    """Where a call is, from the moment it is handed in: a batch that forms, or one that runs."""

    def leave(self, call: Call) -> None:
        """Let go of a call whose caller no longer waits."""


class Call:
    """A call with arguments, which one batch will answer. What is here is the same for both kinds of answers."""

    __slots__ = ("args", "holder", "kwargs", "request")

    def __init__(self, args: Positional, kwargs: ByName, request: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.request = request
        self.holder: Holder | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether somebody still wants what the batch has to say."""
        raise NotImplementedError

    def answer(self, value: Any) -> None:
        """Hand over a result: the only one, or the next."""
        raise NotImplementedError

    def end(self) -> None:
        """Say that no result follows."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Raise an error where the caller waits."""
        raise NotImplementedError

    def leave(self) -> None:
        """Go without an answer, or with all of them."""
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.leave(self)


class SingleCall(Call):
    """A call that gets one answer: its caller waits for `future`."""

    __slots__ = ("future",)

    def __init__(
        self, args: Positional, kwargs: ByName, request: Any, loop: asyncio.AbstractEventLoop
    ) -> None:
        # Without a call of the base: this is where most of the time goes that a call costs.
        self.args = args
        self.kwargs = kwargs
        self.request = request
        self.holder = None
        self.future: asyncio.Future[Any] = loop.create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.future.done()

    def answer(self, value: Any) -> None:
        self.holder = None  # and with it a cycle
        if isinstance(value, Exception):
            self.fail(value)
        elif not self.future.done():
            self.future.set_result(value)

    def end(self) -> None:
        """Do nothing: the one answer was the end."""

    def fail(self, error: BaseException) -> None:
        self.holder = None
        if self.future.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self.future.cancel()
        elif isinstance(error, StopIteration):
            # A future cannot carry it: at the caller's `await` it would look like a result.
            wrapped = RuntimeError(f"a batched function gave {error!r} for this call")
            wrapped.__cause__ = error
            self.future.set_exception(wrapped)
        else:
            self.future.set_exception(error)


class StreamedCall(Call):
    """A call that gets one answer after another: its caller iterates over `answers`."""

    __slots__ = ("_answers", "_error", "_has_ended", "_loop", "_traceback", "_waiter", "_watch")

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
        self._watch: weakref.ref[Any] | None = None

    @property
    def is_waiting(self) -> bool:
        return not self._has_ended

    def answer(self, value: Any) -> None:
        if self._has_ended:
            return
        if _says_stop(value):
            self.end()
        elif isinstance(value, Exception):
            self.fail(value)
        else:
            self._answers.append(value)
            self._wake()

    def end(self) -> None:
        # It has all it gets, so its going means nothing to the batch any more.
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
        """Return the answers as they come; whoever drops the generator leaves the batch."""
        generator = self._iterate()
        # One that was never started does not run its `finally`, so its end has to be seen from outside.
        self._watch = weakref.ref(generator, self._was_dropped)
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
                # The callers of a batch share the error, and each raise would add its frames to all of them.
                raise self._error.with_traceback(self._traceback)
        finally:
            self.leave()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _was_dropped(self, _: object) -> None:
        # The garbage collector calls this from any thread, possibly after the loop.
        if self.holder is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.leave)


def _says_stop(value: Any) -> bool:
    return (
        value is StopIteration
        or value is StopAsyncIteration
        or isinstance(value, StopIteration | StopAsyncIteration)
    )
