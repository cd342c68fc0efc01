"""Parallel iterators whose items are produced by actors; `skate.data` is the newer API.

>>> import skate
>>> from skate.util.iter import from_range
>>> from_range(6, num_shards=2).for_each(lambda x: x * x).gather_sync().take(6)
[0, 9, 1, 16, 4, 25]
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NoReturn, TypeVar, cast

import skate
from skate.exceptions import GetTimeoutError
from skate.util._local_iterator import LocalIterator, NotReady
from skate.util.iter_metrics import SharedMetrics

__all__ = [
    "LocalIterator",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "from_actors",
    "from_items",
    "from_iterators",
    "from_range",
]

T = TypeVar("T")
U = TypeVar("U")


def from_items(items: list[T], num_shards: int = 2, repeat: bool = False) -> ParallelIterator[T]:
    """Distribute items to shards in round-robin order.

    Args:
        items: The items.
        num_shards: Number of actors that produce them.
        repeat: Repeat the items forever.
    """
    _check_shards(num_shards)
    kind = type(items[0]).__name__ if items else "None"
    shards = [items[number::num_shards] for number in range(num_shards)]
    return from_iterators(shards, repeat, _name("from_items", f"{kind}, {len(items)}", num_shards, repeat))


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator[int]:
    """Divide the numbers from 0 to `n - 1` into one contiguous range per shard.

    Args:
        n: The end of the range.
        num_shards: Number of actors that produce the numbers.
        repeat: Repeat the numbers forever.
    """
    _check_shards(num_shards)
    size = n // num_shards
    starts = [number * size for number in range(num_shards)]
    shards = [range(start, end) for start, end in zip(starts, [*starts[1:], n], strict=True)]
    return from_iterators(shards, repeat, _name("from_range", str(n), num_shards, repeat))


def from_iterators(
    generators: Iterable[Any], repeat: bool = False, name: str | None = None
) -> ParallelIterator[Any]:
    """Create one shard per iterable, or per function that returns one.

    Args:
        generators: The iterables or functions; they are pickled.
        repeat: Repeat the items forever.
        name: The name for `repr`.
    """
    worker = skate.remote(ParallelIteratorWorker)
    actors = [worker.remote(generator, repeat) for generator in generators]
    shown = name or f"from_iterators[shards={len(actors)}{', repeat=True' if repeat else ''}]"
    return from_actors(actors, shown)


def from_actors(actors: list[Any], name: str | None = None) -> ParallelIterator[Any]:
    """Create one shard per actor, whose class is derived from `ParallelIteratorWorker`."""
    return ParallelIterator([_Shards(actors, [])], name or f"from_actors[shards={len(actors)}]", [])


def _name(function: str, what: str, num_shards: int, repeat: bool) -> str:
    return f"{function}[{what}, shards={num_shards}{', repeat=True' if repeat else ''}]"


def _check_shards(num_shards: int) -> None:
    if num_shards < 1:
        raise ValueError(f"num_shards must be 1 or more, got {num_shards}.")


class _Shards:
    """Actors, and the steps that each applies to its items."""

    def __init__(
        self, actors: list[Any], steps: list[Callable[[LocalIterator[Any]], LocalIterator[Any]]]
    ) -> None:
        self.actors = actors
        self.transforms = steps

    def start(self) -> list[Any]:
        """Start iteration in the actors and return them."""
        skate.get([actor.par_iter_init.remote(self.transforms) for actor in self.actors])
        return self.actors


class ParallelIterator(Generic[T]):
    """An iterator whose items are produced and transformed by actors, one per shard.

    `gather_sync` and `gather_async` fetch the items.

    Args:
        actor_sets: The shards; several sets after `union`.
        name: The name for `repr`.
        parent_iterators: Iterators whose actors must live as long as this one.
    """

    def __init__(
        self, actor_sets: list[_Shards], name: str, parent_iterators: list[ParallelIterator[Any]]
    ) -> None:
        self.actor_sets = actor_sets
        self.name = name
        self.parent_iterators = parent_iterators

    def __iter__(self) -> NoReturn:
        raise TypeError("A ParallelIterator is not iterable: use gather_sync() or gather_async().")

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}]"

    def _then(
        self, step: Callable[[LocalIterator[Any]], LocalIterator[Any]], name: str
    ) -> ParallelIterator[Any]:
        sets = [_Shards(shards.actors, [*shards.transforms, step]) for shards in self.actor_sets]
        return ParallelIterator(sets, f"{self.name}{name}", self.parent_iterators)

    def transform(self, fn: Callable[[Iterable[T]], Iterable[U]]) -> ParallelIterator[U]:
        """Apply a generator function to each shard."""
        return self._then(lambda items: items.transform(fn), ".transform()")

    def for_each(
        self, fn: Callable[[T], U], max_concurrency: int = 1, resources: dict[str, Any] | None = None
    ) -> ParallelIterator[U]:
        """Apply a function to each item: see `LocalIterator.for_each`."""
        if max_concurrency < 0:
            raise ValueError(f"max_concurrency must be 0 or more, got {max_concurrency}.")
        return self._then(lambda items: items.for_each(fn, max_concurrency, resources), ".for_each()")

    def filter(self, fn: Callable[[T], bool]) -> ParallelIterator[T]:
        """Keep the items for which the function returns true."""
        return self._then(lambda items: items.filter(fn), ".filter()")

    def batch(self, n: int) -> ParallelIterator[list[T]]:
        """Collect the items of each shard into lists of `n`."""
        if n < 1:
            raise ValueError(f"n must be 1 or more, got {n}.")
        return self._then(lambda items: items.batch(n), f".batch({n})")

    def flatten(self) -> ParallelIterator[Any]:
        """Yield the elements of each item."""
        return self._then(lambda items: items.flatten(), ".flatten()")

    def combine(self, fn: Callable[[T], list[U]]) -> ParallelIterator[U]:
        """Apply a function to each item, and yield the elements of the lists that it returns."""
        return self._then(lambda items: items.combine(fn), ".combine()")

    def local_shuffle(self, shuffle_buffer_size: int, seed: int | None = None) -> ParallelIterator[T]:
        """Shuffle each shard within a buffer."""
        if shuffle_buffer_size < 1:
            raise ValueError(f"shuffle_buffer_size must be 1 or more, got {shuffle_buffer_size}.")
        return self._then(
            lambda items: items.shuffle(shuffle_buffer_size, seed),
            f".local_shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})",
        )

    def repartition(self, num_partitions: int, batch_ms: int = 0) -> ParallelIterator[T]:
        """Distribute the items to another number of shards in round-robin order.

        Args:
            num_partitions: The number of shards.
            batch_ms: Milliseconds for which each shard collects items before it returns them.
        """
        _check_shards(num_partitions)
        actors = [actor for shards in self.actor_sets for actor in shards.start()]

        def partition(index: int) -> Callable[[], Iterator[Any]]:
            def ask(actor: Any) -> Any:
                return actor.par_iter_slice_batch.remote(num_partitions, index, batch_ms)

            return lambda: _iterate_available(actors, ask, 1, None, lambda _: None)

        name = f"{self.name}.repartition[num_partitions={num_partitions}]"
        made = from_iterators([partition(index) for index in range(num_partitions)], name=name)
        made.parent_iterators = [self]
        return made

    def gather_sync(self) -> LocalIterator[T]:
        """Return the items one by one, from each shard in turn."""
        return self.batch_across_shards().flatten()._with_name(f"{self}.gather_sync()")

    def batch_across_shards(self) -> LocalIterator[list[T]]:
        """Return lists with one item per shard; shorter ones when shards have ended."""

        def rounds(timeout: float | None) -> Iterator[Any]:
            active = [actor for shards in self.actor_sets for actor in shards.start()]
            while active:
                asked = [actor.par_iter_next_batch.remote(0) for actor in active]
                while len(skate.wait(asked, num_returns=len(asked), timeout=timeout)[0]) < len(asked):
                    yield NotReady()
                answers = skate.get(asked)
                active = [actor for actor, items in zip(active, answers, strict=True) if items is not None]
                items = [item for answer in answers if answer is not None for item in answer]
                if items:
                    yield items

        return LocalIterator(rounds, SharedMetrics(), name=f"{self}.batch_across_shards()")

    def gather_async(self, batch_ms: int = 0, num_async: int = 1) -> LocalIterator[T]:
        """Return the items in the order in which they become available.

        Args:
            batch_ms: Milliseconds for which each shard collects items before it returns them.
            num_async: Maximum number of pending requests per shard.
        """
        _check_fetching(batch_ms, num_async)
        metrics = SharedMetrics()

        def note(actor: Any) -> None:
            metrics.get().current_actor = actor

        def items(timeout: float | None) -> Iterator[Any]:
            actors = [actor for shards in self.actor_sets for actor in shards.start()]
            return _iterate_available(
                actors, lambda actor: actor.par_iter_next_batch.remote(batch_ms), num_async, timeout, note
            )

        return LocalIterator(items, metrics, name=f"{self}.gather_async()")

    def take(self, n: int) -> list[T]:
        """Return the first `n` items, or fewer if the iterator ends."""
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        """Print the first `n` items."""
        self.gather_sync().show(n)

    def union(self, other: ParallelIterator[T]) -> ParallelIterator[T]:
        """Return an iterator over the shards of this one and another."""
        if not isinstance(other, ParallelIterator):
            raise TypeError(f"union() takes a ParallelIterator, got {other!r}.")
        return ParallelIterator(
            [*self.actor_sets, *other.actor_sets],
            f"ParallelUnion[{self}, {other}]",
            [*self.parent_iterators, *other.parent_iterators],
        )

    def select_shards(self, shards_to_keep: list[int]) -> ParallelIterator[T]:
        """Return an iterator over some of the shards. Each shard may be in one iterator only."""
        if len(self.actor_sets) > 1:
            raise ValueError("select_shards() must be called before union().")
        (shards,) = self.actor_sets
        unknown = [index for index in shards_to_keep if not 0 <= index < len(shards.actors)]
        if unknown or not shards_to_keep:
            raise ValueError(
                f"select_shards() takes one or more of the shards 0 to {len(shards.actors) - 1}, "
                f"got {shards_to_keep}."
            )
        kept = _Shards([shards.actors[index] for index in shards_to_keep], shards.transforms)
        name = f"{self}.select_shards({len(shards_to_keep)} total)"
        return ParallelIterator([kept], name, self.parent_iterators)

    def num_shards(self) -> int:
        """Return the number of shards."""
        return sum(len(shards.actors) for shards in self.actor_sets)

    def shards(self) -> list[LocalIterator[T]]:
        """Return an iterator over each shard."""
        return [self.get_shard(index) for index in range(self.num_shards())]

    def get_shard(self, shard_index: int, batch_ms: int = 0, num_async: int = 1) -> LocalIterator[T]:
        """Return an iterator over one shard, which can be passed to a task or an actor.

        Args:
            shard_index: The shard.
            batch_ms: Milliseconds for which the shard collects items before it returns them.
            num_async: Maximum number of pending requests.
        """
        _check_fetching(batch_ms, num_async)
        every = [(actor, shards.transforms) for shards in self.actor_sets for actor in shards.actors]
        if not 0 <= shard_index < len(every):
            raise ValueError(f"Shard {shard_index} does not exist: the shards are 0 to {len(every) - 1}.")
        actor, steps = every[shard_index]

        def items(timeout: float | None) -> Iterator[Any]:
            skate.get(actor.par_iter_init.remote(steps))
            asked = deque(actor.par_iter_next_batch.remote(batch_ms) for _ in range(num_async))
            while True:
                try:
                    batch = skate.get(asked[0], timeout=timeout)
                except GetTimeoutError:
                    yield NotReady()
                    continue
                if batch is None:
                    return
                asked.popleft()
                asked.append(actor.par_iter_next_batch.remote(batch_ms))
                yield from batch

        return LocalIterator(items, SharedMetrics(), name=f"{self.name}.shard[{shard_index}]")


def _check_fetching(batch_ms: int, num_async: int) -> None:
    if num_async < 1:
        raise ValueError(f"num_async must be 1 or more, got {num_async}.")
    if batch_ms < 0:
        raise ValueError(f"batch_ms must be 0 or more, got {batch_ms}.")


def _iterate_available(
    actors: list[Any],
    ask: Callable[[Any], Any],
    num_async: int,
    timeout: float | None,
    note: Callable[[Any], None],
) -> Iterator[Any]:
    """Yield the items of all actors as they become available; with a timeout, `NotReady` after each wait."""
    asked = {ask(actor): actor for _ in range(num_async) for actor in actors}
    while asked:
        pending = list(asked)
        ready, _ = skate.wait(pending, num_returns=len(pending), timeout=timeout or 0)
        if not ready and timeout is None:
            ready, _ = skate.wait(pending)
        for reference in ready:
            actor = asked.pop(reference)
            batch = skate.get(reference)
            if batch is None:
                continue
            asked[ask(actor)] = actor
            note(actor)
            yield from batch
        if timeout is not None:
            yield NotReady()


class ParallelIteratorWorker:
    """The actor of a shard. Derive from it to create actors for `from_actors`.

    Args:
        item_generator: An iterable, or a function that returns one.
        repeat: Repeat the items forever.
    """

    def __init__(self, item_generator: Any, repeat: bool) -> None:
        self.item_generator = _cycle(item_generator) if repeat else _iterator(item_generator)
        self._items: Iterator[Any] | None = None
        self._slices: defaultdict[int, deque[Any]] = defaultdict(deque)

    def par_iter_init(self, transforms: list[Callable[[LocalIterator[Any]], LocalIterator[Any]]]) -> None:
        """Start the iteration, with these steps."""
        items: LocalIterator[Any] = LocalIterator(lambda _: self.item_generator, SharedMetrics())
        for step in transforms:
            items = step(items)
        self._items = iter(items)

    def par_iter_next(self) -> Any:
        """Return the next item; raise StopIteration at the end."""
        return self._next()

    def par_iter_next_batch(self, batch_ms: int) -> list[Any] | None:
        """Return the next item, or those that are available within `batch_ms`; None at the end."""
        return self._collect(self._next, batch_ms)

    def par_iter_slice_batch(self, step: int, start: int, batch_ms: int) -> list[Any] | None:
        """Return the next of every `step`-th item starting at `start`, as `par_iter_next_batch` does."""
        return self._collect(lambda: self._next_of_slice(step, start), batch_ms)

    def _next(self) -> Any:
        if self._items is None:
            raise RuntimeError("par_iter_init() must be called first.")
        return next(self._items)

    def _next_of_slice(self, step: int, start: int) -> Any:
        slices = self._slices
        if not slices[start]:
            for index in range(step):
                try:
                    slices[index].append(self._next())
                except StopIteration:
                    break
        if not slices[start]:
            raise StopIteration
        return slices[start].popleft()

    @staticmethod
    def _collect(fetch: Callable[[], Any], batch_ms: int) -> list[Any] | None:
        batch = []
        end = time.monotonic() + batch_ms / 1000
        try:
            batch.append(fetch())
            while time.monotonic() < end:
                batch.append(fetch())
        except StopIteration:
            return batch or None
        return batch


def _iterator(source: Any) -> Iterator[Any]:
    return iter(source() if callable(source) else cast("Iterable[Any]", source))


def _cycle(source: Any) -> Iterator[Any]:
    if not callable(source) and isinstance(source, Iterator):
        raise ValueError(
            f"{source!r} can be iterated over only once: pass a list, or a function that returns it."
        )
    while True:
        yield from _iterator(source)
