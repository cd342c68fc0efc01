"""Datasource for Hugging Face datasets."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import tables
from skate.data._io.balancing import DEFAULT_BLOCK_BYTES
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource.datasource import Datasource, ReadTask

_ROWS_AT_A_TIME = 1_000


class HuggingFaceDatasource(Datasource):
    """Read a `datasets.Dataset` or a `datasets.IterableDataset`.

    A `Dataset` is backed by Arrow, so memory-mapped rows are returned without a copy. An `IterableDataset` is read
    with one task per shard.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Any) -> None:
        datasets = _optional.load("datasets", "from_huggingface")
        if isinstance(dataset, datasets.DatasetDict | datasets.IterableDatasetDict):
            raise ValueError(
                f"from_huggingface takes one dataset, not a dict of them: select a split, "
                f"from_huggingface(dataset[{next(iter(dataset), 'train')!r}])"
            )
        if not isinstance(dataset, datasets.Dataset | datasets.IterableDataset):
            raise TypeError(
                f"from_huggingface takes a datasets.Dataset or a datasets.IterableDataset, not a {type(dataset)}"
            )
        self._iterates = isinstance(dataset, datasets.IterableDataset)
        self._dataset = dataset
        self._target: int | None = DEFAULT_BLOCK_BYTES

    def schema(self) -> pa.Schema | None:
        """Return the schema of the features; None if it is unknown before reading."""
        features = self._dataset.features
        return None if features is None or self._iterates else _without_schema_metadata(features.arrow_schema)

    def num_rows(self) -> int | None:
        """Return the number of rows of a `Dataset`."""
        return None if self._iterates else len(self._dataset)

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the size that the dataset reports, in bytes."""
        if self._iterates:
            return getattr(self._dataset.info, "dataset_size", None)
        return int(self._dataset.data.nbytes)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split a `Dataset` into ranges of rows, and an `IterableDataset` into its shards."""
        target = (data_context or DataContext.get_current()).target_max_block_size or DEFAULT_BLOCK_BYTES
        reader = self._replace(_target=target)
        if self._iterates:
            metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            shards = max(1, min(parallelism, self._dataset.num_shards))
            return [
                ReadTask(
                    functools.partial(reader._read_shard, shards, index), metadata, None, per_task_row_limit
                )
                for index in range(shards)
            ]
        length = len(self._dataset)
        step = max(1, -(-length // max(1, parallelism)))
        row_bytes = (self.estimate_inmemory_data_size() or 0) / max(1, length)
        rows = max(1, min(step, int(target / max(row_bytes, 1))))
        return [
            self._task(start, min(start + step, length), rows, row_bytes, per_task_row_limit)
            for start in range(0, length, step)
        ]

    def _task(self, start: int, stop: int, rows: int, row_bytes: float, limit: int | None) -> ReadTask:
        metadata = BlockMetadata(
            num_rows=stop - start,
            size_bytes=int((stop - start) * row_bytes),
            input_files=None,
            exec_stats=None,
        )
        if self._dataset.cache_files:  # the task carries only the paths of the files
            read: Any = functools.partial(_read_mapped, self._dataset, start, stop, rows)
        else:  # the task carries its own rows
            table = tables.compact(_without_metadata(self._dataset.with_format("arrow")[start:stop]))
            read = functools.partial(_read_slices, table, rows)
        return ReadTask(read, metadata, self.schema(), limit)

    def _read_shard(self, shards: int, index: int) -> Iterator[pa.Table]:
        shard = self._dataset if shards == 1 else self._dataset.shard(num_shards=shards, index=index)
        for table in shard.with_format("arrow").iter(batch_size=_ROWS_AT_A_TIME):
            yield _without_metadata(table)


def _read_mapped(dataset: Any, start: int, stop: int, rows: int) -> Iterator[pa.Table]:
    arrow = dataset.with_format("arrow")
    for first in range(start, stop, rows):
        yield _without_metadata(arrow[first : min(first + rows, stop)])


def _read_slices(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows)


def _without_metadata(table: pa.Table) -> pa.Table:
    return pa.Table.from_arrays(table.columns, schema=_without_schema_metadata(table.schema))


def _without_schema_metadata(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])
