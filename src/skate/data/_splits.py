"""One pass over a dataset, shared by several processes: an actor runs the plan and hands out its blocks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import skate
from skate.data._exec.exchanges import cut_at
from skate.data._exec.items import Item, fetched
from skate.data._schema import Schema
from skate.data.context import DataContext
from skate.data.iterator import DataIterator

if TYPE_CHECKING:
    from skate.data.dataset import Dataset, MaterializedDataset

_AHEAD = 16  # items that wait for one reader while another is served


def streaming_split(dataset: Dataset, n: int, *, equal: bool) -> list[DataIterator]:
    """Return iterators over parts of a dataset that are served by one actor."""
    options = {"max_concurrency": 2 * n + 2, "num_cpus": 0}
    server = skate.remote(Server).options(**options).remote(dataset, n, equal)
    return [SplitIterator(server, place, n, dataset.context, str(dataset)) for place in range(n)]


class Server:
    """Runs a plan once for each pass, and hands out its items.

    Args:
        dataset: What to read.
        n: How many readers there are.
        equal: Give each the same number of rows.
    """

    def __init__(self, dataset: Dataset, n: int, equal: bool) -> None:
        self._dataset = dataset
        self._n = n
        self._share = _EqualShares(n) if equal else None
        self._equal = equal
        self._changed = threading.Condition()
        self._epoch = -1
        self._arrived: set[int] = set()
        self._items: Iterator[Item] | None = None
        self._waiting: list[deque[Item]] = [deque() for _ in range(n)]
        self._left: set[int] = set()  # readers that have come to the end, or given up
        self._pulling = False
        self._ended = False
        self._error: BaseException | None = None

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
        self._items = self._dataset._items()
        self._share = _EqualShares(self._n) if self._equal else None
        self._waiting = [deque() for _ in range(self._n)]
        self._left = set()
        self._ended = False
        self._error = None
        self._changed.notify_all()

    def next(self, place: int, epoch: int) -> tuple[Any, int, int] | None:
        """Return the next block of a reader, and which rows of it; None at the end."""
        while True:
            with self._changed:
                if epoch != self._epoch:
                    raise RuntimeError(f"pass {epoch} over the dataset is over: another has begun")
                if self._error is not None:
                    raise self._error
                if self._waiting[place]:
                    item = self._waiting[place].popleft()
                    self._changed.notify_all()
                    return item.block, item.start, item.rows
                if self._ended:
                    self._left.add(place)
                    return None
                if self._pulling or self._is_far_ahead():
                    self._changed.wait()
                    continue
                self._pulling = True
            self._pull(place)

    def _is_far_ahead(self) -> bool:
        """Tell whether a reader that is still there has enough waiting for it."""
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
            if item is None:
                self._ended = True
            elif self._share is not None:
                for waiting, cuts in zip(self._waiting, self._share.of(item), strict=True):
                    waiting.extend(cuts)
            else:
                self._waiting[place].append(item)
            self._changed.notify_all()

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


class _EqualShares:
    """Cuts a stream of items so that everybody has the same number of rows; what does not divide stays behind."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._rest: list[Item] = []

    def of(self, item: Item) -> Sequence[Sequence[Item]]:
        """Return everybody's share of what has come so far."""
        items = [*self._rest, item]
        each = sum(item.rows for item in items) // self._n
        shares = cut_at(items, [each * (place + 1) for place in range(self._n)] + [1 << 62])
        self._rest = shares.pop()
        return shares


class SplitIterator(DataIterator):
    """One reader of a dataset that several processes read together."""

    def __init__(self, server: Any, place: int, n: int, context: DataContext, shown: str) -> None:
        self._server = server
        self._place = place
        self._n = n
        self._context = context
        self._shown = shown

    def _blocks(self) -> Iterator[pa.Table]:
        epoch = skate.get(self._server.begin.remote(self._place))
        following = self._server.next.remote(self._place, epoch)
        finished = False
        try:
            while True:
                found = skate.get(following)
                if found is None:
                    finished = True
                    return
                following = self._server.next.remote(self._place, epoch)  # on its way while this one is used
                yield _rows_of(*found)
        finally:
            if not finished:
                self._server.give_up.remote(self._place, epoch)

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

        return materialized(self._blocks(), self._context)

    def __repr__(self) -> str:
        return f"StreamSplitDataIterator({self._shown})"


def _rows_of(block: Any, start: int, rows: int) -> pa.Table:
    table = block if isinstance(block, pa.Table) else skate.get(block)
    return fetched(Item(table, rows, 0, table.schema, start, whole=table.num_rows))
