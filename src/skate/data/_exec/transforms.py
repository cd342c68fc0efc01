"""The transforms of a step, one class per kind.

A transform lazily turns an iterator of blocks into another. A step chains its transforms, so blocks between them are
never stored. `Failures` handles the errors of user code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from skate.data._arguments import shown
from skate.data._block import batcher, batches, rows, tables
from skate.data._exec import meter
from skate.data._exec.failures import FailedRows, Failures
from skate.data._exec.retries import Retries
from skate.data._exec.udf import Udf, run_async
from skate.data._expressions import evaluate
from skate.data._expressions.context import EvaluationContext, Instances

ROWS_AT_ONCE = 4096  # maximum number of rows that exist as dictionaries

Blocks = Iterator["pa.Table | FailedRows"]


class Transform(Protocol):
    """Turns blocks into blocks."""

    @property
    def name(self) -> str:
        """The name of the transform in plans and statistics."""

    def prepare(self) -> None:
        """Create what all tasks of this process share."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Yield the transformed blocks; `index` is the index of the task among the tasks of its operator."""


@dataclass(frozen=True)
class EachRow:
    """Calls a chain of functions with each row, without blocks between the functions.

    Attributes:
        calls: The functions: a "Map" returns a row, a "FlatMap" rows, a "Filter" whether to keep the row.
    """

    calls: tuple[tuple[str, Udf, Failures], ...]

    @property
    def name(self) -> str:
        """The name of the transform in plans and statistics."""
        return "->".join(f"{kind}({udf.name})" for kind, udf, _ in self.calls)

    def prepare(self) -> None:
        """Create the instances of user classes."""
        for _, udf, _ in self.calls:
            udf.prepare()

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Yield blocks of the rows that the functions return."""
        calls = [(kind, udf, udf.bind(), failures) for kind, udf, failures in self.calls]
        keeps_columns = all(kind == "Filter" for kind, *_ in calls)
        for block in blocks:
            if isinstance(block, FailedRows):
                yield block
                continue
            for start in range(0, block.num_rows, ROWS_AT_ONCE):
                some: list[Any] = rows.to_row_list(tables.slice_rows(block, start, start + ROWS_AT_ONCE))
                for number, (kind, udf, function, failures) in enumerate(calls):
                    if number and calls[number - 1][0] != "Filter":
                        some = rows.normalize(some)  # results must not depend on the fusion of steps
                    some, failed = _call_each(kind, udf, function, some, failures)
                    if failed is not None:
                        yield failed
                if some:
                    yield rows.to_block(some)
            if not block.num_rows or keeps_columns:
                yield tables.slice_rows(block, 0, 0)  # an empty block carries the columns


def _call_each(
    kind: str, udf: Udf, function: Callable[[Any], Any], values: list[Any], failures: Failures
) -> tuple[list[Any], FailedRows | None]:
    """Call a function with each row; return the resulting rows and the failed rows."""
    retries = Retries.current(of_class=udf.is_class)
    with meter.current().user:
        if udf.is_async:
            made = run_async(function, iter(values), at_once=ROWS_AT_ONCE, retries=retries)
            results = [result for _, result in made]
            failed = None
        else:
            values, results, failed = failures.call_each(
                function, values, complete=kind == "FlatMap", retries=retries
            )
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
    """Calls a function with each batch.

    Attributes:
        udf: The function.
        size: Number of rows of a batch, across blocks; None passes whole blocks.
        format: The format of a batch: "numpy", "pandas", "pyarrow", "polars".
        copies: Pass writable copies, because the function may modify its batch.
        at_once: Number of concurrent calls of an asynchronous function.
        failures: The handling of errors.
    """

    udf: Udf
    size: int | None
    format: str | None
    copies: bool = False
    at_once: int = 1
    failures: Failures = field(default_factory=Failures)

    @property
    def name(self) -> str:
        """The name of the transform in plans and statistics."""
        return f"MapBatches({self.udf.name})"

    def prepare(self) -> None:
        """Create the instance of a user class."""
        self.udf.prepare()

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Yield blocks of the batches that the function returns."""
        function = self.udf.bind()
        failed: list[FailedRows] = []

        def without_failed_rows() -> Iterator[pa.Table]:
            for block in blocks:
                if isinstance(block, FailedRows):
                    failed.append(block)
                else:
                    yield block

        cut = batcher.batch_blocks(without_failed_rows(), self.size)
        retries = Retries.current(of_class=self.udf.is_class)
        if self.udf.is_async:
            made = run_async(lambda block: function(self._to_batch(block)), cut, self.at_once, retries)
            for _, result in made:
                yield from self._blocks(result)
        else:
            for block in cut:
                yield from self.failures.call_batch(lambda part: self._call(function, part), block, retries)
                yield from failed
                failed.clear()
        yield from failed

    def _to_batch(self, block: pa.Table) -> Any:
        return batches.to_batch(block, self.format, writable=self.copies)

    def _call(self, function: Callable[[Any], Any], block: pa.Table) -> Iterator[pa.Table]:
        batch = self._to_batch(block)
        given = batches.GivenText(block, batch)
        user = meter.current().user
        with user:
            made = function(batch)
        if isinstance(made, Iterator):
            while True:
                with user:
                    each = next(made, _END)
                if each is _END:
                    return
                # A generator may reuse its arrays for the next batch.
                yield tables.deep_copy(batches.to_block(each, given))
        elif self.udf.is_class:
            yield tables.deep_copy(batches.to_block(made, given))  # an object may reuse its arrays too
        else:
            yield batches.to_block(made, given)

    def _blocks(self, made: Any) -> Iterator[pa.Table]:
        for each in made if isinstance(made, list) else [made]:
            yield batches.to_block(each)


