"""What a step does to the blocks that pass through it, one class for each kind.

A transform turns an iterator of blocks into another, lazily: a step chains them, so that no block between two
transforms has to be stored. Whatever user code raises goes through `Failures`, which knows what the user wants done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from skate.data._arguments import shown
from skate.data._block import batcher, batches, rows, tables
from skate.data._exec import meter
from skate.data._exec.failures import Failures, Letter
from skate.data._exec.udf import Udf, run_async

ROWS_AT_ONCE = 4096  # dictionaries that exist at a time

Blocks = Iterator["pa.Table | Letter"]


class Transform(Protocol):
    """Turns blocks into blocks."""

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""

    def prepare(self) -> None:
        """Set up what all tasks in this process share."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Return what becomes of the blocks; `index` is the place of the task among the operator's."""


@dataclass(frozen=True)
class EachRow:
    """Functions that are called with one row after the other: they follow each other without a block between them.

    Attributes:
        calls: What is called: "Map" gives a row, "FlatMap" rows, "Filter" whether to keep the row.
    """

    calls: tuple[tuple[str, Udf, Failures], ...]

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return "->".join(f"{kind}({udf.name})" for kind, udf, _ in self.calls)

    def prepare(self) -> None:
        """Make the instances of classes."""
        for _, udf, _ in self.calls:
            udf.prepare()

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Return blocks of what the functions make of each row."""
        calls = [(kind, udf.bound(), udf.is_async, failures) for kind, udf, failures in self.calls]
        keeps_columns = all(kind == "Filter" for kind, *_ in calls)
        for block in blocks:
            if isinstance(block, Letter):
                yield block
                continue
            for start in range(0, block.num_rows, ROWS_AT_ONCE):
                some: list[Any] = rows.to_row_list(tables.slice_rows(block, start, start + ROWS_AT_ONCE))
                for number, (kind, function, is_async, failures) in enumerate(calls):
                    if number and calls[number - 1][0] != "Filter":
                        some = rows.normalize(some)  # results must not depend on which steps are fused
                    some, letter = _call_each(kind, function, some, is_async, failures)
                    if letter is not None:
                        yield letter
                if some:
                    yield rows.to_block(some)
            if not block.num_rows or keeps_columns:
                yield tables.slice_rows(block, 0, 0)  # without rows, but with columns


def _call_each(
    kind: str, function: Callable[[Any], Any], values: list[Any], is_async: bool, failures: Failures
) -> tuple[list[Any], Letter | None]:
    """Call a function with each of these rows; return the rows that follow, and those that failed."""
    with meter.current().user:
        if is_async:
            results = [result for _, result in run_async(function, iter(values), at_once=ROWS_AT_ONCE)]
            failed = None
        else:
            values, results, failed = failures.call_each(function, values, complete=kind == "FlatMap")
    if kind == "Filter":
        kept = [value for value, keep in zip(values, results, strict=True) if keep]
    elif kind == "FlatMap":
        kept = [row for many in results for row in _checked_many(many)]
    else:
        kept = results
    if kind != "Filter":
        for row in kept:
            if not isinstance(row, Mapping):
                raise ValueError(
                    f"A function given to {'map' if kind == 'Map' else 'flat_map'} must return "
                    f"{'a dict' if kind == 'Map' else 'a list of dicts'}, one value for each column, not "
                    f"{shown(row)}. Wrap a single value: {{'item': value}}."
                )
    return kept, failed


def _checked_many(many: Any) -> Iterable[Any]:
    if isinstance(many, (str, bytes, Mapping)) or not isinstance(many, Iterable):
        raise ValueError(
            f"A function given to flat_map must return a list (or another iterable) of dicts, not "
            f"{shown(many)}."
        )
    return many


@dataclass(frozen=True)
class EachBatch:
    """A function that is called with one batch after the other.

    Attributes:
        size: Rows in a batch, also across blocks; None is a block at a time.
        format: What the function gets: "numpy", "pandas", "pyarrow", "polars".
        copies: Whether the function may write to what it gets.
        at_once: Batches that an asynchronous function has at a time.
    """

    udf: Udf
    size: int | None
    format: str | None
    copies: bool = False
    at_once: int = 1
    failures: Failures = field(default_factory=Failures)

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return f"MapBatches({self.udf.name})"

    def prepare(self) -> None:
        """Make the instance of a class."""
        self.udf.prepare()

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Return blocks of what the function makes of each batch."""
        function = self.udf.bound()
        letters: list[Letter] = []

        def without_letters() -> Iterator[pa.Table]:
            for block in blocks:
                if isinstance(block, Letter):
                    letters.append(block)
                else:
                    yield block

        cut = batcher.batch_blocks(without_letters(), self.size)
        if self.udf.is_async:
            made = run_async(lambda block: function(self._given(block)), cut, self.at_once)
            for _, result in made:
                yield from self._blocks(result)
        else:
            for block in cut:
                yield from self.failures.call_batch(lambda part: self._call(function, part), block)
                yield from letters
                letters.clear()
        yield from letters

    def _given(self, block: pa.Table) -> Any:
        return batches.to_batch(block, self.format, writable=self.copies)

    def _call(self, function: Callable[[Any], Any], block: pa.Table) -> Iterator[pa.Table]:
        given = self._given(block)
        user = meter.current().user
        with user:
            made = function(given)
        if isinstance(made, Iterator):
            while True:
                with user:
                    each = next(made, _END)
                if each is _END:
                    return
                # A generator may fill the same arrays again for its next batch.
                yield tables.deep_copy(batches.to_block(each))
        elif self.udf.is_class:
            yield tables.deep_copy(batches.to_block(made))  # and so may an object
        else:
            yield batches.to_block(made)

    def _blocks(self, made: Any) -> Iterator[pa.Table]:
        for each in made if isinstance(made, list) else [made]:
            yield batches.to_block(each)


