"""Stands for `ray.data._internal.delegating_block_builder`: makes a block of rows, batches and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skate.data._block import batches, rows, tables
from skate.data.block import Block, BlockAccessor

__all__ = ["DelegatingBlockBuilder"]


class DelegatingBlockBuilder:
    """Collects rows, batches and blocks, in order, and concatenates them.

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
        """Return one block of everything that was added, and of `additional_blocks` after it."""
        self._finish_rows()
        return tables.concat([*self._blocks, *additional_blocks])

    def num_rows(self) -> int:
        """Return the number of rows that were added."""
        return len(self._rows) + sum(int(block.num_rows) for block in self._blocks)

    def get_estimated_memory_usage(self) -> int:
        """Return the bytes of everything that was added."""
        self._finish_rows()
        return sum(map(tables.nbytes, self._blocks))
