"""The KV cache, and attention over its blocks on a CPU."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from skate.llm._engine.model_config import FULL, ModelConfig


class KVCache:
    """Keys and values of every layer. A slot holds one token: slot `b * block_size + i` is token `i` of block `b`."""

    def __init__(
        self, config: ModelConfig, blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.block_size = block_size
        shape = (config.num_layers, 2, blocks * block_size, config.num_kv_heads, config.head_dim)
        # Untouched pages of `empty` take no memory on a CPU.
        self._slots = torch.empty(shape, dtype=dtype, device=device)

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and the values of a layer, each of shape `(slots, heads, head_dim)`."""
        return self._slots[index, 0], self._slots[index, 1]


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """One sequence of a step: `count` new tokens from position `start`, in these blocks."""

    start: int
    count: int
    blocks: Sequence[int]


class Attention(Protocol):
    """Attention of the tokens of one step, for every layer in turn."""

    def attend(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Store the new keys and values, and return what each new token attends to.

        All tensors have the shape `(tokens, heads, head_dim)`.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Row:
    tokens: slice  # of the step
    slots: slice | torch.Tensor  # of the cache, for every token of the sequence
    start: int
    count: int
    length: int


class PagedAttention:
    """Attention of each sequence over its own slots.

    The sequences are computed one by one, so the result of one does not depend on the others.
    """

    def __init__(self, config: ModelConfig, cache: KVCache, rows: Sequence[AttentionRow]) -> None:
        self._config = config
        self._cache = cache
        self._masks: dict[tuple[int, int, int], torch.Tensor] = {}
        self._rows = []
        new_slots = []
        first = 0
        for row in rows:
            length = row.start + row.count
            slots = _slots(row.blocks, length, cache.block_size)
            self._rows.append(_Row(slice(first, first + row.count), slots, row.start, row.count, length))
            if isinstance(slots, slice):
                new_slots.append(torch.arange(slots.start + row.start, slots.start + length))
            else:
                new_slots.append(slots[row.start :])
            first += row.count
        self._new_slots = torch.cat(new_slots)

    def attend(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Store the new keys and values, and return what each new token attends to."""
        cached_keys, cached_values = self._cache.layer(layer)
        cached_keys.index_copy_(0, self._new_slots, keys)
        cached_values.index_copy_(0, self._new_slots, values)
        output = torch.empty_like(queries)
        window = self._config.windows[layer]
        for row in self._rows:
            output[row.tokens] = self._attend_row(
                queries[row.tokens], cached_keys[row.slots], cached_values[row.slots], row, window
            )
        return output

    def _attend_row(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, row: _Row, window: int
    ) -> torch.Tensor:
        if window != FULL and row.count == 1:  # one token sees the end of the cache, without a mask
            keys, values = keys[-window:], values[-window:]
            window = FULL
        heads = self._config.num_kv_heads
        # Queries that share a key head lie side by side as further rows of it, so keys are not repeated.
        grouped = queries.view(row.count, heads, -1, self._config.head_dim).permute(1, 2, 0, 3)
        group = grouped.shape[1]
        flat = grouped.reshape(heads, group * row.count, self._config.head_dim)
        keys, values = keys.transpose(0, 1), values.transpose(0, 1)
        mask = self._mask(row, window, group)
        if self._config.attention_softcap is None:
            attended = functional.scaled_dot_product_attention(
                flat[None], keys[None], values[None], attn_mask=mask, scale=self._config.attention_scale
            )[0]
        else:
            attended = self._attend_with_softcap(flat, keys, values, mask, self._config.attention_softcap)
        return attended.view(heads, group, row.count, -1).permute(2, 0, 1, 3).reshape(queries.shape)

    def _attend_with_softcap(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor | None,
        softcap: float,
    ) -> torch.Tensor:
        scores = queries @ keys.transpose(1, 2) * self._config.attention_scale
        scores = torch.tanh(scores / softcap) * softcap
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return torch.softmax(scores, dim=-1) @ values

    def _mask(self, row: _Row, window: int, group: int) -> torch.Tensor | None:
        """Return which tokens each query sees, or None if it sees all; the layers of a step share it."""
        if row.count == 1:
            return None
        key = (row.start, row.count, window)
        mask = self._masks.get(key)
        if mask is None:
            seen = torch.arange(row.start, row.length)[:, None] - torch.arange(row.length)[None, :]
            mask = (seen >= 0) if window == FULL else (seen >= 0) & (seen < window)
            mask = self._masks[key] = mask.repeat(group, 1)
        return mask


def _slots(blocks: Sequence[int], length: int, block_size: int) -> slice | torch.Tensor:
    """Return the slots of a sequence's tokens: a slice, which needs no copy, if its blocks lie side by side."""
    used = blocks[: -(-length // block_size)]
    if used[-1] - used[0] == len(used) - 1 and all(b - a == 1 for a, b in itertools.pairwise(used)):
        return slice(used[0] * block_size, used[0] * block_size + length)
    first = torch.tensor(used, dtype=torch.int64) * block_size
    return (first[:, None] + torch.arange(block_size)).flatten()[:length]
