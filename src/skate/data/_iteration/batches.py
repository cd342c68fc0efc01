"""Converts blocks to the rows and batches of an iteration, and prefetches batches in a thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from skate.data._block import batcher, batches, rows
from skate.data._exec.interruption import Interrupted, Interruption

T = TypeVar("T")
# To hand a batch over from one thread to another takes about a tenth of this time.
_HANDOVER_SECONDS = 0.0005
_ROW_NUMBER = "skate: number of the row"


class Reiterable(Generic[T]):
    """An iterable that starts a new iteration each time."""

    def __init__(self, start: Callable[[], Iterator[T]]) -> None:
        self._start = start

    def __iter__(self) -> Iterator[T]:
        return self._start()


def iter_block_rows(blocks: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    """Yield the rows of blocks."""
    for block in blocks:
        yield from rows.to_rows(block)


def iter_block_batches(
    blocks: Iterator[pa.Table],
    *,
    batch_size: int | None,
    batch_format: str | None,
    drop_last: bool,
    shuffle_buffer: int | None,
    shuffle_seed: int | None,
    prefetch: int,
    finish: Callable[[Any], Any] | None = None,
    counted: bool = False,
) -> Iterator[Any]:
    """Return an iterator over the batches of blocks.

    Args:
        blocks: The blocks.
        batch_size: Number of rows of a batch; None returns whole blocks.
        batch_format: "numpy", "pandas", "pyarrow", "polars".
        drop_last: Drop an incomplete last batch.
        shuffle_buffer: Shuffle within a buffer of this many rows.
        shuffle_seed: The seed of the shuffle.
        prefetch: Number of batches that a thread prefetches.
        finish: Converts each batch, in that thread.
        counted: Yield pairs of the rows of a batch and the batch; the rows are a count or, with a shuffle, row numbers.
    """
    numbers = counted and shuffle_buffer is not None
    if numbers:
        blocks = _add_row_numbers(blocks)
    pairs: Iterator[tuple[Any, Any]]  # the rows of a batch, and the batch
    if shuffle_buffer is not None:
        cut = batcher.shuffle_batches(
            blocks, batch_size, shuffle_buffer, seed=shuffle_seed, drop_last=drop_last
        )
        pairs = (_with_rows(block, batch_format, numbers) for block in cut)
    else:
        slices = _Slices(batcher.batch_slices(blocks, batch_size, drop_last=drop_last))
        pairs = batches.slices_to_batches(slices, batch_format)
        if finish is None and prefetch > 0:
            return _prefetch_groups(pairs, slices, prefetch, counted)

    def prepare(rows: Any, batch: Any) -> Any:
        if finish is not None:
            batch = finish(batch)
        return (rows, batch) if counted else batch

    prepared = (prepare(*pair) for pair in pairs)
    return prepared if prefetch <= 0 else prefetch_values(prepared, prefetch)


class _Slices:
    """Iterates over slices of blocks.

    Attributes:
        ends_block: The next slice needs another block, for which the iteration may have to wait.
    """

    def __init__(self, slices: Iterator[batcher.Slice]) -> None:
        self._slices = slices
        self.ends_block = False

    def __iter__(self) -> Iterator[batcher.Slice]:
        for block, start, stop in self._slices:
            self.ends_block = 2 * stop - start > block.num_rows
            yield block, start, stop


def _prefetch_groups(
    pairs: Iterator[tuple[Any, Any]], slices: _Slices, prefetch: int, counted: bool
) -> Iterator[Any]:
    """Yield batches, which a thread prefetches; it hands over those together that take little time to create."""

    def groups() -> Iterator[list[Any]]:
        group: list[Any] = []
        begun = time.perf_counter()
        for pair in pairs:
            group.append(pair if counted else pair[1])
            # An incomplete group must not wait for a block.
            if slices.ends_block or time.perf_counter() - begun > _HANDOVER_SECONDS:
                yield group
                group = []
                begun = time.perf_counter()
        if group:
            yield group

    for group in prefetch_values(groups(), prefetch):
        yield from group


def _with_rows(block: pa.Table, batch_format: str | None, numbers: bool) -> tuple[Any, Any]:
    """Return the rows of a batch, and the batch."""
    rows: Any = block.num_rows
    if numbers:
        rows = block.column(_ROW_NUMBER).to_numpy()
        block = block.drop_columns([_ROW_NUMBER])
    return rows, batches.to_batch(block, batch_format)


def _add_row_numbers(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield blocks with an additional column of row numbers."""
    start = 0
    for block in blocks:
        yield block.append_column(_ROW_NUMBER, pa.array(np.arange(start, start + block.num_rows)))
        start += block.num_rows


def prefetch_values(values: Iterator[T], count: int) -> Iterator[T]:
    """Yield the same values, which a thread prefetches.

    The thread ends after the last value, or when the iteration ends early.
    """
    buffer: _PrefetchBuffer[T] = _PrefetchBuffer(count)
    thread = threading.Thread(target=buffer.fill, args=(values,), name="skate-data-batches", daemon=True)
    thread.start()
    try:
        yield from buffer
    finally:
        buffer.stop()
        thread.join()


def map_closing(values: Iterator[T], function: Callable[[T], Any]) -> Iterator[Any]:
    """Yield the result of a function for each value, and close the values when the iteration ends early."""
    try:
        for value in values:
            yield function(value)
    finally:
        close = getattr(values, "close", None)
        if close is not None:
            close()


class _PrefetchBuffer(Generic[T]):
    """A prefetch buffer: one thread fills it, and another one iterates over it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: deque[T] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        self._interruption = Interruption()

    def fill(self, values: Iterator[T]) -> None:
        """Add values while the buffer has room, until they end or `stop` is called."""
        self._interruption.install()
        try:
            for value in values:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._values) < self._capacity or self._stopped)
                    if self._stopped:
                        break
                    self._values.append(value)
                    self._changed.notify_all()
        except Interrupted:
            pass  # `stop` was called
        except BaseException as error:  # the consumer raises it
            self._error = error
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._values or self._ended)
                if not self._values:
                    if self._error is not None:
                        raise self._error
                    return
                value = self._values.popleft()
                self._changed.notify_all()
            yield value

    def stop(self) -> None:
        """Stop filling the buffer, and interrupt the wait for blocks."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._interruption.set()
