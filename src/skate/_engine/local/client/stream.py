"""The reader's side of a generator: items in order, as they arrive."""

from __future__ import annotations

from typing import Any

from skate._base import ids
from skate._base.generator import ObjectRefGenerator
from skate._base.object_ref import ERROR, INLINE, ObjectRef
from skate._base.serialization import dumps
from skate._engine.local.client.client import Client
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.interrupts import critical


class TaskStream:
    """The items of a generator task or of an actor's generator method.

    The node knows the items of tasks and large items of actors. Small items of actors arrive over the direct
    connection, and only this process knows them.
    """

    def __init__(self, client: Client, task: bytes, window: int, report: Any) -> None:
        self._client = client
        self.task = task
        self._window = window  # backpressure: how many items the generator may be ahead
        self._limited = False  # whether an actor's generator needs reports of consumed items
        self._report = report  # sends the reader's progress to the generator
        self._items: dict[int, ObjectRef[Any]] = {}
        self._taken = 0
        self._arrived = 0  # only the reading thread counts
        self.ending: m.Reply | None = (
            None  # of an actor's generator: the final reply, which has overtaken items
        )
        self._total: int | None = None
        self._waiting: list[Any] = []
        self._completed: ObjectRef[Any] | None = None
        self._last_error: ObjectRef[Any] | None = None
        self._closed = False
        client.references.streams[task] = self

    # ------------------------------------------------------------ arriving, in the reading thread

    def arrived(self, message: m.Ready) -> None:
        """Handle an item that the node knows, or the end."""
        index = ids.index_of(message.id)
        if index == 0:
            self.ended(message.total)
            return
        if index in self._items or index <= self._taken:
            return
        reference = self._client.references.new_reference(message.id)
        self._client.references.settle(reference, message.state, message.data)
        self.add(index, reference)

    def item(self, index: int, result: m.Result, *, limited: bool = False) -> None:
        """Handle an item of an actor's generator, which may need to know when it is taken."""
        self._limited = self._limited or limited
        if index in self._items or index <= self._taken:
            return
        id = ids.object_id(self.task, index)
        known = result.state not in (INLINE, ERROR) or bool(result.contains)
        reference = (
            self._client.references.new_reference(id) if known else self._client.references.own_reference(id)
        )
        self._client.references.settle(reference, result.state, result.data)
        self.add(index, reference)

    def add(self, index: int, reference: ObjectRef[Any]) -> None:
        """Store an item until it is taken."""
        self._arrived += 1
        if self._closed:
            return
        if reference._state == ERROR:
            self._last_error = reference
        self._items[index] = reference
        self._wake()

    def lacks(self, count: int) -> bool:
        """Return whether some of the first `count` items have not arrived."""
        return self._arrived < count and not self._closed

    def ended(self, total: int) -> None:
        """Handle the end of the generator."""
        self._total = total
        self._client.references.streams.pop(self.task, None)
        if self._completed is not None:
            self._finish()
        self._wake()

    def failed(self, error: bytes) -> None:
        """End the generator with an error in place of its first item that has not arrived."""
        if self._total is not None:
            return
        index = 1
        while index <= self._taken or index in self._items:
            index += 1
        # Items that came directly may have overtaken one that was to come by way of the node, and now never will.
        for later in [other for other in self._items if other > index]:
            del self._items[later]
        reference = self._client.references.own_reference(ids.object_id(self.task, index))
        self._client.references.settle(reference, ERROR, error)
        self.add(index, reference)
        self.ended(index)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    # ------------------------------------------------------------ taking

    @property
    def taken(self) -> int:
        """The number of items that the reader has taken."""
        return self._taken

    def ready(self) -> bool:
        """Return whether the next item, or the end, has arrived."""
        return self._taken + 1 in self._items or self.finished()

    def is_awaited(self) -> bool:
        """Return whether a coroutine waits for the next item."""
        return bool(self._waiting)

    def finished(self) -> bool:
        """Return whether every item has been taken."""
        return self._total is not None and self._taken >= self._total

    def _take(self) -> ObjectRef[Any]:
        self._taken += 1
        reference = self._items.pop(self._taken)
        if self._limited or (self._window and self._total is None):
            self._report(m.Consumed(self.task, self._taken))
        return reference

    def next(self, timeout: float | None) -> ObjectRef[Any] | None:
        """Return the next item, or None after the timeout; raise StopIteration at the end."""
        client = self._client
        if not self.ready():
            client.block([], lambda: self.ready() or bool(client.channel.closed), timeout)
            if not self.ready():
                if client.channel.closed:
                    raise client.channel.closed_error()
                return None
        if self.finished():
            raise StopIteration
        return self._take()

    async def next_async(self) -> ObjectRef[Any]:
        """Return the next item; raise StopAsyncIteration at the end."""
        import asyncio

        loop = asyncio.get_running_loop()
        while not self.ready():
            future: asyncio.Future[None] = loop.create_future()

            def wake(future: asyncio.Future[None] = future) -> None:
                if not future.done():
                    future.set_result(None)

            self._waiting.append(lambda wake=wake: self._client.call_in_loop(loop, wake))
            if self.ready():
                break
            await future
        if self.finished():
            raise StopAsyncIteration
        return self._take()

    def completed(self) -> ObjectRef[Any]:
        """Return a reference that is ready when the generator has ended."""
        if self._completed is None:
            self._completed = self._client.references.own_reference(ids.object_id(self.task, 0))
            if self._total is not None:
                self._finish()
        return self._completed

    def _finish(self) -> None:
        assert self._completed is not None
        if self._last_error is not None:
            self._client.references.settle(self._completed, ERROR, self._last_error._data)
        else:
            self._client.references.settle(self._completed, INLINE, dumps(None))

    def close(self) -> None:
        """Drop the items that were not taken. The garbage collector calls this at any point."""
        if self._closed:
            return
        self._closed = True
        self._items.clear()
        if (self._total is None or self._limited) and not self._client.channel.closed:
            self._report(m.Consumed(self.task, self._taken, closed=True))


critical(ObjectRefGenerator.__del__)
