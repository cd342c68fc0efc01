"""Iteration over a dataset, or over one shard of it, any number of times."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from skate.data._arguments import NON_NEGATIVE, POSITIVE, checked
from skate.data._iteration import torch_tensors
from skate.data._iteration.batches import Reiterable, iter_block_batches, iter_block_rows, map_closing
from skate.data._iteration.frameworks import FrameworkMethods
from skate.data._iteration.position import PositionTracker, StartPosition

if TYPE_CHECKING:
    from skate.data._schema import Schema
    from skate.data.context import DataContext
    from skate.data.dataset import MaterializedDataset

__all__ = ["DataIterator", "DatasetIterator"]


class IterationMethods(FrameworkMethods):
    """Methods of `Dataset` and `DataIterator` that iterate over rows and batches."""

    _tracker: PositionTracker | None = None  # tracks the used rows, if their position is to be stored

    @abc.abstractmethod
    def _blocks(self) -> Iterator[pa.Table]:
        """Yield all blocks once."""

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """Return an iterable over rows as dictionaries.

        >>> import skate
        >>> [row["id"] for row in skate.data.range(3).iter_rows()]
        [0, 1, 2]
        """
        tracker = self._tracker
        if tracker is None:
            return Reiterable(lambda: iter_block_rows(self._blocks()))
        return Reiterable(lambda: tracker.follow((1, row) for row in iter_block_rows(self._blocks())))

    @checked(prefetch_batches=NON_NEGATIVE, batch_size=POSITIVE, local_shuffle_buffer_size=POSITIVE)
    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        _collate_fn: Callable[[Any], Any] | None = None,
        _finalize_fn: Callable[[Any], Any] | None = None,
    ) -> Iterable[Any]:
        """Return an iterable over batches.

        Args:
            prefetch_batches: Number of batches that a thread prefetches.
            batch_size: Number of rows of a batch; None returns whole blocks.
            batch_format: The format of a batch: "numpy" (a dict of arrays, the default), "pandas", "pyarrow", "polars".
            drop_last: Drop an incomplete last batch.
            local_shuffle_buffer_size: Draw each batch at random from a buffer of at least this many rows.
            local_shuffle_seed: The seed of the local shuffle.

        >>> import skate
        >>> [len(batch["id"]) for batch in skate.data.range(5).iter_batches(batch_size=2)]
        [2, 2, 1]
        """
        tracker = self._tracker

        def start() -> Iterator[Any]:
            batches = iter_block_batches(
                self._blocks(),
                batch_size=batch_size,
                batch_format=batch_format,
                drop_last=drop_last,
                shuffle_buffer=local_shuffle_buffer_size,
                shuffle_seed=local_shuffle_seed,
                prefetch=prefetch_batches,
                finish=_collate_fn,
                counted=tracker is not None,
            )
            if tracker is not None:
                batches = tracker.follow(batches)
            return batches if _finalize_fn is None else map_closing(batches, _finalize_fn)

        return Reiterable(start)

    @checked(prefetch_batches=NON_NEGATIVE, batch_size=POSITIVE, local_shuffle_buffer_size=POSITIVE)
    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Any = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Return an iterable over batches of torch tensors.

        Args:
            prefetch_batches: Number of batches that a thread prefetches.
            batch_size: Number of rows of a batch; None returns whole blocks.
            dtypes: The type of all tensors, or a dict of types by column.
            device: The device of the tensors; "auto" is the device of the training worker.
            collate_fn: Converts a batch instead: a function of a dict of arrays, or a CollateFn.
            drop_last: Drop an incomplete last batch.
            local_shuffle_buffer_size: Draw each batch at random from a buffer of at least this many rows.
            local_shuffle_seed: The seed of the local shuffle.
            pin_memory: Put tensors into pinned memory, which a GPU copies asynchronously.
        """
        batch_format, make, move = torch_tensors.converter(dtypes, device, collate_fn, pin_memory)
        return self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format=batch_format,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=make,
            _finalize_fn=move,
        )


class DataIterator(IterationMethods):
    """Iterates over a dataset, or over one shard of it, any number of times.

    `Dataset.iterator()` and `Dataset.streaming_split()` return iterators, which can be passed to tasks and actors.
    """

    # Whether `_start_at` is supported: "alone", or "together" with the other readers of the dataset.
    _resumable: Literal["alone", "together"] | None = None

    @abc.abstractmethod
    def schema(self) -> Schema | None:
        """Return the schema of the dataset."""

    @abc.abstractmethod
    def stats(self) -> str:
        """Return the statistics of the latest iteration as text."""

    @abc.abstractmethod
    def get_context(self) -> DataContext:
        """Return the settings of the dataset."""

    def materialize(self) -> MaterializedDataset:
        """Return a materialized dataset of the rows."""
        from skate.data.dataset import materialized

        blocks = list(self._all_blocks())
        if not blocks and (schema := self.schema()) is not None:
            blocks = [schema.base_schema.empty_table()]  # a shard without rows has the columns of the dataset
        return materialized(blocks, self.get_context())

    def _all_blocks(self) -> Iterator[pa.Table]:
        """Yield all blocks, and count their rows as used."""
        if self._tracker is None:
            return self._blocks()
        return self._tracker.follow((block.num_rows, block) for block in self._blocks())

    def _start_at(self, start: StartPosition) -> None:
        """Start at the position of earlier readers, and track the used rows from there."""
        raise NotImplementedError(f"{type(self).__name__} cannot start at a position")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "`DataIterator` objects aren't iterable. To iterate records, call `iter_rows()` or "
            "`iter_batches()`."
        )


# An older name.
DatasetIterator = DataIterator
