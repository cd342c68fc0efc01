"""What flows through a plan: blocks, or rows of them, with what is known about them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import skate
from skate.data._block import tables

_WORTH_STORING = 1024 * 1024  # bytes; less goes with every task that needs it


@dataclass(frozen=True, slots=True)
class Report:
    """What whoever made a block tells about it, and about the work since the block before."""

    rows: int
    bytes: int
    schema: pa.Schema
    files: tuple[str, ...] = ()
    seconds: float = 0.0  # all of the work
    user_seconds: float = 0.0  # in functions that the user wrote
    host: str = ""
    process: int = 0
    memory: int = 0  # resident and its own, of that process
    notes: dict[str, Any] = field(
        default_factory=dict
    )  # what a step counts besides: rows dropped, files written


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Rows `start` to `start + rows` of a block.

    The block is a reference to shared memory, or the table itself where the plan runs in this process. Cutting an item
    touches no data: whoever uses it slices the block.
    """

    block: Any
    rows: int
    bytes: int
    schema: pa.Schema
    start: int = 0
    files: tuple[str, ...] = ()
    whole: int = -1  # rows of the block
    unit: Any = None  # in a write that can be resumed: what the rows are part of

    def __post_init__(self) -> None:
        if self.whole < 0:
            object.__setattr__(self, "whole", self.rows)

    @classmethod
    def of(cls, block: Any, report: Report) -> Item:
        """Return the item for a whole block."""
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
        """Return the rows of this item, given its block."""
        return (
            block if self.rows == self.whole else tables.slice_rows(block, self.start, self.start + self.rows)
        )


def fetch_rows(item: Item) -> pa.Table:
    """Return the rows of an item, wherever its block is."""
    block = item.block if isinstance(item.block, pa.Table) else skate.get(item.block)
    return item.table(block)


def stored(item: Item) -> Item:
    """Return an item to keep: if there is a session, a large block is in its store, where tasks find it.

    There it is also spilled if need be, which a table of this process is not.
    """
    if not isinstance(item.block, pa.Table) or item.bytes <= _WORTH_STORING or not skate.is_initialized():
        return item
    block = tables.compact(item.table(item.block))
    return replace(item, block=skate.put(block), start=0, whole=item.rows)
