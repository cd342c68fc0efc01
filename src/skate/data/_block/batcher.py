"""Regroup blocks of any size into batches of one size, in order or through a shuffle buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from skate.data._block import tables

_BATCHES_PER_CHUNK = 4  # of shorter chunks, a copy with one chunk is made

Slice = tuple[pa.Table, int, int]  # a block, and the first and last row of a slice of it, exclusive


def batch_blocks(
    blocks: Iterable[pa.Table], batch_size: int | None, *, drop_last: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of blocks, in order, in batches of `batch_size` rows.

    A batch within one block is a slice of it; a batch across several blocks refers to slices of them.

    Args:
        blocks: The blocks.
        batch_size: Rows per batch; None yields the blocks unchanged, except for empty ones.
        drop_last: Drop the last batch if it has fewer rows.

    Raises:
        ValueError: `batch_size` is less than 1.
    """
    slices = batch_slices(blocks, batch_size, drop_last=drop_last)
    return (tables.slice_rows(block, start, stop) for block, start, stop in slices)


def batch_slices(
    blocks: Iterable[pa.Table], batch_size: int | None, *, drop_last: bool = False
) -> Iterator[Slice]:
    """Yield the same batches as `batch_blocks`, as slices; batches of one block refer to the same object."""
    _check_size("batch_size", batch_size)
    return _batch_slices(blocks, batch_size, drop_last)


def _batch_slices(blocks: Iterable[pa.Table], batch_size: int | None, drop_last: bool) -> Iterator[Slice]:
    if batch_size is None:
        yield from ((block, 0, block.num_rows) for block in blocks if block.num_rows)
        return
    waiting: deque[pa.Table] = deque()
    waiting_rows = 0
    for block in _with_long_chunks(blocks, batch_size):
        start = 0
        if waiting:
            start = min(batch_size - waiting_rows, block.num_rows)
            waiting.append(tables.slice_rows(block, 0, start))
            waiting_rows += start
            if waiting_rows < batch_size:
                continue
            yield tables.concat(list(waiting)), 0, batch_size
            waiting.clear()
            waiting_rows = 0
        while block.num_rows - start >= batch_size:
            yield block, start, start + batch_size
            start += batch_size
        if start < block.num_rows:
            waiting.append(tables.slice_rows(block, start, block.num_rows))
            waiting_rows = block.num_rows - start
    if waiting and not drop_last:
        yield tables.concat(list(waiting)), 0, waiting_rows


def _with_long_chunks(blocks: Iterable[pa.Table], batch_size: int) -> Iterator[pa.Table]:
    """Yield the rows of blocks in tables with one chunk per column: slicing a table visits each of its chunks.

    A block is divided between its chunks, which copies nothing. If many batches would have rows of several chunks, or a
    block is smaller than a batch, the chunks are combined.
    """
    for block in blocks:
        chunks = sum(column.num_chunks for column in block.columns)
        if chunks <= block.num_columns or block.num_rows < batch_size:
            yield block
        elif chunks * _BATCHES_PER_CHUNK * batch_size > block.num_rows:
            yield tables.combine(block)
        else:
            yield from (pa.Table.from_batches([part]) for part in block.to_batches())


def shuffle_batches(
    blocks: Iterable[pa.Table],
    batch_size: int | None,
    buffer_size: int,
    *,
    seed: int | None = None,
    drop_last: bool = False,
) -> Iterator[pa.Table]:
    """Yield the rows of blocks in batches of `batch_size` rows, shuffled within a buffer.

    Each batch is drawn at random from at least `buffer_size` rows, until the blocks end. The buffer is permuted
    once each time it is full, and batches are slices of it.

    Args:
        blocks: The blocks.
        batch_size: Rows per batch.
        buffer_size: Minimum number of rows to draw from.
        seed: The same seed and the same blocks give the same batches.
        drop_last: Drop the last batch if it has fewer rows.

    Raises:
        ValueError: `batch_size` is None or less than 1, or `buffer_size` is less than 1.
    """
    if batch_size is None:
        raise ValueError("a local shuffle needs a batch_size, got None: pass the number of rows per batch")
    _check_size("batch_size", batch_size)
    _check_size("local_shuffle_buffer_size", buffer_size)
    return _shuffle_batches(blocks, batch_size, max(buffer_size, batch_size), seed, drop_last)


def _shuffle_batches(
    blocks: Iterable[pa.Table], batch_size: int, buffer_size: int, seed: int | None, drop_last: bool
) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    incoming: list[pa.Table] = []
    incoming_rows = 0
    buffer = pa.table({})
    for block in blocks:
        if not block.num_rows:
            continue
        incoming.append(block)
        incoming_rows += block.num_rows
        # The buffer holds up to twice its minimum, so that one permutation serves `buffer_size` rows.
        if buffer.num_rows + incoming_rows < 2 * buffer_size:
            continue
        buffer = _permute([buffer, *incoming], random)
        incoming, incoming_rows = [], 0
        start = 0
        while buffer.num_rows - start >= buffer_size + batch_size:
            yield tables.slice_rows(buffer, start, start + batch_size)
            start += batch_size
        buffer = tables.slice_rows(buffer, start, buffer.num_rows)
    if incoming:
        buffer = _permute([buffer, *incoming], random)
    for start in range(0, buffer.num_rows, batch_size):
        batch = tables.slice_rows(buffer, start, start + batch_size)
        if batch.num_rows == batch_size or not drop_last:
            yield batch


def _permute(parts: list[pa.Table], random: np.random.Generator) -> pa.Table:
    whole = tables.concat(parts)
    return tables.combine(tables.take(whole, random.permutation(whole.num_rows)))


def _check_size(name: str, size: int | None) -> None:
    if size is not None and size < 1:
        raise ValueError(f"{name} must be at least 1, got {size!r}")
