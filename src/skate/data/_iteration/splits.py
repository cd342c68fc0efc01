"""One pass over a dataset, shared by several processes: an actor runs the plan and hands out its blocks."""

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
    from skate.data.dataset import Dataset, MaterializedDataset

_AHEAD = 16  # items that wait for one reader while another is served
_SLICES = 256  # of one block, for one reader


def streaming_split(dataset: Dataset, n: int, *, equal: bool) -> list[DataIterator]:
    """Return iterators over parts of a dataset that are served by one actor."""
    options = with_preloading({"max_concurrency": 2 * n + 2, "num_cpus": 0})
    server = skate.remote(SplitCoordinator).options(**options).remote(dataset, n, equal)
    return [SplitIterator(server, place, n, equal, dataset.context, str(dataset)) for place in range(n)]


class SplitCoordinator:
    """Runs a plan once for each pass, and hands out its items.

    Args:
        dataset: What to read.
        n: How many readers there are.
        equal: Give each the same number of rows.
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
        self._dealer: StripedSharder[Item] | None = None
        self._waiting: list[deque[list[Item]]] = [deque() for _ in range(n)]
        self._left: set[int] = set()  # readers that have come to the end, or given up
        self._pulling = False
        self._ended = False
        self._error: BaseException | None = None

    def starts_at(self, start: StartPosition) -> None:
        """Begin with that pass, and leave out what has been used of it."""
        self._start, self._epoch = start, start.number - 1

    def begin(self, place: int) -> int:
        """Wait until all readers are here, and begin a pass; return its number."""
        with self._changed:
            epoch = self._epoch
            self._arrived.add(place)
            if len(self._arrived) == self._n:
                self._begin_pass()
            while self._epoch == epoch:
                self._changed.wait()
            return self._epoch

    def _begin_pass(self) -> None:
        self._arrived.clear()
        self._epoch += 1
        self._items = self._items_of(self._epoch)
        self._dealer = None
        self._waiting = [deque() for _ in range(self._n)]
        self._left = set()
        self._ended = False
        self._error = None
        self._changed.notify_all()

    def _items_of(self, epoch: int) -> Iterator[Item]:
        if self._start is None:
            return self._dataset._items()
        items = iter(self._dataset._run_again(epoch, self._start.seed))
        for dealt in self._start.of(epoch):
            items = remaining(items, dealt)
        return items

    def next(self, place: int, epoch: int) -> SplitRows | None:
        """Return the next rows of a reader; None at the end."""
        while True:
            with self._changed:
                if epoch != self._epoch:
                    raise RuntimeError(f"pass {epoch} over the dataset is over: another has begun")
                if self._error is not None:
                    raise self._error
                if self._waiting[place]:
                    items = self._waiting[place].popleft()
                    self._changed.notify_all()
                    return SplitRows.of(items, self._dealer.stripe if self._dealer is not None else 1)
                if self._ended:
                    self._left.add(place)
                    return None
                if self._pulling or self._is_far_ahead():
                    self._changed.wait()
                    continue
                self._pulling = True
            self._pull(place)

    def _is_far_ahead(self) -> bool:
        """Return whether a reader that is still there has enough waiting for it."""
        return any(len(each) >= _AHEAD for place, each in enumerate(self._waiting) if place not in self._left)

    def _pull(self, place: int) -> None:
        """Take the next item of the plan, and give it to whom it is for."""
        assert self._items is not None
        item, error = None, None
        try:
            item = next(self._items, None)
        except BaseException as raised:  # every reader is told
            error = raised
        with self._changed:
            self._pulling = False
            self._error = error
            if self._equal:
                self._deal(item)
            elif item is not None:
                self._waiting[place].append([item])
            self._ended = item is None
            self._changed.notify_all()

    def _deal(self, item: Item | None) -> None:
        """Give everybody its part of an item; after the last one, of what is left."""
        if self._dealer is None and item is not None and item.rows:
            self._dealer = StripedSharder(self._n, stripe_for(item.rows, self._n))
        if self._dealer is None:
            return
        hands: list[list[Item]] = [[] for _ in range(self._n)]
        for reader, cut in self._dealer.end() if item is None else self._dealer.take(item):
            hands[reader].append(cut)
        for place, hand in enumerate(hands):
            if hand and place not in self._left:
                self._waiting[place].append(hand)

    def give_up(self, place: int, epoch: int) -> None:
        """A reader wants no more of this pass."""
        with self._changed:
            if epoch == self._epoch:
                self._left.add(place)
                self._waiting[place].clear()
                self._changed.notify_all()

    def schema(self) -> Any:
        """Return the columns of the dataset."""
        return self._dataset.schema()

    def stats(self) -> str:
        """Return what the latest pass has done, as text."""
        return self._dataset.stats()


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Rows for one reader.

    Attributes:
        parts: Blocks, and which rows of each: where they start, and how many.
        stripe: Rows that a reader gets at a time.
    """

    parts: list[tuple[Any, list[tuple[int, int]]]]
    stripe: int

    @classmethod
    def of(cls, items: list[Item], stripe: int) -> SplitRows:
        """Return these items, those of one block together."""
        together = groupby(items, key=lambda item: id(item.block))
        runs = [list(run) for _, run in together]
        return cls([(run[0].block, [(item.start, item.rows) for item in run]) for run in runs], stripe)


class SplitIterator(DataIterator):
    """One reader of a dataset that several processes read together."""

    def __init__(
        self, server: Any, place: int, n: int, equal: bool, context: DataContext, shown: str
    ) -> None:
        self._server = server
        self._place = place
        self._n = n
        self._context = context
        self._shown = shown
        self._goes_on = "together" if equal else None

    def _blocks(self) -> Iterator[pa.Table]:
        epoch = skate.get(self._server.begin.remote(self._place))
        following = self._server.next.remote(self._place, epoch)
        finished = False
        try:
            while True:
                share = skate.get(following)
                if share is None:
                    finished = True
                    return
                following = self._server.next.remote(self._place, epoch)  # on its way while this one is used
                if self._tracker is not None:
                    self._tracker.stripe = share.stripe
                for block, spans in share.parts:
                    yield _rows_of(block, spans)
        finally:
            if not finished:
                self._server.give_up.remote(self._place, epoch)

    def _start_at(self, start: StartPosition) -> None:
        if self._place == 0:  # the server is one for all
            skate.get(self._server.starts_at.remote(start))
        self._tracker = PositionTracker(start)

    def schema(self) -> Schema | None:
        """Return the columns of the dataset."""
        found: Schema | None = skate.get(self._server.schema.remote())
        return found

    def stats(self) -> str:
        """Return what the latest pass has done, as text."""
        text: str = skate.get(self._server.stats.remote())
        return text

    def get_context(self) -> DataContext:
        """Return the settings of the dataset."""
        return self._context

    def world_size(self) -> int:
        """Return how many readers there are."""
        return self._n

    def materialize(self) -> MaterializedDataset:
        """Return a dataset of this reader's rows, which are kept."""
        from skate.data.dataset import materialized

        return materialized(self._all_blocks(), self._context)

    def __repr__(self) -> str:
        return f"StreamSplitDataIterator({self._shown})"


def _rows_of(block: Any, spans: list[tuple[int, int]]) -> pa.Table:
    """Return those rows of a block: slices of it, unless they are so many that it is better copied."""
    table = block if isinstance(block, pa.Table) else skate.get(block)
    if len(spans) > _SLICES:
        return tables.take(table, np.concatenate([np.arange(start, start + rows) for start, rows in spans]))
    return tables.concat([tables.slice_rows(table, start, start + rows) for start, rows in spans])
