"""Runs the steps that the scheduler plans."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from skate.llm._engine.adapters import AdaptedRows, Adapter
from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.scheduler import Step


class Runner:
    """Computes steps with a decoder and its KV cache, on a CPU."""

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        self.decoder = decoder
        self._cache = cache

    @torch.inference_mode()
    def run(self, step: Step, adapters: Sequence[Adapter | None] = ()) -> torch.Tensor:
        """Compute a step, and return the logits of the rows that sample, in their order.

        Args:
            step: What to compute.
            adapters: The adapter of each row, if any row has one.
        """
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
        hidden = self.decoder.forward(
            torch.tensor(tokens),
            torch.tensor(positions),
            PagedAttention(self.decoder.config, self._cache, rows),
            _adapted_rows(step, adapters),
        )
        return self.decoder.logits(hidden[torch.tensor(last, dtype=torch.int64)])

    @torch.inference_mode()
    def embed(self, prompt: Sequence[int]) -> list[float]:
        """Return the mean of the last hidden states of a prompt, scaled to length 1."""
        config, size = self.decoder.config, self._cache.block_size
        blocks = -(-len(prompt) // size)
        cache = KVCache(config, blocks, size, self.decoder.dtype, self.decoder.device)
        attention = PagedAttention(config, cache, [AttentionRow(0, len(prompt), range(blocks))])
        hidden = self.decoder.forward(torch.tensor(prompt), torch.arange(len(prompt)), attention)
        vector: list[float] = functional.normalize(hidden.float().mean(dim=0), dim=0).tolist()
        return vector


def _adapted_rows(step: Step, adapters: Sequence[Adapter | None]) -> list[AdaptedRows]:
    """Return the rows of each adapter that the step uses."""
    rows: dict[Adapter, list[int]] = {}
    first = 0
    for row, adapter in zip(step.rows, adapters, strict=False):
        if adapter is not None:
            rows.setdefault(adapter, []).extend(range(first, first + row.count))
        first += row.count
    return [AdaptedRows(adapter, torch.tensor(each)) for adapter, each in rows.items()]
