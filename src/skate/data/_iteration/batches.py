"""From blocks to what a program iterates over: rows, batches, tensors; some of it prepared ahead in a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from skate.data._block import batcher, batches, rows
from skate.data._exec.interruption import Interrupted, Interruption

T = TypeVar("T")
_NUMBER = "skate: number of the row"


class Reiterable(Generic[T]):
    """Can be iterated over more than once: each time from the start."""

    def __init__(self, start: Callable[[], Iterator[T]]) -> None:
        self._start = start

    def __iter__(self) -> Iterator[T]:
        return self._start()


def iter_block_rows(blocks: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    """Yield rows."""
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
    """Yield batches.

    Args:
        blocks: Where the rows come from.
        batch_size: Rows in a batch; None is a block at a time.
        batch_format: "numpy", "pandas", "pyarrow", "polars".
        drop_last: Leave out a last batch that has fewer rows.
        shuffle_buffer: Shuffle within as many rows.
        shuffle_seed: The same seed gives the same batches.
        prefetch: Batches that a thread prepares ahead.
        finish: What is made of each batch, in that thread.
        counted: Yield pairs: how many rows the batch is made of, or with a shuffle which ones, and the batch.
    """
    numbers = counted and shuffle_buffer is not None
    if numbers:
        blocks = _numbered(blocks)
    if shuffle_buffer is not None:
        cut = batcher.shuffle_batches(
            blocks, batch_size, shuffle_buffer, seed=shuffle_seed, drop_last=drop_last
        )
    else:
        cut = batcher.batch_blocks(blocks, batch_size, drop_last=drop_last)

    def prepared(block: pa.Table) -> Any:
        rows: Any = block.num_rows
        if numbers:
            rows = block.column(_NUMBER).to_numpy()
            block = block.drop_columns([_NUMBER])
        batch = batches.to_batch(block, batch_format)
        if finish is not None:
            batch = finish(batch)
        return (rows, batch) if counted else batch

    if prefetch <= 0:
        return (prepared(block) for block in cut)
    return ahead((prepared(block) for block in cut), prefetch)


def _numbered(blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield blocks with one more column: the place of each row among all of them."""
    start = 0
    for block in blocks:
        yield block.append_column(_NUMBER, pa.array(np.arange(start, start + block.num_rows)))
        start += block.num_rows


def ahead(values: Iterator[T], count: int) -> Iterator[T]:
    """Yield the same values, of which a thread prepares some ahead.

    The thread ends with the values, or when nobody wants more of them.
    """
    shelf: _PrefetchBuffer[T] = _PrefetchBuffer(count)
    thread = threading.Thread(target=shelf.fill, args=(values,), name="skate-data-batches", daemon=True)
    thread.start()
    try:
        yield from shelf
    finally:
        shelf.stop()
        thread.join()


def changed(values: Iterator[T], function: Callable[[T], Any]) -> Iterator[Any]:
    """Yield what a function makes of each value; whoever leaves early ends what makes the values."""
    try:
        for value in values:
            yield function(value)
    finally:
        close = getattr(values, "close", None)
        if close is not None:
            close()


class _PrefetchBuffer(Generic[T]):
    """Values that one thread has prepared and another has not taken yet."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._values: deque[T] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        self._interruption = Interruption()

    def fill(self, values: Iterator[T]) -> None:
        """Put values here, as there is room, until they end or nobody wants more."""
        self._interruption.install()
        try:
            for value in values:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._values) < self._room or self._stopped)
                    if self._stopped:
                        break
                    self._values.append(value)
                    self._changed.notify_all()
        except Interrupted:
            pass  # `stop` was called
        except BaseException as error:  # whoever takes the values is the one to judge it
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
        """Want no more, and end the wait for blocks."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._interruption.set()