_END = object()


@dataclass(frozen=True)
class EachGroup:
    """Calls a function with all rows of each group as one batch; each block contains whole groups.

    Attributes:
        keys: The key columns; without keys, each block is one group.
        call: Calls the function with a block of one group.
    """

    keys: tuple[str, ...]
    call: EachBatch

    @property
    def name(self) -> str:
        """The name of the transform in plans and statistics."""
        return f"MapGroups({self.call.udf.name})"

    def prepare(self) -> None:
        """Create the instance of a user class."""
        self.call.prepare()

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Yield blocks of the batches that the function returns."""
        return self.call.apply(self._groups(blocks), index)

    def _groups(self, blocks: Blocks) -> Blocks:
        from skate.data._kernels import grouping

        for block in blocks:
            if isinstance(block, FailedRows):
                yield block
            else:
                yield from grouping.groups(block, list(self.keys))


@dataclass(frozen=True)
class EachBlock:
    """Calls an internal function with each block, for example to drop columns or to take a sample.

    Attributes:
        title: The name of the transform in plans and statistics.
        function: Takes a block and the index of the task, and returns a block.
    """

    title: str
    function: Callable[[pa.Table, int], pa.Table]

    @property
    def name(self) -> str:
        """The name of the transform in plans and statistics."""
        return self.title

    def prepare(self) -> None:
        """Do nothing: the function has no state."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Yield the result for each block."""
        for block in blocks:
            yield block if isinstance(block, FailedRows) else self.function(block, index)


# Instances of user classes in expressions; they live as long as the process.
_expression_instances = Instances()


@dataclass(frozen=True)
class ColumnExpressions:
    """Computes columns by expressions, or filters rows by one.

    Attributes:
        title: The name of the transform in plans and statistics.
        expressions: The columns to compute; for a filter, one predicate.
        is_filter: Keep the rows for which the predicate is true.
        context: The seed of random expressions, so that a retried task computes the same values.
    """

    title: str
    expressions: tuple[Any, ...]
    is_filter: bool = False
    context: EvaluationContext = field(default_factory=EvaluationContext)

    @property
    def name(self) -> str:
        """The name of the transform in plans and statistics."""
        return self.title

    def prepare(self) -> None:
        """Do nothing: the first block creates the instances of classes."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Yield the result for each block."""
        passed = 0
        for block in blocks:
            if isinstance(block, FailedRows):
                yield block
                continue
            context = replace(
                self.context, task_index=index, row_offset=passed, instances=_expression_instances
            )
            passed += block.num_rows
            if self.is_filter:
                yield block.filter(evaluate.mask(block, self.expressions[0], context))
            else:
                yield evaluate.project(block, self.expressions, context)


def resize_blocks(blocks: Blocks, max_bytes: int) -> Blocks:
    """Yield the same rows in blocks of up to about `max_bytes`, and concatenate smaller blocks.

    Filters and small batches leave small blocks; one larger block costs less than many small ones.
    """
    waiting: list[pa.Table] = []
    size = 0
    empty = None
    for block in blocks:
        if isinstance(block, FailedRows):
            yield block
            continue
        if not block.num_rows:
            empty = block if empty is None or block.num_columns else empty
            continue
        waiting.append(block)
        size += tables.nbytes(block)
        if size >= max_bytes:
            whole = tables.concat(waiting)
            waiting, size = [], 0
            rest = yield from _split_full(whole, max_bytes)
            if rest is not None:
                waiting, size = [rest], tables.nbytes(rest)
    if waiting:
        yield tables.concat(waiting)
    elif empty is not None:
        # An empty block passes the schema to the next operator.
        yield empty


def _split_full(block: pa.Table, max_bytes: int) -> Any:
    """Yield full blocks of `max_bytes`, and return the rest."""
    size = tables.nbytes(block)
    if size < max_bytes * 1.5:
        yield block
        return None
    rows_each = max(1, int(block.num_rows * max_bytes / size))
    start = 0
    while block.num_rows - start > rows_each:
        yield tables.slice_rows(block, start, start + rows_each)
        start += rows_each
    return tables.slice_rows(block, start, block.num_rows)
