"""The prefixes of prompts that each replica has seen or cached."""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from skate.llm import CachedPrefixes

__all__ = ["KnownCache", "PrefixIndex", "PromptTokens"]

BLOCK = 64  # characters


class PrefixIndex:
    """Remember the prefixes of texts that each replica has seen, in blocks, as engines cache them.

    A block's key is a hash of the text up to the end of the block, so a matching block implies that all blocks before
    it match. When the index is full, it drops the least recently used blocks.

    >>> index = PrefixIndex(max_characters=1000)
    >>> index.insert("a" * 128, "replica 1")
    >>> index.match("a" * 64 + "b" * 64)
    {'replica 1': 64}

    Args:
        max_characters: The maximum number of characters to remember.
        target_characters: How many of them to keep when the index is full. Defaults to `max_characters`.
    """

    def __init__(self, max_characters: int, target_characters: int | None = None) -> None:
        self._limit = max(1, max_characters // BLOCK)
        self._target = max(1, min(target_characters or max_characters, max_characters) // BLOCK)
        self._blocks: OrderedDict[bytes, set[Hashable]] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}

    def insert(self, text: str, replica: Hashable) -> None:
        """Remember that a replica has seen a text."""
        for key in _keys(text):
            owners = self._blocks.setdefault(key, set())
            self._blocks.move_to_end(key)
            if replica not in owners:
                owners.add(replica)
                self._sizes[replica] = self._sizes.get(replica, 0) + 1
        if len(self._blocks) > self._limit:
            while len(self._blocks) > self._target:
                _, owners = self._blocks.popitem(last=False)
                for each in owners:
                    self._sizes[each] -= 1

    def match(self, text: str) -> dict[Hashable, int]:
        """Return the length of the longest prefix of a text that each replica has seen, in characters."""
        found: dict[Hashable, int] = {}
        matching: set[Hashable] | None = None
        for number, key in enumerate(_keys(text), 1):
            owners = self._blocks.get(key, set())
            matching = set(owners) if matching is None else matching & owners
            if not matching:
                break
            for replica in matching:
                found[replica] = number * BLOCK
        return found

    def size(self, replica: Hashable) -> int:
        """Return how many characters the index remembers for a replica."""
        return self._sizes.get(replica, 0) * BLOCK

    def keep_only(self, replicas: Iterable[Hashable]) -> None:
        """Forget all replicas but these."""
        gone = set(self._sizes) - set(replicas)
        if not gone:
            return
        for key, owners in list(self._blocks.items()):
            owners -= gone
            if not owners:
                del self._blocks[key]
        for replica in gone:
            del self._sizes[replica]


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """The tokens of a request, and what determines with which others it shares prefixes."""

    tokens: Sequence[int]
    salt: str
    adapter: str


class KnownCache:
    """The prefixes that a replica has reported, and those of the prompts that it was sent since then."""

    def __init__(self, stats: dict[str, Any]) -> None:
        self.stats = stats
        self._reported = CachedPrefixes(
            block_size=stats.get("block_size", 16),
            weights_version=stats.get("weights_version", 0),
            blocks=stats.get("blocks", b""),
        )
        self._sent: set[tuple[str, bytes]] = set()

    def missing(self, prompt: PromptTokens) -> int:
        """Return how many blocks of a prompt, the last of which may be incomplete, are not cached."""
        blocks = -(-len(prompt.tokens) // self._reported.block_size)
        reported = 0 if prompt.adapter else self._reported.count(prompt.tokens, prompt.salt)
        sent = sum(1 for _ in itertools.takewhile(self._sent.__contains__, self._keys(prompt)))
        return blocks - max(reported, sent)

    def add(self, prompt: PromptTokens) -> None:
        """Count a prompt as cached."""
        self._sent.update(self._keys(prompt))

    def _keys(self, prompt: PromptTokens) -> list[tuple[str, bytes]]:
        return [(prompt.adapter, key) for key in self._reported.keys(prompt.tokens, prompt.salt)]


def _keys(text: str) -> Iterator[bytes]:
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(text) - BLOCK + 1, BLOCK):
        digest.update(text[start : start + BLOCK].encode("utf-8", "surrogatepass"))
        yield digest.digest()
