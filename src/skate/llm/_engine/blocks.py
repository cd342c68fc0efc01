"""The blocks of the KV cache: their reference counts, and the prefixes in them that other prompts can share."""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence


def root_hash(*parts: object) -> bytes:
    """Return the first hash of a chain of block hashes.

    Prompts with different parts (weights, adapter, salt) share no block.
    """
    return hashlib.sha256(repr(parts).encode()).digest()


def block_hash(previous: bytes, tokens: Sequence[int]) -> bytes:
    """Return the hash of a full block, which covers its tokens and all tokens before them."""
    return hashlib.sha256(previous + array("q", tokens).tobytes()).digest()


class CachedPrefixes:
    """The prefixes of prompts that an engine has cached, as it reports them to other processes.

    Args:
        block_size: The number of tokens in a block.
        weights_version: The version of the engine's weights.
        blocks: The starts of the hashes of cached blocks, one after another.

    >>> empty = CachedPrefixes(block_size=2, weights_version=0, blocks=b"")
    >>> report = b"".join(empty.keys([1, 2, 3, 4, 5]))
    >>> CachedPrefixes(block_size=2, weights_version=0, blocks=report).count([1, 2, 3, 9])
    1
    """

    KEY = 8  # bytes of a hash

    def __init__(self, *, block_size: int, weights_version: int, blocks: bytes) -> None:
        self.block_size = block_size
        self.weights_version = weights_version
        self.blocks = blocks
        self._keys = {blocks[at : at + self.KEY] for at in range(0, len(blocks), self.KEY)}

    def keys(self, prompt: Sequence[int], cache_salt: str = "") -> list[bytes]:
        """Return the keys of the full blocks of a prompt without an adapter."""
        previous = root_hash(self.weights_version, None, cache_salt)
        found = []
        for start in range(0, len(prompt) - self.block_size + 1, self.block_size):
            previous = block_hash(previous, prompt[start : start + self.block_size])
            found.append(previous[: self.KEY])
        return found

    def count(self, prompt: Sequence[int], cache_salt: str = "") -> int:
        """Return how many blocks of a prompt are cached."""
        return sum(1 for _ in itertools.takewhile(self._keys.__contains__, self.keys(prompt, cache_salt)))


class BlockPool:
    """Allocates the blocks of the KV cache and counts their holders.

    A free block keeps its content, and can be found by its hash, until it is allocated again. The least recently
    released block is allocated first. Of two blocks with the same hash, only the first can be found.

    Args:
        count: The number of blocks.
        block_size: The number of tokens in a block.
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
        """The number of free blocks."""
        return len(self._free)

    def holders(self, block: int) -> int:
        """Return the number of sequences that hold a block."""
        return self._holders[block]

    def allocate(self, after: int | None = None) -> int | None:
        """Allocate a block, or return None if no block is free.

        Args:
            after: Prefer the block that follows this one, so that the blocks of a sequence are contiguous.
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
        """Return the blocks of the longest cached prefix of a chain of hashes. They are not held yet."""
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
        """Remove a holder from blocks. The last blocks are reused first, because they are the ends of prefixes."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None
                if self._hashes[block] is None:  # not cached, so it is reused before any cached block
                    self._free.move_to_end(block, last=False)

    def register(self, block: int, content: bytes) -> None:
        """Make a full and computed block available to others by the hash of its content."""
        if content not in self._blocks_by_hash and self._hashes[block] is None:
            self._blocks_by_hash[content] = block
            self._hashes[block] = content

    def latest_hashes(self, count: int) -> list[bytes]:
        """Return the hashes of cached blocks, at most this many of those that were registered last."""
        return list(itertools.islice(reversed(self._blocks_by_hash), count))

    def forget_all(self) -> None:
        """Forget all cached prefixes. Blocks stay with their holders."""
        self._blocks_by_hash.clear()
        self._hashes = [None] * self.count

    def _forget(self, block: int) -> None:
        content = self._hashes[block]
        if content is not None:
            del self._blocks_by_hash[content]
            self._hashes[block] = None
