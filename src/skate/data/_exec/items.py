"""Items: blocks, or slices of blocks, with their metadata, as operators exchange them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import skate
from skate.data._block import tables

_MIN_STORED_BYTES = 1024 * 1024  # smaller blocks are passed by value to each task


@dataclass(frozen=True, slots=True)
class Report:
    """Metadata of a block, and the cost of the work since the previous block of its task."""

    rows: int
    bytes: int
    schema: pa.Schema
    files: tuple[str, ...] = ()
    seconds: float = 0.0
    user_seconds: float = 0.0  # time in functions of the user
    host: str = ""
    process: int = 0
    memory: int = 0  # private resident memory of the process, in bytes
    notes: dict[str, Any] = field(default_factory=dict)  # further counters, such as failed rows


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Rows `start` to `start + rows` of a block.

    The block is a reference to shared memory or, if the plan runs in this process, a table. Cutting an item copies no
    data: `table` slices the block.
    """

    block: Any
    rows: int
    bytes: int
    schema: pa.Schema
    start: int = 0
    files: tuple[str, ...] = ()
    whole: int = -1  # number of rows of the block
    unit: Any = None  # the unit of the rows in a resumable write

    def __post_init__(self) -> None:
        if self.whole < 0:
            object.__setattr__(self, "whole", self.rows)

    @classmethod
    def of(cls, block: Any, report: Report) -> Item:
        """Return the item of a whole block."""
        return cls(block, report.rows, report.bytes, report.schema, files=report.files)

    def cut(self, start: int, stop: int) -> Item:
        """Return rows `start` to `stop` of this item."""
        if start == 0 and stop == self.rows:
            return self
        rows = stop - start
        return replace(
            self,
            start=self.start + start,
            rows=rows,
            bytes=self.bytes * rows // self.rows if self.rows else 0,
        )

    def table(self, block: pa.Table) -> pa.Table:
        """Return the rows of this item from its block."""
        return (
            block if self.rows == self.whole else tables.slice_rows(block, self.start, self.start + self.rows)
        )


def fetch_rows(item: Item) -> pa.Table:
    """Return the rows of an item; fetch its block if it is a reference."""
    block = item.block if isinstance(item.block, pa.Table) else skate.get(item.block)
    return item.table(block)


def store_block(item: Item) -> Item:
    """Return the item with a large block moved to the object store, if a session exists.

    The store shares the block with tasks and can spill it, unlike a table of this process.
    """
    if not isinstance(item.block, pa.Table) or item.bytes <= _MIN_STORED_BYTES or not skate.is_initialized():
        return item
    block = tables.compact(item.table(item.block))
    return replace(item, block=skate.put(block), start=0, whole=item.rows)
