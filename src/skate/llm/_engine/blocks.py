"""Blocks of the KV cache: who holds them, and which hold a prefix that another prompt may share."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence


def root_hash(*parts: object) -> bytes:
    """Return the hash that a chain of block hashes starts from.

    Prompts with different parts (weights, adapter, salt) share no block.
    """
    return hashlib.sha256(repr(parts).encode()).digest()


def block_hash(previous: bytes, tokens: Sequence[int]) -> bytes:
    """Return the hash of a full block: of its tokens and of every token before them."""
    return hashlib.sha256(previous + array("q", tokens).tobytes()).digest()


class BlockPool:
    """Hands out the blocks of the KV cache and counts their holders.

    A block that nobody holds keeps its content, and can be found by its hash, until it is handed out again: the least
    recently released first. Of two blocks with one hash, only the first can be found.

    Args:
        count: Number of blocks.
        block_size: Tokens in a block.
    """

    def __init__(self, count: int, block_size: int) -> None:
        self.count = count
        self.block_size = block_size
        self._holders = [0] * count
        self._hashes: list[bytes | None] = [None] * count
        self._blocks_by_hash: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))

    @property
    def free_count(self) -> int:
        """Number of blocks that nobody holds."""
        return len(self._free)

    def holders(self, block: int) -> int:
        """Return how many sequences hold a block."""
        return self._holders[block]

    def allocate(self, after: int | None = None) -> int | None:
        """Hand out a block, or return None if all are held.

        Args:
            after: Prefer the block behind this one, so that a sequence's blocks lie side by side.
        """
        if not self._free:
            return None
        if after is not None and after + 1 in self._free and self._hashes[after + 1] is None:
            block = after + 1
            del self._free[block]
        else:
            block, _ = self._free.popitem(last=False)
        self._forget(block)
        self._holders[block] = 1
        return block

    def find(self, hashes: Iterable[bytes]) -> list[int]:
        """Return the blocks of the longest prefix of a chain of hashes that is cached. They are not held yet."""
        blocks = []
        for each in hashes:
            block = self._blocks_by_hash.get(each)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def hold(self, blocks: Iterable[int]) -> None:
        """Add a holder to cached blocks."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Take a holder from blocks. The last ones are reused first: they end the prefixes that others may share."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None
                if self._hashes[block] is None:  # nothing to find in it: reuse it before any cached block
                    self._free.move_to_end(block, last=False)

    def register(self, block: int, content: bytes) -> None:
        """Let others find a held block, which is full and computed, by the hash of its content."""
        if content not in self._blocks_by_hash and self._hashes[block] is None:
            self._blocks_by_hash[content] = block
            self._hashes[block] = content

    def forget_all(self) -> None:
        """Let no cached prefix be found any more. Blocks stay with their holders."""
        self._blocks_by_hash.clear()
        self._hashes = [None] * self.count

    def _forget(self, block: int) -> None:
        content = self._hashes[block]
        if content is not None:
            del self._blocks_by_hash[content]
            self._hashes[block] = None
