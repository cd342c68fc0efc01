"""Stand-in for `ray.data._internal.delegating_block_builder`: builds a block from rows, batches and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skate.data._block import batches, rows, tables
from skate.data.block import Block, BlockAccessor

__all__ = ["DelegatingBlockBuilder"]


class DelegatingBlockBuilder:
    """Collect rows, batches and blocks in order, and concatenate them.

    >>> builder = DelegatingBlockBuilder()
    >>> builder.add({"x": 1})
    >>> builder.add_batch({"x": [2, 3]})
    >>> builder.build().to_pydict()
    {'x': [1, 2, 3]}
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._rows: list[Mapping[str, Any]] = []

    def add(self, item: Mapping[str, Any]) -> None:
        """Add a row."""
        self._rows.append(item)

    def add_batch(self, batch: Any) -> None:
        """Add a batch of any format."""
        self.add_block(batches.to_block(batch))

    def add_block(self, block: Block) -> None:
        """Add a block."""
        self._finish_rows()
        self._blocks.append(BlockAccessor.for_block(block).to_block())

    def _finish_rows(self) -> None:
        if self._rows:
            self._blocks.append(rows.to_block(self._rows))
            self._rows = []

    def build(self, *, additional_blocks: Sequence[Block] = ()) -> Block:
        """Return everything that was added, followed by `additional_blocks`, as one block."""
        self._finish_rows()
        return tables.concat([*self._blocks, *additional_blocks])

    def num_rows(self) -> int:
        """Return the number of rows added."""
        return len(self._rows) + sum(int(block.num_rows) for block in self._blocks)

    def get_estimated_memory_usage(self) -> int:
        """Return the size of everything added, in bytes."""
        self._finish_rows()
        return sum(map(tables.nbytes, self._blocks))
