"""Streaming splits: an actor runs the plan of a dataset and divides its blocks between several processes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import skate
from skate.data._block import tables
from skate.data._exec.items import Item
from skate.data._exec.worker import with_preloading
from skate.data._iteration.position import PositionTracker, StartPosition
from skate.data._iteration.sharding import StripedSharder, remaining, stripe_for
from skate.data._schema import Schema
from skate.data.context import DataContext
from skate.data.iterator import DataIterator

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

_MAX_QUEUED = 16  # items that wait for one reader while another one reads
_MAX_SLICES = 256  # slices of one block for one reader; more are copied


def streaming_split(dataset: Dataset, n: int, *, equal: bool) -> list[DataIterator]:
    """Return iterators over shards of a dataset, which one actor serves."""
    options = with_preloading({"max_concurrency": 2 * n + 2, "num_cpus": 0})
    coordinator = skate.remote(SplitCoordinator).options(**options).remote(dataset, n, equal)
    return [SplitIterator(coordinator, rank, n, equal, dataset.context, str(dataset)) for rank in range(n)]


class SplitCoordinator:
    """The actor that runs the plan once per pass, and divides its items between the readers.

    Args:
        dataset: The dataset.
        n: Number of readers.
        equal: Give each reader the same number of rows.
    """

    def __init__(self, dataset: Dataset, n: int, equal: bool) -> None:
        self._dataset = dataset
        self._n = n
        self._equal = equal
        self._changed = threading.Condition()
        self._start: StartPosition | None = None
        self._epoch = -1
        self._arrived: set[int] = set()
        self._items: Iterator[Item] | None = None
        self._sharder: StripedSharder[Item] | None = None
        self._waiting: list[deque[list[Item]]] = [deque() for _ in range(n)]
        self._left: set[int] = set()  # readers that have finished or stopped the pass
        self._pulling = False
        self._ended = False
        self._error: BaseException | None = None

    def start_at(self, start: StartPosition) -> None:
        """Start with the pass of a position, and skip its used rows."""
        self._start, self._epoch = start, start.number - 1

    def begin(self, rank: int) -> int:
        """Wait for all readers, begin a pass, and return its number."""
        with self._changed:
            epoch = self._epoch
            self._arrived.add(rank)
            if len(self._arrived) == self._n:
                self._begin_pass()
            while self._epoch == epoch:
                self._changed.wait()
            return self._epoch

    def _begin_pass(self) -> None:
        self._arrived.clear()
        self._epoch += 1
        self._items = self._items_of(self._epoch)
        self._sharder = None
        self._waiting = [deque() for _ in range(self._n)]
        self._left = set()
        self._ended = False
        self._error = None
        self._changed.notify_all()

    def _items_of(self, epoch: int) -> Iterator[Item]:
        if self._start is None:
            return self._dataset._items()
        items = iter(self._dataset._run_numbered(epoch, self._start.seed))
        for used in self._start.used_of(epoch):
            items = remaining(items, used)
        return items

    def next(self, rank: int, epoch: int) -> SplitRows | None:
        """Return the next rows of a reader; None at the end of the pass."""
        while True:
            with self._changed:
                if epoch != self._epoch:
                    raise RuntimeError(f"pass {epoch} over the dataset has ended: another one has begun")
                if self._error is not None:
                    raise self._error
                if self._waiting[rank]:
                    items = self._waiting[rank].popleft()
                    self._changed.notify_all()
                    return SplitRows.of(items, self._sharder.stripe if self._sharder is not None else 1)
                if self._ended:
                    self._left.add(rank)
                    return None
                if self._pulling or self._is_far_ahead():
                    self._changed.wait()
                    continue
                self._pulling = True
            self._pull(rank)

    def _is_far_ahead(self) -> bool:
        """Return whether an active reader has the maximum number of queued items."""
        return any(
            len(each) >= _MAX_QUEUED for rank, each in enumerate(self._waiting) if rank not in self._left
        )

    def _pull(self, rank: int) -> None:
        """Take the next item of the plan, and queue it for its readers."""
        assert self._items is not None
        item, error = None, None
        try:
            item = next(self._items, None)
        except BaseException as raised:  # every reader raises it
            error = raised
        with self._changed:
            self._pulling = False
            self._error = error
            if self._equal:
                self._divide(item)
            elif item is not None:
                self._waiting[rank].append([item])
            self._ended = item is None
            self._changed.notify_all()

    def _divide(self, item: Item | None) -> None:
        """Divide an item, or at the end the rest, between the readers."""
        if self._sharder is None and item is not None and item.rows:
            self._sharder = StripedSharder(self._n, stripe_for(item.rows, self._n))
        if self._sharder is None:
            return
        parts: list[list[Item]] = [[] for _ in range(self._n)]
        for reader, cut in self._sharder.end() if item is None else self._sharder.take(item):
            parts[reader].append(cut)
        for rank, part in enumerate(parts):
            if part and rank not in self._left:
                self._waiting[rank].append(part)

    def stop_pass(self, rank: int, epoch: int) -> None:
        """Handle a reader that ends this pass early."""
        with self._changed:
            if epoch == self._epoch:
                self._left.add(rank)
                self._waiting[rank].clear()
                self._changed.notify_all()

    def schema(self) -> Any:
        """Return the schema of the dataset."""
        return self._dataset.schema()

    def stats(self) -> str:
        """Return the statistics of the latest pass as text."""
        return self._dataset.stats()


@dataclass(frozen=True, slots=True)
class SplitRows:
    """The next rows of one reader.

    Attributes:
        parts: Pairs of a block and its row ranges, each a start and a number of rows.
        stripe: Number of rows of a stripe.
    """

    parts: list[tuple[Any, list[tuple[int, int]]]]
    stripe: int

    @classmethod
    def of(cls, items: list[Item], stripe: int) -> SplitRows:
        """Return the rows of items, with adjacent items of one block combined."""
        groups = groupby(items, key=lambda item: id(item.block))
        runs = [list(run) for _, run in groups]
        return cls([(run[0].block, [(item.start, item.rows) for item in run]) for run in runs], stripe)


class SplitIterator(DataIterator):
    """One reader of a dataset that several processes share."""

    def __init__(
        self, coordinator: Any, rank: int, n: int, equal: bool, context: DataContext, shown: str
    ) -> None:
        self._coordinator = coordinator
        self._rank = rank
        self._n = n
        self._context = context
        self._shown = shown
        self._resumable = "together" if equal else None

    def _blocks(self) -> Iterator[pa.Table]:
        epoch = skate.get(self._coordinator.begin.remote(self._rank))
        following = self._coordinator.next.remote(self._rank, epoch)
        finished = False
        try:
            while True:
                share = skate.get(following)
                if share is None:
                    finished = True
                    return
                # Request the next rows while these are used.
                following = self._coordinator.next.remote(self._rank, epoch)
                if self._tracker is not None:
                    self._tracker.stripe = share.stripe
                for block, spans in share.parts:
                    yield _rows_of(block, spans)
        finally:
            if not finished:
                self._coordinator.stop_pass.remote(self._rank, epoch)

    def _start_at(self, start: StartPosition) -> None:
        if self._rank == 0:  # all readers share the coordinator
            skate.get(self._coordinator.start_at.remote(start))
        self._tracker = PositionTracker(start)

    def schema(self) -> Schema | None:
        """Return the schema of the dataset."""
        found: Schema | None = skate.get(self._coordinator.schema.remote())
        return found

    def stats(self) -> str:
        """Return the statistics of the latest pass as text."""
        text: str = skate.get(self._coordinator.stats.remote())
        return text

    def get_context(self) -> DataContext:
        """Return the settings of the dataset."""
        return self._context

    def world_size(self) -> int:
        """Return the number of readers."""
        return self._n

    def __repr__(self) -> str:
        return f"StreamSplitDataIterator({self._shown})"


def _rows_of(block: Any, spans: list[tuple[int, int]]) -> pa.Table:
    """Return row ranges of a block, as slices or, if they are many, as a copy."""
    table = block if isinstance(block, pa.Table) else skate.get(block)
    if len(spans) > _MAX_SLICES:
        return tables.take(table, np.concatenate([np.arange(start, start + rows) for start, rows in spans]))
    return tables.concat([tables.slice_rows(table, start, start + rows) for start, rows in spans])
