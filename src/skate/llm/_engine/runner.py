"""Runs the steps that the scheduler plans."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.scheduler import Step


class Runner:
    """Computes steps with a decoder and its KV cache, on a CPU."""

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        self._decoder = decoder
        self._cache = cache

    @torch.inference_mode()
    def run(self, step: Step) -> torch.Tensor:
        """Compute a step, and return the logits of the rows that sample, in their order."""
        tokens: list[int] = []
        positions: list[int] = []
        rows = []
        last = []
        for row in step.rows:
            end = row.start + row.count
            tokens += row.sequence.tokens[row.start : end]
            positions += range(row.start, end)
            rows.append(AttentionRow(row.start, row.count, row.sequence.blocks))
            if row.samples:
                last.append(len(tokens) - 1)
        hidden = self._decoder.forward(
            torch.tensor(tokens),
            torch.tensor(positions),
            PagedAttention(self._decoder.config, self._cache, rows),
        )
        return self._decoder.logits(hidden[torch.tensor(last, dtype=torch.int64)])

    @torch.inference_mode()
    def embed(self, prompt: Sequence[int]) -> list[float]:
        """Return the mean of the last hidden states of a prompt, scaled to length 1."""
        config, size = self._decoder.config, self._cache.block_size
        blocks = -(-len(prompt) // size)
        cache = KVCache(config, blocks, size, self._decoder.dtype, self._decoder.device)
        attention = PagedAttention(config, cache, [AttentionRow(0, len(prompt), range(blocks))])
        hidden = self._decoder.forward(torch.tensor(prompt), torch.arange(len(prompt)), attention)
        vector: list[float] = functional.normalize(hidden.float().mean(dim=0), dim=0).tolist()
        return vector
