"""Methods that split a dataset into several."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._arguments import POSITIVE, Range, check_type, checked, shown
from skate.data._block import values
from skate.data._compute import compute_of
from skate.data._dataset.base import PlanHolder
from skate.data._exec.exchanges import split_items
from skate.data._exec.items import Item
from skate.data._plan import nodes
from skate.data._seeds import seed_of
from skate.data.expressions import random

if TYPE_CHECKING:
    from skate.data.dataset import Dataset, MaterializedDataset
    from skate.data.iterator import DataIterator


_TEST_MARK = "__is_test"  # the column that marks rows of the test set in a stratified split


class SplitMethods(PlanHolder):
    """Methods of `Dataset` that split it."""

    @checked()
    def split(
        self, n: int, *, equal: bool = False, locality_hints: list[str] | None = None
    ) -> list[MaterializedDataset]:
        """Run the plan, and split its rows into `n` datasets.

        Args:
            n: Number of datasets.
            equal: Give each the same number of rows, and drop the remainder.
            locality_hints: Accepted without effect: on one machine all data are local.

        >>> import skate
        >>> [part.count() for part in skate.data.range(10).split(3)]
        [4, 3, 3]
        """
        if n <= 0:
            raise ValueError(f"split() into {n} parts is not possible: n must be positive.")
        if locality_hints is not None and len(locality_hints) != n:
            raise ValueError(
                f"split() got {len(locality_hints)} locality_hints for {n} parts: give each part one."
            )
        items = self._kept()
        rows = sum(item.rows for item in items)
        each, more = divmod(rows, n)
        sizes = [each + (place < more and not equal) for place in range(n)]
        return self._cut(items, [sum(sizes[: place + 1]) for place in range(n)])

    @checked()
    def split_at_indices(self, indices: Sequence[int]) -> list[MaterializedDataset]:
        """Run the plan, and split its rows at some indices.

        >>> import skate
        >>> [part.count() for part in skate.data.range(10).split_at_indices([2, 5])]
        [2, 3, 5]
        """
        if not indices:
            raise ValueError(f"indices must be at least of length 1, got {indices!r}.")
        if list(indices) != sorted(indices):
            raise ValueError(f"indices must be sorted, got {indices!r}.")
        if indices[0] < 0:
            raise ValueError(f"indices must be positive, got {indices!r}.")
        items = self._kept()
        rows = sum(item.rows for item in items)
        return self._cut(items, [*(min(index, rows) for index in indices), rows])

    @checked()
    def split_proportionately(self, proportions: Sequence[float]) -> list[MaterializedDataset]:
        """Run the plan, and split its rows by proportions; the last dataset gets the rest.

        >>> import skate
        >>> [part.count() for part in skate.data.range(10).split_proportionately([0.2, 0.5])]
        [2, 5, 3]
        """
        if not proportions:
            raise ValueError(f"proportions must be at least of length 1, got {proportions!r}.")
        if any(share <= 0 for share in proportions):
            raise ValueError(f"proportions must be bigger than 0, got {proportions!r}.")
        if sum(proportions) >= 1:
            raise ValueError(f"proportions must sum to less than 1, got {proportions!r}.")
        items = self._kept()
        rows = sum(item.rows for item in items)
        ends, passed = [], 0.0
        for share in proportions:
            passed += share
            ends.append(int(rows * passed + 1e-9))
        parts = len(proportions) + 1
        for place in range(len(ends)):  # no dataset is empty if there are enough rows
            if rows >= parts:
                ends[place] = max(ends[place], place + 1)
                ends[place] = min(ends[place], rows - (parts - 1 - place))
        return self._cut(items, [*ends, rows])

    @checked("test_size")
    def train_test_split(
        self,
        test_size: int | float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
    ) -> tuple[MaterializedDataset, MaterializedDataset]:
        """Run the plan, and split its rows into a training set and a test set.

        Args:
            test_size: Number of rows of the test set, or their proportion.
            shuffle: Shuffle the rows first.
            seed: The seed of the shuffle.
            stratify: A column whose values have the same proportions in both sets.

        >>> import skate
        >>> train, test = skate.data.range(8).train_test_split(0.25)
        >>> train.count(), test.count()
        (6, 2)
        """
        _check_test_size(test_size)
        if stratify is not None:
            if shuffle:
                raise ValueError("`shuffle` and `stratify` cannot be given together")
            return _stratified_split(self, test_size, stratify)  # type: ignore[arg-type]  # self is a Dataset
        source = self._with_node(nodes.Shuffle(self._node, seed_of(seed))) if shuffle else self
        items = source._kept()
        rows = sum(item.rows for item in items)
        if isinstance(test_size, float):
            train = rows - math.floor(rows * test_size)
        elif test_size >= rows:
            raise ValueError(
                f"If `test_size` is an integer, it must be smaller than the number of rows, {rows}; it is {test_size}"
            )
        else:
            train = rows - test_size
        first, second = self._cut(items, [train, rows])
        return first, second

    @checked(test_size=Range(0, 1, strict=True))
    def streaming_train_test_split(
        self,
        test_size: float,
        *,
        split_type: Literal["hash", "random"] = "random",
        hash_column: str | None = None,
        seed: int | None = None,
        **ray_remote_kwargs: Any,
    ) -> tuple[Dataset, Dataset]:
        """Return a training set and a test set, without running the plan.

        Each row is assigned independently while it streams, to the same set in each run. The test set therefore has
        approximately, not exactly, `test_size` of the rows.

        Args:
            test_size: The proportion of the test set.
            split_type: "random", or "hash", which keeps rows with the same value in a column together.
            hash_column: That column.
            seed: The seed of a random split.
            **ray_remote_kwargs: Options of the tasks.

        >>> import skate
        >>> train, test = skate.data.range(8).streaming_train_test_split(0.25, split_type="hash", hash_column="id")
        >>> train.count() + test.count()
        8
        """
        compute = compute_of(False, None, ray_remote_kwargs.pop("concurrency", None), ray_remote_kwargs)
        if split_type == "hash":
            if hash_column is None:
                raise ValueError("hash_column is required for hash split")
            if seed is not None:
                raise ValueError(
                    "seed is not supported for hash split: equal values are always on the same side"
                )
            cuts = [partial(_by_hash, hash_column, test_size, side) for side in (False, True)]
            train, test = (nodes.EachBlock(self._node, "HashSplit", cut, compute=compute) for cut in cuts)
            return self._with_node(train), self._with_node(test)
        if hash_column is not None:
            raise ValueError("hash_column is not supported for random split: give split_type='hash'")
        # Both sets draw the same numbers in each run.
        drawn = random(seed=0 if seed is None else seed, reseed_after_execution=False)
        sides = (drawn >= test_size, drawn < test_size)
        kept, left_out = (self._with_node(nodes.Filter(self._node, side, compute)) for side in sides)
        return kept, left_out

    @checked(n=POSITIVE)
    def streaming_split(
        self, n: int, *, equal: bool = False, locality_hints: list[Any] | None = None
    ) -> list[DataIterator]:
        """Return `n` iterators that share the rows of the dataset while it is read.

        Pass each iterator to its own task or actor. All of them have to iterate concurrently, once for each pass over
        the data.

        Args:
            n: Number of iterators.
            equal: Give each the same number of rows, and drop the remainder. Otherwise a faster reader gets more.
            locality_hints: One node for each iterator, without effect: on one machine all data are local.

        Raises:
            ValueError: `n` is not positive, or the number of hints is not `n`.
            TypeError: `equal` is not a bool.
        """
        from skate.data._iteration.splits import streaming_split

        check_type("equal", equal, bool, "True or False")
        if locality_hints is not None and len(locality_hints) != n:
            raise ValueError(f"streaming_split({n}) needs {n} locality_hints, got {len(locality_hints)}")
        return streaming_split(self, n, equal=equal)  # type: ignore[arg-type]

    def _kept(self) -> list[Item]:
        if isinstance(self._node, nodes.Values):
            return list(self._node.items)
        return list(self._items())

    def _cut(self, items: Sequence[Item], ends: Sequence[int]) -> list[MaterializedDataset]:
        from skate.data.dataset import MaterializedDataset

        columns = [item.cut(0, 0) for item in items[:1]]
        return [
            MaterializedDataset(nodes.Values(tuple(part or columns)), self._context)
            for part in split_items(items, ends)
        ]


def _by_hash(column: str, test_size: float, test: bool, block: pa.Table, index: int) -> pa.Table:
    """Return the rows of a block that belong to one side of a split by hash."""
    if column not in block.column_names:
        raise ValueError(f"cannot split by the column {column!r}: the dataset has {block.column_names}")
    is_test = _value_hashes(block.column(column)) < np.uint64(test_size * 2**64)
    return block.filter(pa.array(is_test == test))


def _value_hashes(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """Return a hash of each value that is the same in every process and version."""
    if not pa.types.is_integer(column.type):
        return np.fromiter(map(_value_hash, values.to_list(column)), np.uint64, len(column))
    numbers: npt.NDArray[np.uint64] = pc.fill_null(column, 0).to_numpy().astype(np.uint64)
    # SplitMix64, in which every bit of a number changes all bits of its hash. Overflows wrap around.
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    if column.null_count:
        mixed[column.is_null().to_numpy()] = _value_hash(None)
    return mixed


def _value_hash(value: Any) -> int:
    return int.from_bytes(hashlib.blake2b(str(value).encode(), digest_size=8).digest(), "big")


def _check_test_size(test_size: Any) -> None:
    if isinstance(test_size, bool) or not isinstance(test_size, (int, float)):
        raise TypeError(
            f"`test_size` must be a fraction (float) or a number of rows (int), not {shown(test_size)}."
        )
    if isinstance(test_size, float) and not 0 < test_size < 1:
        raise ValueError(
            f"test_size={test_size} is not a fraction of the rows: a float must lie between 0 and 1."
        )
    if isinstance(test_size, int) and test_size <= 0:
        raise ValueError(f"test_size={test_size} is not a number of rows: an integer must be positive.")


def _stratified_split(
    dataset: Dataset, test_size: int | float, column: str
) -> tuple[MaterializedDataset, MaterializedDataset]:
    """Return a training set, and a test set of the last rows of each group."""
    share = test_size if isinstance(test_size, float) else test_size / dataset.count()
    marked = (
        dataset.groupby(column)
        .map_groups(partial(_mark_test_rows, share), batch_format="numpy")
        .materialize()
    )

    def part(is_test: bool) -> MaterializedDataset:
        return marked.filter(lambda row: row[_TEST_MARK] == is_test).drop_columns([_TEST_MARK]).materialize()

    return part(False), part(True)


def _mark_test_rows(share: float, group: dict[str, Any]) -> dict[str, Any]:
    rows = len(next(iter(group.values())))
    return {**group, _TEST_MARK: np.arange(rows) >= rows - int(rows * share)}
