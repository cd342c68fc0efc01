"""The KV cache, and attention over its blocks on a CPU."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from skate.llm._engine.model_config import FULL, ModelConfig
from skate.llm._engine.rope import rotate

# Sequences that generate are padded to a multiple of `_PADDING` tokens, up to `_LONGEST_PADDED`. Longer ones take a
# call of a kernel each, which costs less than a copy of their keys and values.
_PADDING = 64
_LONGEST_PADDED = 512
_MOST_COPIED = 512 << 20  # bytes of their keys and values that are kept from one step to the next

KeysValues: TypeAlias = "np.ndarray[Any, Any] | torch.Tensor"


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A copy of keys and values in the memory of the host, which may be on its way from a GPU.

    Args:
        values: The keys and values, as `PrefilledPrompt` has them.
        is_done: Happens when the copy is complete; None if it is.
    """

    values: np.ndarray[Any, Any]
    is_done: torch.cuda.Event | None = None

    async def wait(self) -> None:
        """Wait until the copy is complete."""
        if self.is_done is not None:
            await asyncio.to_thread(self.is_done.synchronize)


class KVCache:
    """Keys and values of every layer. A slot holds one token: slot `b * block_size + i` is token `i` of block `b`."""

    def __init__(
        self, config: ModelConfig, blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.blocks = blocks
        self.block_size = block_size
        shape = (config.num_layers, 2, blocks * block_size, config.num_kv_heads, config.head_dim)
        # Zeros, because slots that have not been written may be read and masked. They take no memory on a CPU.
        self._slots = torch.zeros(shape, dtype=dtype, device=device)
        self.batches: dict[int, BatchCopy] = {}  # of the last step, by padded length
        # Copies to the host run beside the steps.
        self._copies: torch.cuda.Stream | None = None
        if self._slots.is_cuda:
            self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys and the values of a layer, each of shape `(slots, heads, head_dim)`."""
        return self._slots[index, 0], self._slots[index, 1]

    def read(self, blocks: Sequence[int], count: int) -> HostCopy:
        """Copy the keys and values of the first tokens of a sequence to the memory of the host."""
        slots = torch.tensor(_new_slots(AttentionRow(0, count, blocks), self.block_size))
        found = self._slots.index_select(2, slots.to(self._slots.device))
        if self._copies is None:
            return HostCopy(_as_numpy(found))
        self._copies.wait_stream(torch.cuda.current_stream(found.device))
        with torch.cuda.stream(self._copies):
            copy = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
            copy.copy_(found, non_blocking=True)
            is_done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            is_done.record()
        found.record_stream(self._copies)
        return HostCopy(_as_numpy(copy), is_done)

    def write(self, blocks: Sequence[int], start: int, count: int, values: KeysValues) -> None:
        """Write the keys and values of some tokens of a sequence.

        Args:
            blocks: The blocks of the sequence.
            start: The position of the first token to write.
            count: The number of tokens to write.
            values: The keys and values of the sequence from its first token on; for a GPU, what `stage` returned.
        """
        self.batches = {}
        slots = torch.tensor(_new_slots(AttentionRow(start, count, blocks), self.block_size))
        part = slice(start, start + count)
        if isinstance(values, torch.Tensor):
            values = values.to(self._slots.device, non_blocking=True)
            self._slots[:, :, slots.to(self._slots.device)] = values[:, :, part]
        else:
            _as_numpy(self._slots)[:, :, slots.numpy()] = values[:, :, part]


def stage(values: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """Copy keys and values to memory from which a GPU reads while the host goes on.

    It takes milliseconds, and may be called from any thread.
    """
    staged = torch.empty(values.shape, dtype=dtype, pin_memory=True)
    _as_numpy(staged)[...] = values
    return staged


def _as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return an array that shares the memory of a tensor. NumPy has no bfloat16, so its numbers become integers."""
    return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy()


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """One sequence of a step: `count` new tokens from position `start`, in these blocks."""

    start: int
    count: int
    blocks: Sequence[int]


class Attention(Protocol):
    """Attention of the tokens of one step, for every layer in turn."""

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        rotations: torch.Tensor | None,
    ) -> torch.Tensor:
        """Store the new keys and values, and return what each new token attends to.

        Queries, keys, values and the result have the shape `(tokens, heads, head_dim)`.

        Args:
            rotations: For each token, what rotates its query and its key; None does not rotate them.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Row:
    """A sequence that is computed alone: a part of a prompt, or the next token of a long sequence."""

    tokens: slice  # of the step
    slots: slice | torch.Tensor  # of the cache, for every token of the sequence
    start: int
    count: int
    length: int


class BatchCopy:
    """Copies of the keys and values of several short sequences, one sequence after another, for each layer.

    If the next step has the same sequences, it only adds a token to each: copying everything takes a seventh of a step.

    Args:
        rows: The sequences, with one new token each.
        padded: The length to which they are padded.
        block_size: The number of tokens in a block.
        before: The copies of the last step for this padded length.
    """

    def __init__(
        self, rows: Sequence[AttentionRow], padded: int, block_size: int, before: BatchCopy | None
    ) -> None:
        # The sequences are those of the last step if their blocks are, up to its token.
        self._sequences = [(row.start + 1, tuple(row.blocks[: row.start // block_size + 1])) for row in rows]
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        if before is not None and before._is_followed_by(rows):
            self._layers = before._layers
        self._last = torch.tensor([number * padded + row.start for number, row in enumerate(rows)])

    def _is_followed_by(self, rows: Sequence[AttentionRow]) -> bool:
        return len(rows) == len(self._sequences) and all(
            row.start == length and tuple(row.blocks[: len(blocks)]) == blocks
            for row, (length, blocks) in zip(rows, self._sequences, strict=True)
        )

    def extended(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Add the last token of each sequence to the copies of a layer, and return them; None if there are none."""
        copies = self._layers.get(layer)
        if copies is not None:
            for copy, new in zip(copies, (keys, values), strict=True):
                copy.view(-1, new.shape[1] * new.shape[2]).index_copy_(0, self._last, new.flatten(1))
        return copies

    def keep(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep the copies of a layer for the next step, unless they are large."""
        if keys.nbytes * 2 * (layer + 1) <= _MOST_COPIED:
            self._layers[layer] = keys, values


@dataclass(frozen=True, slots=True)
class _Batch:
    """The next tokens of several short sequences, which are padded to one length."""

    tokens: torch.Tensor  # of the step
    blocks: torch.Tensor  # of the cache, of one sequence after another
    lengths: torch.Tensor  # of the sequences: (sequences, 1)
    copy: BatchCopy


class PagedAttention:
    """Attention of each sequence over its own slots.

    A sequence that generates is padded to a multiple of `_PADDING` tokens, and computed with others of the same padded
    length. So its result does not depend on the others, and short sequences do not cost a call of a kernel each.
    """

    def __init__(self, config: ModelConfig, cache: KVCache, rows: Sequence[AttentionRow]) -> None:
        self._config = config
        self._cache = cache
        self._masks: dict[tuple[int, int, int], torch.Tensor] = {}
        self._rows: list[_Row] = []
        new_slots: list[int] = []
        short: dict[int, list[tuple[int, AttentionRow]]] = {}
        first = 0
        for row in rows:
            length = row.start + row.count
            new_slots += _new_slots(row, cache.block_size)
            if row.count == 1 and length <= _LONGEST_PADDED:
                short.setdefault(-(-length // _PADDING), []).append((first, row))
            else:
                slots = _slots(row.blocks, length, cache.block_size)
                self._rows.append(_Row(slice(first, first + row.count), slots, row.start, row.count, length))
            first += row.count
        # The copies of a step before the last one may have been overtaken by what other sequences wrote.
        before, cache.batches = cache.batches, {}
        self._batches = [self._batch(padded * _PADDING, members, before) for padded, members in short.items()]
        self._new_slots = torch.tensor(new_slots)

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        rotations: torch.Tensor | None,
    ) -> torch.Tensor:
        """Store the new keys and values, and return what each new token attends to."""
        if rotations is not None:
            both = rotate(torch.cat((queries, keys), dim=1), rotations)  # half as many calls
            heads = queries.shape[1]
            queries, keys = both[:, :heads], both[:, heads:]
        cached_keys, cached_values = self._cache.layer(layer)
        cached_keys.index_copy_(0, self._new_slots, keys)
        cached_values.index_copy_(0, self._new_slots, values)
        if not self._rows and len(self._batches) == 1:  # it has all tokens of the step, in their order
            return self._attend_batch(layer, queries, (keys, values), self._batches[0])
        output = torch.empty_like(queries)
        for batch in self._batches:
            chosen, new_keys, new_values = (
                each.index_select(0, batch.tokens) for each in (queries, keys, values)
            )
            attended = self._attend_batch(layer, chosen, (new_keys, new_values), batch)
            output.index_copy_(0, batch.tokens, attended)
        window = self._config.windows[layer]
        for row in self._rows:
            output[row.tokens] = self._attend_row(
                queries[row.tokens], cached_keys[row.slots], cached_values[row.slots], row, window
            )
        return output

    def _batch(
        self, padded: int, members: Sequence[tuple[int, AttentionRow]], before: dict[int, BatchCopy]
    ) -> _Batch:
        size = self._cache.block_size
        count = -(-padded // size)
        rows = [row for _, row in members]
        # Blocks beyond the end are masked; any existing block will do.
        tables = [(*row.blocks[:count], *[0] * (count - len(row.blocks))) for row in rows]
        copy = self._cache.batches[padded] = BatchCopy(rows, count * size, size, before.get(padded))
        return _Batch(
            tokens=torch.tensor([first for first, _ in members]),
            blocks=torch.tensor(tables).flatten(),
            lengths=torch.tensor([[row.start + 1] for row in rows]),
            copy=copy,
        )

    def _attend_batch(
        self,
        layer: int,
        queries: torch.Tensor,
        new: tuple[torch.Tensor, torch.Tensor],
        batch: _Batch,
    ) -> torch.Tensor:
        """Attend with the next token of each sequence, whose key and value are `new`."""
        copies = batch.copy.extended(layer, *new)
        if copies is None:
            keys, values = (self._copy_blocks(cached, batch) for cached in self._cache.layer(layer))
            batch.copy.keep(layer, keys, values)
        else:
            keys, values = copies
        heads = self._config.num_kv_heads
        grouped = queries.view(queries.shape[0], heads, -1, self._config.head_dim)
        mask = self._batch_mask(batch, keys.shape[1], self._config.windows[layer])
        attended = self._attend(grouped, keys.transpose(1, 2), values.transpose(1, 2), mask)
        return attended.reshape(queries.shape)

    def _copy_blocks(self, cached: torch.Tensor, batch: _Batch) -> torch.Tensor:
        """Return the keys or values of each sequence, of shape `(sequences, tokens, heads, head_dim)`."""
        heads, head_dim = cached.shape[1:]
        whole = cached.view(-1, self._cache.block_size * heads * head_dim).index_select(0, batch.blocks)
        return whole.view(len(batch.lengths), -1, heads, head_dim)

    def _batch_mask(self, batch: _Batch, padded: int, window: int) -> torch.Tensor:
        key = (padded, -1, window)
        mask = self._masks.get(key)
        if mask is None:
            position = torch.arange(padded)[None]
            mask = position < batch.lengths
            if window != FULL:
                mask &= position >= batch.lengths - window
            mask = self._masks[key] = mask[:, None, None]
        return mask

    def _attend_row(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, row: _Row, window: int
    ) -> torch.Tensor:
        if window != FULL and row.count == 1:  # one token sees the end of the cache, without a mask
            keys, values = keys[-window:], values[-window:]
            window = FULL
        heads = self._config.num_kv_heads
        # Queries that share a key head are stored side by side as additional rows, so keys are not repeated.
        grouped = queries.view(row.count, heads, -1, self._config.head_dim).permute(1, 2, 0, 3)
        group = grouped.shape[1]
        flat = grouped.reshape(1, heads, group * row.count, self._config.head_dim)
        attended = self._attend(
            flat, keys.transpose(0, 1)[None], values.transpose(0, 1)[None], self._mask(row, window, group)
        )
        return attended.view(heads, group, row.count, -1).permute(2, 0, 1, 3).reshape(queries.shape)

    def _attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Attend with tensors of shape `(sequences, heads, tokens, head_dim)`."""
        scale, softcap = self._config.attention_scale, self._config.attention_softcap
        if softcap is None:
            return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        scores = torch.tanh(queries @ keys.transpose(2, 3) * scale / softcap) * softcap
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


def _new_slots(row: AttentionRow, block_size: int) -> list[int]:
    """Return the slots of a row's new tokens."""
    return [
        row.blocks[position // block_size] * block_size + position % block_size
        for position in range(row.start, row.start + row.count)
    ]


def _slots(blocks: Sequence[int], length: int, block_size: int) -> slice | torch.Tensor:
    """Return the slots of a sequence's tokens: a slice, which needs no copy, if its blocks lie side by side."""
    used = blocks[: -(-length // block_size)]
    if used[-1] - used[0] == len(used) - 1 and all(b - a == 1 for a, b in itertools.pairwise(used)):
        return slice(used[0] * block_size, used[0] * block_size + length)
    first = torch.tensor(used, dtype=torch.int64) * block_size
    return (first[:, None] + torch.arange(block_size)).flatten()[:length]
