"""User-defined aggregations: Python functions called per group, with pickled accumulators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pyarrow as pa

from skate.data._block import batches, rows
from skate.data._kernels import taking
from skate.data._kernels.collecting import Groups
from skate.data.aggregate import AggregateFn


def partial(agg: AggregateFn, block: pa.Table, groups: Groups, keys: pa.Table) -> pa.Array:
    """Return the accumulators of the groups of a block.

    Args:
        agg: The aggregation.
        block: The rows.
        groups: The groups of rows.
        keys: The key columns, with one row per group.
    """
    ordered = taking.take(block, groups.order)
    all_rows = None if agg.accumulate_row is None else rows.to_rows(ordered)
    accumulators = []
    for i, key in enumerate(_keys(keys, len(groups))):
        start, stop = int(groups.offsets[i]), int(groups.offsets[i + 1])
        accumulator = agg.init(key)
        if all_rows is not None and agg.accumulate_row is not None:
            # There may be many small groups: convert all rows at once.
            for row in itertools.islice(all_rows, stop - start):
                accumulator = agg.accumulate_row(accumulator, row)
        elif stop > start:  # without keys there is one group, even without rows
            accumulator = agg.accumulate_block(accumulator, ordered.slice(start, stop - start))
        accumulators.append(accumulator)
    return _pickle(accumulators)


def combine(agg: AggregateFn, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    """Merge the accumulators of several blocks per group."""
    accumulators = _unpickle(column)
    combined = []
    for start, stop in zip(groups.offsets[:-1], groups.offsets[1:], strict=True):
        first, *others = (accumulators[row] for row in groups.order[start:stop])
        for other in others:
            first = agg.merge(first, other)
        combined.append(first)
    return _pickle(combined)


def finalize(agg: AggregateFn, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the results, as a column of the type that their values need."""
    results = [agg.finalize(accumulator) for accumulator in _unpickle(column)]
    if not results:
        return pa.chunked_array([pa.nulls(0)])
    return batches.to_block({agg.name: results}).column(0)


def _keys(keys: pa.Table, count: int) -> Iterator[Any]:
    """Yield the key of each group in the form that `AggregateFn.init` expects."""
    if not keys.num_columns:
        yield from [None] * count
    elif keys.num_columns == 1:
        yield from (next(iter(row.values())) for row in rows.to_rows(keys))
    else:
        yield from (tuple(row.values()) for row in rows.to_rows(keys))


def _pickle(accumulators: list[Any]) -> pa.Array:
    return pa.array([cloudpickle.dumps(accumulator) for accumulator in accumulators], pa.large_binary())


def _unpickle(column: pa.ChunkedArray) -> list[Any]:
    return [cloudpickle.loads(pickled) for pickled in column.to_pylist()]
