"""A first-in, first-out queue that any number of tasks, actors and drivers share."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from typing import Any

import skate

__all__ = ["Empty", "Full", "Queue"]

# Every blocked `get` or `put` occupies one of the actor's slots. There must always be one left for the
# call that unblocks them.
_MAX_BLOCKED_CALLS = 100_000


class Empty(queue.Empty):
    """Report that the queue holds fewer items than were requested."""


class Full(queue.Full):
    """Report that the queue has no room for what was put."""


class Queue:
    """Share a first-in, first-out queue between processes, with the interface of `queue.Queue`.

    The items live in an actor. Pass the queue to tasks and actors as an argument; all copies are the
    same queue.

    Args:
        maxsize: The most items the queue holds at a time; 0 or less means any number.
        actor_options: Options for the actor that holds the items, as in `Actor.options(...)`.

    Raises:
        TypeError: If `maxsize` is not an int.

    Example:
        >>> q = Queue(maxsize=100)
        >>> q.put("first")
        >>> q.put("second")
        >>> q.get(), q.qsize()
        ('first', 1)
        >>> q.shutdown()
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        if not isinstance(maxsize, int):
            raise TypeError(f"Queue maxsize must be an int, got {maxsize!r}")
        if not isinstance(actor_options, dict | None):
            raise TypeError(
                f"actor_options must be a dictionary such as {{'num_cpus': 1}}, got {actor_options!r} "
                f"({type(actor_options).__name__})"
            )
        self.maxsize = maxsize
        self.actor: Any = _RemoteQueueActor.options(**(actor_options or {})).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """Return the number of items in the queue."""
        return int(skate.get(self._live_actor().qsize.remote()))

    def qsize(self) -> int:
        """Return the number of items in the queue."""
        return self.size()

    def empty(self) -> bool:
        """Return whether the queue holds no item."""
        return bool(skate.get(self._live_actor().empty.remote()))

    def full(self) -> bool:
        """Return whether the queue has no room for another item."""
        return bool(skate.get(self._live_actor().full.remote()))

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item at the end.

        An object reference is put as the value it refers to.

        Args:
            item: What to add.
            block: Wait for room if the queue is full.
            timeout: How many seconds to wait for room; None waits as long as it takes.

        Raises:
            Full: If there is no room, or none in time.
            ValueError: If `timeout` is negative, or the queue is shut down.
        """
        if not block:
            self._wait_for(self._live_actor().put_nowait.remote(item))
        else:
            self._wait_for(self._live_actor().put.remote(item, _checked_timeout(timeout)))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item at the end without blocking the event loop; otherwise like `put`."""
        if not block:
            await self._await(self._live_actor().put_nowait.remote(item))
        else:
            await self._await(self._live_actor().put.remote(item, _checked_timeout(timeout)))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove the item at the front and return it.

        Args:
            block: Wait for an item if there is none.
            timeout: How many seconds to wait for one; None waits as long as it takes.

        Raises:
            Empty: If there is no item, or none in time.
            ValueError: If `timeout` is negative, or the queue is shut down.
        """
        if not block:
            return self._wait_for(self._live_actor().get_nowait.remote())
        return self._wait_for(self._live_actor().get.remote(_checked_timeout(timeout)))

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove the item at the front without blocking the event loop; otherwise like `get`."""
        if not block:
            return await self._await(self._live_actor().get_nowait.remote())
        return await self._await(self._live_actor().get.remote(_checked_timeout(timeout)))

    def put_nowait(self, item: Any) -> None:
        """Add an item at the end, or raise `Full` at once."""
        self.put(item, block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Add all items at the end, or none of them.

        Args:
            items: What to add, in this order. References among them stay references.

        Raises:
            Full: If there is no room for all of them.
            TypeError: If `items` is not iterable.
        """
        if not isinstance(items, Iterable):
            raise TypeError(f"Argument 'items' must be an Iterable, got {items!r}")
        self._wait_for(self._live_actor().put_nowait_batch.remote(list(items)))

    def get_nowait(self) -> Any:
        """Remove the item at the front and return it, or raise `Empty` at once."""
        return self.get(block=False)

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Remove this many items from the front and return them.

        Args:
            num_items: How many items.

        Raises:
            Empty: If there are fewer; then none is removed.
            TypeError: If `num_items` is not an int.
            ValueError: If `num_items` is negative.
        """
        if not isinstance(num_items, int):
            raise TypeError(f"Argument 'num_items' must be an int, got {num_items!r}")
        if num_items < 0:
            raise ValueError(f"'num_items' must be nonnegative, got {num_items}")
        items: list[Any] = self._wait_for(self._live_actor().get_nowait_batch.remote(num_items))
        return items

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """End the queue's actor; items still in the queue are lost.

        Calls of other processes that are blocked on the queue fail with an actor error.

        Args:
            force: End it at once instead of after the calls that it has already received.
            grace_period_s: How many seconds to wait for that before forcing it.
        """
        if self.actor is None:
            return
        actor, self.actor = self.actor, None
        if not force:
            skate.wait([actor.stop.remote()], timeout=grace_period_s)
        skate.kill(actor, no_restart=True)

    def _live_actor(self) -> Any:
        if self.actor is None:
            raise ValueError("this Queue is shut down: create a new one")
        return self.actor

    def _wait_for(self, ref: skate.ObjectRef[Any]) -> Any:
        try:
            return skate.get(ref)
        except (Empty, Full) as error:
            raise _plain(error) from None
        except KeyboardInterrupt:
            # Otherwise, the call would later take an item that is never read.
            skate.cancel(ref)
            raise

    async def _await(self, ref: skate.ObjectRef[Any]) -> Any:
        try:
            return await ref
        except (Empty, Full) as error:
            raise _plain(error) from None
        except asyncio.CancelledError:
            skate.cancel(ref)  # As above: `asyncio.wait_for(q.get_async(), 1)` must not cost an item.
            raise


def _checked_timeout(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if not isinstance(timeout, int | float):
        raise TypeError(f"'timeout' must be a number of seconds or None, got {timeout!r}")
    if timeout < 0:
        raise ValueError(f"'timeout' must be a non-negative number, got {timeout}")
    return timeout


def _plain(error: Empty | Full) -> Empty | Full:
    """Return the error without the traceback of the actor, which says nothing about the caller."""
    kind = Empty if isinstance(error, Empty) else Full
    return kind(*(error.args if type(error) is kind else getattr(error, "cause", error).args))


class _QueueActor:
    """Hold the items of one queue, on an event loop so that blocked calls cost nothing."""

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self.queue.qsize()

    async def empty(self) -> bool:
        return self.queue.empty()

    async def full(self) -> bool:
        return self.queue.full()

    async def put(self, item: Any, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self.queue.put(item)
        except TimeoutError:
            raise Full(f"no room in the queue of {self.maxsize} items within {timeout} s") from None

    async def get(self, timeout: float | None = None) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await self.queue.get()
        except TimeoutError:
            raise Empty(f"no item in the queue within {timeout} s") from None

    async def put_nowait(self, item: Any) -> None:
        try:
            self.queue.put_nowait(item)
        except asyncio.QueueFull:
            raise Full(f"the queue is full with {self.maxsize} items") from None

    async def put_nowait_batch(self, items: list[Any]) -> None:
        size = self.queue.qsize()
        if 0 < self.maxsize < size + len(items):
            raise Full(f"no room for {len(items)} items: the queue holds {size} of at most {self.maxsize}")
        for item in items:
            self.queue.put_nowait(item)

    async def get_nowait(self) -> Any:
        try:
            return self.queue.get_nowait()
        except asyncio.QueueEmpty:
            raise Empty("the queue is empty") from None

    async def get_nowait_batch(self, num_items: int) -> list[Any]:
        if num_items > self.queue.qsize():
            raise Empty(f"the queue holds only {self.queue.qsize()} of {num_items} items")
        return [self.queue.get_nowait() for _ in range(num_items)]

    async def stop(self) -> None:
        skate.actor.exit_actor()


# Apart from the class, which programs extend with methods of their own.
_RemoteQueueActor: Any = skate.remote(num_cpus=0, max_concurrency=_MAX_BLOCKED_CALLS)(_QueueActor)
