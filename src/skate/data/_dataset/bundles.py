"""The blocks of a dataset with what is known of them, for programs that work on blocks themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from skate.data.block import BlockMetadata


class BlockEntry(NamedTuple):
    """A reference to a block, and what is known of the block."""

    ref: Any
    metadata: BlockMetadata


@dataclass(frozen=True)
class RefBundle:
    """Blocks that belong together."""

    blocks: tuple[BlockEntry, ...]
    schema: pa.Schema | None = None
    owns_blocks: bool = False

    @property
    def block_refs(self) -> list[Any]:
        """References to the blocks."""
        return [entry.ref for entry in self.blocks]

    @property
    def metadata(self) -> list[BlockMetadata]:
        """What is known of each block."""
        return [entry.metadata for entry in self.blocks]

    def num_rows(self) -> int:
        """Return the number of rows of all blocks."""
        return sum(each.num_rows or 0 for each in self.metadata)

    def size_bytes(self) -> int:
        """Return the bytes of all blocks."""
        return sum(each.size_bytes or 0 for each in self.metadata)
