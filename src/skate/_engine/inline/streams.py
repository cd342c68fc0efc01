"""Generators that run as their items are requested.

The body continues when the reader requests the next item, so that a debugger stops in it when one expects it. It also
continues when everything else waits, because in a process of its own the generator would have run by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skate._base import ids
from skate._base.generator import ObjectRefGenerator
from skate._base.object_ref import ObjectRef
from skate._base.serialization import dumps
from skate._engine.inline.objects import Objects, Value
from skate._engine.inline.progress import Progress, deadlock_error


class Stream:
    """The items of a generator, for its reader (the engine protocol's `Stream`) and for its producer."""

    def __init__(
        self,
        objects: Objects,
        progress: Progress,
        task: bytes,
        name: str,
        window: int,
        *,
        begin_wait: Callable[[], Callable[[], None] | None],
        reasons: Callable[[], list[str]],
    ) -> None:
        self._objects = objects
        self._progress = progress
        self.task = task
        self._name = name
        self._window = window  # how many items the generator may be ahead of its reader
        self._items: dict[int, ObjectRef[Any]] = {}
        self._taken = 0
        self.made = 0
        self.wanted = 0  # number of requested items
        self._total: int | None = None
        self._waiting: list[Callable[[], None]] = []
        self._completed: ObjectRef[Any] | None = None
        self._last: Value | None = None
        self.closed = False
        self.on_wanted: Callable[[], None] | None = None  # set while the generator can run
        self.on_closed: Callable[[], None] | None = None
        self._begin_wait = begin_wait
        self._reasons = reasons  # explains what the generator waits for

    def generator(self) -> ObjectRefGenerator[Any]:
        """Return the generator object for the caller."""
        return ObjectRefGenerator(self)

    # ------------------------------------------------------------ making

    def start(self, resume: Callable[[], None]) -> None:
        """Start the generator: `resume` makes the requested items."""
        self.on_wanted = resume
        self._progress.streams[self.task] = self
        if self.wanted > self.made:
            self._progress.add(resume)
        self._progress.changed()

    def add(self, value: Value) -> None:
        """Add an item of the generator."""
        self.made += 1
        reference = self._objects.new(ids.object_id(self.task, self.made))
        self._objects.settle(reference, value)
        if not self.closed:
            self._items[self.made] = reference
        self._wake()

    def fail(self, error: Value) -> None:
        """End the generator with an error as its last item."""
        if self._total is None:
            self._last = error
            self.add(error)
            self.end()

    def end(self) -> None:
        """End the generator."""
        self._total = self.made
        self.on_wanted = self.on_closed = None
        self._progress.streams.pop(self.task, None)
        if self._completed is not None:
            self._complete()
        self._wake()

    def advance_when_idle(self) -> bool:
        """Request one more item, unless the generator is too far ahead."""
        if self.on_wanted is None or (self._window and self.made - self._taken >= self._window):
            return False
        before = self.made, self._total, self.wanted
        self._want(self.made + 1)
        return (self.made, self._total, self.wanted) != before

    def changed(self) -> None:
        """Make waiting threads check again."""
        self._progress.changed()

    def _want(self, count: int) -> None:
        if count > self.wanted:
            self.wanted = count
        if self.on_wanted is not None and self.wanted > self.made:
            self.on_wanted()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
        self._progress.changed()

    # ------------------------------------------------------------ reading

    def ready(self) -> bool:
        """Return whether the next item, or the end, is ready; make it if that is possible now."""
        if not self._there():
            self._want(self._taken + 1)
        return self._there()

    def _there(self) -> bool:
        return self._taken + 1 in self._items or self.finished()

    def finished(self) -> bool:
        """Return whether every item has been taken."""
        return self._total is not None and self._taken >= self._total

    def _take(self) -> ObjectRef[Any]:
        self._taken += 1
        return self._items.pop(self._taken)

    def next(self, timeout: float | None) -> ObjectRef[Any] | None:
        """Return the next item, or None after the timeout; raise StopIteration at the end."""
        self._objects.check_open()
        if not self.ready() and not self._progress.until(self.ready, timeout, self._deadlock_error):
            return None
        if self.finished():
            raise StopIteration
        return self._take()

    def _deadlock_error(self) -> BaseException:
        return deadlock_error(f"The next item of {self._name}", self._reasons())

    async def next_async(self) -> ObjectRef[Any]:
        """Return the next item; raise StopAsyncIteration at the end."""
        import asyncio

        self._objects.check_open()
        loop = asyncio.get_running_loop()
        while not self.ready():
            future: asyncio.Future[None] = loop.create_future()

            def wake(future: asyncio.Future[None] = future) -> None:
                if not future.done():
                    future.set_result(None)

            self._waiting.append(lambda wake=wake: self._objects.call_in_loop(loop, wake))  # type: ignore[misc]
            end_wait = self._begin_wait()
            try:
                if not self._there():
                    await future
            finally:
                if end_wait is not None:
                    end_wait()
        if self.finished():
            raise StopAsyncIteration
        return self._take()

    def completed(self) -> ObjectRef[Any]:
        """Return a reference that is ready when the generator has ended."""
        if self._completed is None:
            self._completed = self._objects.new(ids.object_id(self.task, 0))
            if self._total is not None:
                self._complete()
        return self._completed

    def _complete(self) -> None:
        assert self._completed is not None
        self._objects.settle(self._completed, self._last or Value(dumps(None)))

    def close(self) -> None:
        """Drop the items that were not taken. The garbage collector calls this at any point."""
        if self.closed:
            return
        self.closed = True
        self._items.clear()
        if self.on_closed is not None and not self._objects.closed:
            self._progress.soon(self.on_closed)
