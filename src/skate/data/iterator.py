"""IterationMethods over a dataset, or over one part of it, any number of times."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from skate.data._arguments import NON_NEGATIVE, POSITIVE, checked
from skate.data._iteration import torch_tensors as _tensors
from skate.data._iteration.batches import Reiterable, changed, iter_block_batches, iter_block_rows
from skate.data._iteration.frameworks import FrameworkMethods
from skate.data._iteration.position import PositionTracker, StartPosition

if TYPE_CHECKING:
    from skate.data._schema import Schema
    from skate.data.context import DataContext
    from skate.data.dataset import MaterializedDataset

__all__ = ["DataIterator", "DatasetIterator"]


class IterationMethods(FrameworkMethods):
    """The part of a dataset's API, and of an iterator's, that iterates over rows and batches."""

    _tracker: PositionTracker | None = None  # follows which rows have been used, if somebody wants to know

    @abc.abstractmethod
    def _blocks(self) -> Iterator[pa.Table]:
        """Yield the blocks of all rows, once."""

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """Return an iterable over rows, each a dict.

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
            prefetch_batches: Batches that a thread prepares ahead.
            batch_size: Rows in a batch; None gives a block at a time.
            batch_format: What a batch is: "numpy" (a dict of arrays, the default), "pandas", "pyarrow", "polars".
            drop_last: Leave out a last batch that has fewer rows.
            local_shuffle_buffer_size: Draw batches at random from at least as many rows.
            local_shuffle_seed: The same seed gives the same batches.

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
            return batches if _finalize_fn is None else changed(batches, _finalize_fn)

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
            prefetch_batches: Batches that a thread prepares ahead.
            batch_size: Rows in a batch; None gives a block at a time.
            dtypes: The type of all tensors, or of each column's by its name.
            device: Where the tensors go; "auto" is the device of the training worker.
            collate_fn: Makes what is given out of a batch, instead: a function of a dict of arrays, or a CollateFn.
            drop_last: Leave out a last batch that has fewer rows.
            local_shuffle_buffer_size: Draw batches at random from at least as many rows.
            local_shuffle_seed: The same seed gives the same batches.
            pin_memory: Put tensors into memory that a GPU can copy from while the program goes on.
        """
        batch_format, make, move = _tensors.finisher(dtypes, device, collate_fn, pin_memory)
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
    """Gives the rows of a dataset, or of a part of it, each time it is iterated over.

    `Dataset.iterator()` and `Dataset.streaming_split()` return these. They can be passed to tasks and actors.
    """

    # Whether `_start_at` works: "alone", or "together" with the others that share the rows.
    _goes_on: Literal["alone", "together"] | None = None

    @abc.abstractmethod
    def schema(self) -> Schema | None:
        """Return the columns of the dataset."""

    @abc.abstractmethod
    def stats(self) -> str:
        """Return what the latest iteration has done, as text."""

    @abc.abstractmethod
    def get_context(self) -> DataContext:
        """Return the settings of the dataset."""

    def materialize(self) -> MaterializedDataset:
        """Return a dataset of the rows, which are kept."""
        from skate.data.dataset import materialized

        return materialized(self._all_blocks(), self.get_context())

    def _all_blocks(self) -> Iterator[pa.Table]:
        """Yield all blocks, as somebody who uses their rows at once."""
        if self._tracker is None:
            return self._blocks()
        return self._tracker.follow((block.num_rows, block) for block in self._blocks())

    def _start_at(self, start: StartPosition) -> None:
        """Begin where readers before have stopped, and follow from there which rows are used."""
        raise NotImplementedError(f"{type(self).__name__} begins at its first row")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "`DataIterator` objects aren't iterable. To iterate records, call `iter_rows()` or "
            "`iter_batches()`."
        )


# An older name.
DatasetIterator = DataIterator
