"""Hybrid search: BM25 and vectors, joined by reciprocal rank fusion. Nothing here imports torch.

faiss and torch each bring an OpenMP runtime, which disturb each other in one process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rag.store import Passage, Store

RRF_CONSTANT = 60  # of the original paper: how little the first ranks count more than the next
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")


def fuse(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Return the ids of several rankings, ordered by the sum of `1 / (60 + rank)`.

    Example:
        >>> fuse([[1, 2, 3], [3, 1]])
        [1, 3, 2]
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, id in enumerate(ranking, 1):
            scores[id] = scores.get(id, 0.0) + 1 / (RRF_CONSTANT + rank)
    return sorted(scores, key=lambda id: -scores[id])


class HybridIndex:
    """Searches a store. The vectors are in memory, and are loaded again when the file has changed.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        import faiss

        self._faiss = faiss
        self._store = Store(path)
        self._load()

    def _load(self) -> None:
        self._version = self._store.version()
        self._ids, vectors = self._store.vectors()
        self._index = self._faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)

    def search(self, question: str, vector: np.ndarray, limit: int) -> list[Passage]:
        """Return the passages that match the question's words or its vector, the best first."""
        if self._store.version() != self._version:
            self._load()
        if not len(self._ids):
            return []
        depth = 2 * limit  # a passage that both rankings have may be below the limit in each
        _, rows = self._index.search(
            np.asarray(vector, np.float32).reshape(1, -1), min(depth, len(self._ids))
        )
        by_vector = self._ids[rows[0]].tolist()
        by_words = self._store.match_words(question, depth)
        return self._store.passages(fuse([by_vector, by_words])[:limit])

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def count(self) -> tuple[int, int]:
        """Return the numbers of documents and of chunks."""
        return self._store.count()


def windows(text: str, size: int = 240) -> list[str]:
    """Split a passage into runs of whole sentences of up to `size` characters, or one longer sentence.

    Example:
        >>> windows("One. Two. Three.", size=10)
        ['One. Two.', 'Three.']
    """
    ends = [*(match.end() for match in _SENTENCE.finditer(text)), len(text)]
    made: list[str] = []
    start = last = 0
    for end in ends:
        if end - start > size and last > start:
            made.append(text[start:last].strip())
            start = last
        last = end
    made.append(text[start:].strip())
    return [each for each in made if each]
