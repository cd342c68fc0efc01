"""Lazy iterators in one process, whose steps run when items are requested."""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

import skate
from skate.util.iter_metrics import MetricsContext, SharedMetrics

__all__ = ["LocalIterator", "NotReady"]

T = TypeVar("T")
U = TypeVar("U")
Step = Callable[[Iterator[Any]], Iterator[Any]]


class NotReady:
    """A placeholder for an item that is not available yet: `union` then takes items from another iterator.

    Steps pass it on.
    """


class LocalIterator(Generic[T]):
    """A lazy iterator over items of one or several shards.

    It can be pickled until the first item is requested. Only one process may iterate over it.

    Args:
        base_iterator: Function that takes `timeout` and returns the items; called for the first item.
        shared_metrics: The metrics that all steps share.
        local_transforms: The steps.
        timeout: Seconds after which the base iterator yields `NotReady`; None waits.
        name: The name for `repr`.
    """

    ON_FETCH_START_HOOK_NAME = "_on_fetch_start"
    thread_local = threading.local()

    def __init__(
        self,
        base_iterator: Callable[[float | None], Iterable[T]],
        shared_metrics: SharedMetrics,
        local_transforms: list[Step] | None = None,
        timeout: float | None = None,
        name: str | None = None,
    ) -> None:
        self.base_iterator = base_iterator
        self.shared_metrics = shared_metrics
        self.local_transforms = local_transforms or []
        self.timeout = timeout
        self.name = name or "unknown"
        self.built_iterator: Iterator[T] | None = None

    @staticmethod
    def get_metrics() -> MetricsContext:
        """Return the metrics of the iterator whose function is running in this thread.

        Raises:
            ValueError: If no function of an iterator is running in this thread.
        """
        metrics = getattr(LocalIterator.thread_local, "metrics", None)
        if metrics is None:
            raise ValueError("get_metrics() must be called from a function that an iterator runs.")
        return cast("MetricsContext", metrics)

    def __iter__(self) -> Iterator[T]:
        if self.built_iterator is None:
            items: Iterator[Any] = iter(self.base_iterator(self.timeout))
            for step in self.local_transforms:
                items = step(items)
            self.built_iterator = items
        return self.built_iterator

    def __next__(self) -> T:
        return next(iter(self))

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"

    def _then(self, step: Step, name: str) -> LocalIterator[Any]:
        steps = [*self.local_transforms, step]
        return LocalIterator(self.base_iterator, self.shared_metrics, steps, name=f"{self.name}{name}")

    def _call(self, function: Callable[..., U], *args: Any) -> U:
        """Call a user-defined function with access to the metrics."""
        self.thread_local.metrics = self.shared_metrics.get()
        return function(*args)

    def transform(self, fn: Callable[[Iterable[T]], Iterable[U]]) -> LocalIterator[U]:
        """Apply a generator function to the whole iterator; it must pass on `NotReady`."""
        return self._then(lambda items: iter(fn(items)), ".transform()")

    def for_each(
        self, fn: Callable[[T], U], max_concurrency: int = 1, resources: dict[str, Any] | None = None
    ) -> LocalIterator[U]:
        """Apply a function to each item.

        Args:
            fn: The function.
            max_concurrency: Maximum number of concurrent calls. Any value but 1 runs the calls as tasks, and yields
                results in the order of completion; 0 means no limit.
            resources: Options of the tasks, like `{"num_cpus": 0.5}`.
        """
        if max_concurrency < 0:
            raise ValueError(f"max_concurrency must be 0 or more, got {max_concurrency}.")
        step = self._one_by_one(fn) if max_concurrency == 1 else _as_tasks(fn, max_concurrency, resources)
        hook = getattr(fn, self.ON_FETCH_START_HOOK_NAME, None)
        return self._then(step if hook is None else self._with_hook(step, hook), ".for_each()")

    def _one_by_one(self, fn: Callable[[T], U]) -> Step:
        def step(items: Iterator[Any]) -> Iterator[Any]:
            for item in items:
                if isinstance(item, NotReady):
                    yield item
                    continue
                result: Any = NotReady()
                while isinstance(result, NotReady):  # the function may return that it has no result yet
                    result = self._call(fn, item)
                    yield result

        return step

    def _with_hook(self, step: Step, hook: Callable[[], None]) -> Step:
        """Call a hook before each item is requested."""

        def hooked(items: Iterator[Any]) -> Iterator[Any]:
            fetched = step(items)
            self._call(hook)
            for item in fetched:
                yield item
                if not isinstance(item, NotReady):
                    self._call(hook)

        return hooked

    def filter(self, fn: Callable[[T], bool]) -> LocalIterator[T]:
        """Keep the items for which the function returns true."""

        def step(items: Iterator[Any]) -> Iterator[Any]:
            return (item for item in items if isinstance(item, NotReady) or self._call(fn, item))

        return self._then(step, ".filter()")

    def batch(self, n: int) -> LocalIterator[list[T]]:
        """Collect items into lists of `n`; the last may be shorter."""
        if n < 1:
            raise ValueError(f"n must be 1 or more, got {n}.")

        def step(items: Iterator[Any]) -> Iterator[Any]:
            batch: list[Any] = []
            for item in items:
                if isinstance(item, NotReady):
                    yield item
                    continue
                batch.append(item)
                if len(batch) == n:
                    yield batch
                    batch = []
            if batch:
                yield batch

        return self._then(step, f".batch({n})")

    def flatten(self) -> LocalIterator[Any]:
        """Yield the elements of each item, which is a list or another iterable."""

        def step(items: Iterator[Any]) -> Iterator[Any]:
            for item in items:
                if isinstance(item, NotReady):
                    yield item
                else:
                    yield from item

        return self._then(step, ".flatten()")

    def shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> LocalIterator[T]:
        """Shuffle the items within a buffer.

        Args:
            shuffle_buffer_size: Number of buffered items, from which the next one is drawn.
            seed: Seed for a reproducible order.
        """
        if shuffle_buffer_size < 1:
            raise ValueError(f"shuffle_buffer_size must be 1 or more, got {shuffle_buffer_size}.")
        chance = random.Random(seed)

        def step(items: Iterator[Any]) -> Iterator[Any]:
            buffer: list[Any] = []
            for item in items:
                if isinstance(item, NotReady):
                    yield item
                    continue
                buffer.append(item)
                if len(buffer) == shuffle_buffer_size:
                    yield buffer.pop(chance.randrange(len(buffer)))
            while buffer:
                yield buffer.pop(chance.randrange(len(buffer)))

        return self._then(step, f".shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})")

    def combine(self, fn: Callable[[T], list[U]]) -> LocalIterator[U]:
        """Apply a function to each item, and yield the elements of the lists that it returns."""
        return self.for_each(fn).flatten()._with_name(f"{self.name}.combine()")

    def zip_with_source_actor(self) -> LocalIterator[tuple[Any, T]]:
        """Yield pairs of the actor that produced an item and the item; for `gather_async`."""

        def pair(item: T) -> tuple[Any, T]:
            actor = LocalIterator.get_metrics().current_actor
            if actor is None:
                raise ValueError("zip_with_source_actor() needs an iterator from gather_async().")
            return actor, item

        return self.for_each(pair)._with_name(f"{self.name}.zip_with_source_actor()")

    def _with_name(self, name: str) -> LocalIterator[Any]:
        self.name = name
        return self

    def take(self, n: int) -> list[T]:
        """Return the next `n` items, or fewer if the iterator ends."""
        return list(itertools.islice(self, n))

    def show(self, n: int = 20) -> None:
        """Print the next `n` items."""
        for item in itertools.islice(self, n):
            print(item)  # noqa: T201 - what it is for

    def duplicate(self, n: int) -> list[LocalIterator[T]]:
        """Return `n` iterators that each yield all items; an item is buffered until all of them have yielded it."""
        if n < 2:
            raise ValueError(f"n must be 2 or more, got {n}.")
        queues: list[deque[Any]] = [deque() for _ in range(n)]

        def fetch(timeout: float | None) -> None:
            self.timeout = timeout
            item = next(self)
            for queue in queues:
                queue.append(item)

        def reader(queue: deque[Any]) -> Callable[[float | None], Iterator[T]]:
            def read(timeout: float | None) -> Iterator[T]:
                while True:
                    if not queue:
                        # Items that another copy has not yielded yet would accumulate without limit.
                        if timeout is not None and max(map(len, queues)) - len(queue) > 1:
                            yield cast("T", NotReady())
                            continue
                        try:
                            fetch(timeout)
                        except StopIteration:
                            return
                    yield queue.popleft()

            return read

        return [
            LocalIterator(reader(queue), self.shared_metrics, name=f"{self.name}.duplicate[{number}]")
            for number, queue in enumerate(queues)
        ]

    def union(
        self,
        *others: LocalIterator[T],
        deterministic: bool = False,
        round_robin_weights: list[float] | None = None,
    ) -> LocalIterator[T]:
        """Return an iterator over the items of this one and others.

        Args:
            others: The other iterators.
            deterministic: Take an item from each iterator in turn, and wait for it. Otherwise skip iterators that have
                no item yet.
            round_robin_weights: Average number of items to take from each per turn; "*" takes all available items.
        """
        for other in others:
            if not isinstance(other, LocalIterator):
                raise TypeError(f"union() takes LocalIterators, got {other!r}.")
        parts = [self, *others]
        weights: list[Any] = list(round_robin_weights or [1] * len(parts))
        if len(weights) != len(parts):
            raise ValueError(f"round_robin_weights must have {len(parts)} entries, got {len(weights)}.")
        timeout = None if deterministic else 0
        metrics = SharedMetrics(parents=[part.shared_metrics for part in parts])
        sources = [
            LocalIterator(part.base_iterator, metrics, part.local_transforms, timeout=timeout)
            for part in parts
        ]

        def build(_: float | None) -> Iterator[T]:
            active = list(zip(weights, map(iter, sources), strict=True))
            while active:
                for weight, items in list(active):
                    if not (yield from _turn(items, weight)):
                        active.remove((weight, items))

        return LocalIterator(build, metrics, name=f"LocalUnion[{', '.join(map(repr, parts))}]")


def _turn(items: Iterator[Any], weight: Any) -> Any:
    """Yield as many items as the weight allows, fewer if some are not ready; return whether there may be more."""
    count: float = float("inf") if weight == "*" else _round_randomly(weight)
    for taken, item in enumerate(items, 1):
        if isinstance(item, NotReady):
            return True
        yield item
        if taken >= count:
            return True
    return False


def _round_randomly(weight: float) -> int:
    """Round up or down at random so that the average is the weight."""
    whole = int(weight)
    return max(1, whole + (random.random() < weight - whole))


def _as_tasks(fn: Callable[..., Any], most: int, options: dict[str, Any] | None) -> Step:
    def step(items: Iterator[Any]) -> Iterator[Any]:
        remote = skate.remote(fn).options(**(options or {}))
        running: list[Any] = []
        for item in items:
            if isinstance(item, NotReady):
                yield item
                continue
            if most and len(running) >= most:
                done, running = skate.wait(running)
                yield from skate.get(done)
            running.append(remote.remote(item))
        while running:
            done, running = skate.wait(running)
            yield from skate.get(done)

    return step
