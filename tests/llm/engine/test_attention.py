"""Attention on a CPU: short sequences are computed together, and their keys and values are copied once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from tests.llm.engine.tiny_models import CPU, decoder_of

CONFIG = decoder_of("llama").config
BLOCK_SIZE, BLOCKS = 4, 64
A, B, C = tuple(range(20)), tuple(range(20, 40)), tuple(range(40, 60))


class Steps:
    """A sequence of steps, each computed with and without the copies of the step before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._generator = torch.Generator().manual_seed(1)
        self._caches = [KVCache(CONFIG, BLOCKS, BLOCK_SIZE, torch.float32, CPU) for _ in range(2)]
        self.copied = 0
        copy_blocks = PagedAttention._copy_blocks

        def count(attention: PagedAttention, *args: object) -> torch.Tensor:
            self.copied += attention._cache is self._caches[0]
            return copy_blocks(attention, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(PagedAttention, "_copy_blocks", count)

    def step(self, *rows: tuple[int, int, Sequence[int]]) -> int:
        """Compute a step; return how often keys or values were copied."""
        self.copied = 0
        count = sum(new for _, new, _ in rows)
        queries = torch.randn(count, CONFIG.num_heads, CONFIG.head_dim, generator=self._generator)
        keys, values = torch.randn(2, count, CONFIG.num_kv_heads, CONFIG.head_dim, generator=self._generator)
        self._caches[1].batches = {}
        results = [
            PagedAttention(CONFIG, cache, [AttentionRow(*row) for row in rows]).attend(
                0, queries, keys, values, None
            )
            for cache in self._caches
        ]
        assert torch.equal(*results)
        return self.copied


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def test_sequences_that_continue_are_copied_once(steps: Steps) -> None:
    steps.step((0, 6, A), (0, 3, B))
    assert steps.step((6, 1, A), (3, 1, B)) == 2
    assert [steps.step((6 + each, 1, A), (3 + each, 1, B)) for each in range(1, 20)] == [0] * 19


def test_a_sequence_that_gets_another_block_is_not_copied_again(steps: Steps) -> None:
    steps.step((0, 2, A[:1]))
    steps.step((2, 1, A[:1]))
    assert steps.step((3, 1, A[:1])) == 0
    assert steps.step((4, 1, A[:2])) == 0


def test_longer_sequences_are_copied_when_their_padding_grows(steps: Steps) -> None:
    steps.step((0, 62, A))
    assert [steps.step((62 + each, 1, A)) for each in range(5)] == [2, 0, 2, 0, 0]


def test_other_sequences_are_copied(steps: Steps) -> None:
    steps.step((0, 5, A), (0, 5, B), (0, 5, C))
    steps.step((5, 1, A), (5, 1, B), (5, 1, C))
    assert steps.step((6, 1, A), (6, 1, C)) == 2, "one has ended"
    assert steps.step((7, 1, C), (7, 1, A)) == 2, "their order has changed"


def test_blocks_that_another_sequence_has_filled_meanwhile_are_copied(steps: Steps) -> None:
    steps.step((0, 5, A), (0, 5, B))
    steps.step((5, 1, A), (5, 1, B))
    steps.step((0, 6, A), (6, 1, B))
    assert steps.step((6, 1, A), (7, 1, B)) == 2


def test_keys_and_values_from_another_engine_are_copied(steps: Steps) -> None:
    steps.step((0, 5, A))
    steps.step((5, 1, A))
    for cache in steps._caches:
        values = cache.read(A, 6).values
        cache.write(A, 0, 6, values * 2)
    assert steps.step((6, 1, A)) == 2


def test_large_copies_are_not_kept(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skate.llm._engine.attention._MOST_COPIED", 1000)
    steps.step((0, 5, A))
    assert [steps.step((5 + each, 1, A)) for each in range(3)] == [2, 2, 2]
