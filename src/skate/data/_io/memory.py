"""Datasources that generate numbers, or hold data of the program in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from skate.data._block import batches, rows, tables, tensors
from skate.data.block import BlockMetadata
from skate.data.datasource import Datasource, ReadTask

_ROWS_AT_ONCE = 1_000_000


class RangeDatasource(Datasource):
    """Generate the numbers from 0 to `n`, exclusive, as column `id`, or tensors filled with them as column `data`.

    Args:
        n: Number of rows.
        shape: Shape of the tensors; None for plain numbers.
    """

    def __init__(self, n: int, shape: tuple[int, ...] | None = None) -> None:
        self._n = int(n)
        self._shape = shape

    def get_name(self) -> str:
        """Return the name for plans and statistics."""
        return "Range"

    def estimate_inmemory_data_size(self) -> int:
        """Return the size of all rows, in bytes."""
        return 8 * self._n * (math.prod(self._shape) if self._shape else 1)

    def num_rows(self) -> int:
        """Return the number of rows."""
        return self._n

    def schema(self) -> pa.Schema:
        """Return the schema of the rows."""
        return _numbers(0, 0, self._shape).schema

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the numbers into ranges of equal length."""
        parts = max(1, min(parallelism, self._n))
        tasks = []
        for part in range(parts):
            start, stop = self._n * part // parts, self._n * (part + 1) // parts
            size = 8 * (stop - start) * (math.prod(self._shape) if self._shape else 1)
            metadata = BlockMetadata(num_rows=stop - start, size_bytes=size)
            read = partial(_count, start, stop, self._shape)
            tasks.append(
                ReadTask(read, metadata, self.schema(), per_task_row_limit, identity=f"{start}:{stop}")
            )
        return tasks


class EmptyDatasource(Datasource):
    """Produce no rows but a schema, as for a table that nothing was written to yet.

    Args:
        schema: The columns.
        name: The name for plans and statistics.
    """

    def __init__(self, schema: pa.Schema, name: str) -> None:
        self._schema = schema
        self._name = name

    def get_name(self) -> str:
        """Return the name for plans and statistics."""
        return self._name

    def estimate_inmemory_data_size(self) -> int:
        """Return 0."""
        return 0

    def num_rows(self) -> int:
        """Return 0."""
        return 0

    def schema(self) -> pa.Schema:
        """Return the schema."""
        return self._schema

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return a task that yields a block without rows, which carries the schema."""
        metadata = BlockMetadata(num_rows=0, size_bytes=0)
        return [ReadTask(partial(_empty_block, self._schema), metadata, self._schema, identity="nothing")]


def _empty_block(schema: pa.Schema) -> Iterator[pa.Table]:
    yield schema.empty_table()


def _count(start: int, stop: int, shape: tuple[int, ...] | None) -> Iterator[pa.Table]:
    step = max(1, _ROWS_AT_ONCE // (math.prod(shape) if shape else 1))
    if start == stop:
        yield _numbers(start, stop, shape)
    for first in range(start, stop, step):
        yield _numbers(first, min(first + step, stop), shape)


def _numbers(start: int, stop: int, shape: tuple[int, ...] | None) -> pa.Table:
    numbers = np.arange(start, stop, dtype=np.int64)
    if shape is None:
        return pa.table({"id": tensors.flat_values(numbers)})
    ones = np.ones(shape, dtype=np.int64)
    return batches.to_block({"data": numbers.reshape(-1, *(1,) * len(shape)) * ones[np.newaxis]})


def blocks_of_items(items: Sequence[Any], count: int) -> list[pa.Table]:
    """Return items as blocks: dicts as rows, other values in a column `item`."""
    given = [item if isinstance(item, dict) else {"item": item} for item in items]
    count = max(1, min(count, len(given)))
    bounds = [len(given) * part // count for part in range(count + 1)]
    return [rows.to_block(given[start:stop]) for start, stop in itertools.pairwise(bounds)]


def cut_evenly(blocks: Sequence[pa.Table], count: int | None) -> list[pa.Table]:
    """Return the rows in `count` blocks of equal length; None leaves the blocks unchanged."""
    if count is None:
        return list(blocks)
    whole = tables.concat(list(blocks))
    bounds = [whole.num_rows * part // count for part in range(count + 1)]
    return [whole.slice(start, stop - start) for start, stop in itertools.pairwise(bounds)]