_END = object()


@dataclass(frozen=True)
class EachGroup:
    """A function that is called with all rows of each group, as one batch; a block has all rows of its groups.

    Attributes:
        keys: The columns whose values make a group; none makes one group of a block.
        call: What is called, with blocks of one group each.
    """

    keys: tuple[str, ...]
    call: EachBatch

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return f"MapGroups({self.call.udf.name})"

    def prepare(self) -> None:
        """Make the instance of a class."""
        self.call.prepare()

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Return blocks of what the function makes of each group."""
        return self.call.apply(self._groups(blocks), index)

    def _groups(self, blocks: Blocks) -> Blocks:
        from skate.data._kernels import grouping

        for block in blocks:
            if isinstance(block, Letter):
                yield block
            else:
                yield from grouping.groups(block, list(self.keys))


@dataclass(frozen=True)
class EachBlock:
    """A function of Skate's own that is called with each block: projections, filters, samples.

    Attributes:
        title: What it is called in plans and statistics.
        function: Given a block and the place of the task, returns a block.
    """

    title: str
    function: Callable[[pa.Table, int], pa.Table]

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return self.title

    def prepare(self) -> None:
        """Set up nothing."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Return what becomes of each block."""
        for block in blocks:
            yield block if isinstance(block, Letter) else self.function(block, index)


def resized(blocks: Blocks, most_bytes: int) -> Blocks:
    """Return the same rows in blocks that are not larger than `most_bytes`, and small ones together.

    Small blocks of one task are what a filter or small batches leave; one block of them costs less than many.
    """
    waiting: list[pa.Table] = []
    size = 0
    empty = None
    for block in blocks:
        if isinstance(block, Letter):
            yield block
            continue
        if not block.num_rows:
            empty = block if empty is None or block.num_columns else empty
            continue
        waiting.append(block)
        size += tables.nbytes(block)
        if size >= most_bytes:
            whole = tables.concat(waiting)
            waiting, size = [], 0
            rest = yield from _full(whole, most_bytes)
            if rest is not None:
                waiting, size = [rest], tables.nbytes(rest)
    if waiting:
        yield tables.concat(waiting)
    elif empty is not None:
        # The schema of no rows is worth a block: whoever comes next knows the columns.
        yield empty


def _full(block: pa.Table, most_bytes: int) -> Any:
    """Yield as many full blocks as this one makes; return what is left."""
    size = tables.nbytes(block)
    if size < most_bytes * 1.5:
        yield block
        return None
    rows_each = max(1, int(block.num_rows * most_bytes / size))
    start = 0
    while block.num_rows - start > rows_each:
        yield tables.slice_rows(block, start, start + rows_each)
        start += rows_each
    return tables.slice_rows(block, start, block.num_rows)
