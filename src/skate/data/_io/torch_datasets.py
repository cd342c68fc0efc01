"""Datasource for torch datasets."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._arguments import check_protocol
from skate.data._block import rows, tables
from skate.data._io.balancing import DEFAULT_BLOCK_BYTES
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource.datasource import Datasource, ReadTask

_FIRST_ITEMS = 16


class TorchDatasource(Datasource):
    """Read the items of a torch dataset into the column `item`.

    A map-style dataset is divided by its indices; an iterable-style dataset is read by one task.

    Args:
        dataset: The dataset; it is pickled and used in workers.
        local_read: Read in the driver process.
    """

    def __init__(self, dataset: Any, *, local_read: bool = False) -> None:
        data = _optional.load("torch.utils.data", "from_torch", "torch")
        if not isinstance(dataset, data.IterableDataset):
            check_protocol("dataset", dataset, "__getitem__", "a torch Dataset or IterableDataset")
        self._dataset = dataset
        self._local = local_read
        self._iterates = isinstance(dataset, data.IterableDataset)
        self._target: int | None = DEFAULT_BLOCK_BYTES

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether any worker can read the dataset."""
        return not self._local

    def num_rows(self) -> int | None:
        """Return the length of a map-style dataset."""
        return None if self._iterates else len(self._dataset)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the indices into ranges of the same length."""
        reader = self._replace(_target=(data_context or DataContext.get_current()).target_max_block_size)
        if self._iterates:
            metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(reader._read_all, metadata, None, per_task_row_limit)]
        length = len(self._dataset)
        step = max(1, -(-length // max(1, parallelism)))
        tasks = []
        for start in range(0, length, step):
            stop = min(start + step, length)
            metadata = BlockMetadata(
                num_rows=stop - start, size_bytes=None, input_files=None, exec_stats=None
            )
            read = functools.partial(reader._read_range, start, stop)
            tasks.append(ReadTask(read, metadata, None, per_task_row_limit))
        return tasks

    def _read_all(self) -> Iterator[pa.Table]:
        return _blocks(iter(self._dataset), self._target)

    def _read_range(self, start: int, stop: int) -> Iterator[pa.Table]:
        return _blocks((self._dataset[index] for index in range(start, stop)), self._target)


def _blocks(items: Iterable[Any], target: int | None) -> Iterator[pa.Table]:
    """Yield blocks of items: small ones at first, then blocks of the target size."""
    limit = target if target is not None else DEFAULT_BLOCK_BYTES
    items, count = iter(items), _FIRST_ITEMS
    while found := list(itertools.islice(items, count)):
        block = rows.to_block_with_objects([{"item": item} for item in found])
        yield block
        fitting = limit * len(found) // max(1, tables.nbytes(block))
        count = max(1, min(fitting, count * 8))
