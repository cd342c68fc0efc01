"""Attention over the blocks of the KV cache on a GPU, by one Triton kernel for prompts and for single tokens.

A program computes some tokens of one sequence for the query heads that share a key head. Its loop reads keys and
values through the table of the sequence's blocks. If few programs would run, the tokens that each looks at are split
among several, and a second kernel combines their results.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from skate.llm._engine.attention import KVCache
from skate.llm._engine.gpu_kernels import rotate_and_store
from skate.llm._engine.model_config import FULL, ModelConfig

_LEAST_ROWS = 16  # of a matrix product in Triton
_PROMPT_ROWS = 64  # queries of a program that computes a prompt
_TILE = 64  # tokens that a program looks at together
_LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """The sequences of a step, in tensors of int32 on the device.

    Args:
        tables: The blocks of every sequence that runs, a row for each.
        rows: For each sequence of the step, its row in `tables`.
        starts: The index of its first token in the step, and, last, the number of tokens.
        lengths: The number of its tokens, new ones included.
        slots: For each token of the step, where its key and value go.
        block_sequences: For each block of queries, its sequence.
        block_starts: For each block of queries, the number of the sequence's new tokens before it.
        queries: Tokens in a block of queries.
        splits: Programs that share the work of a block of queries.
    """

    tables: torch.Tensor
    rows: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    slots: torch.Tensor
    block_sequences: torch.Tensor
    block_starts: torch.Tensor
    queries: int
    splits: int = 1


class GpuAttention:
    """Attention of each sequence of a step over its own blocks."""

    def __init__(self, config: ModelConfig, cache: KVCache, batch: QueryBatch) -> None:
        self._config = config
        self._cache = cache
        self._batch = batch

    def attend(
        self,
        layer: int,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        rotations: torch.Tensor | None,
    ) -> torch.Tensor:
        """Store the new keys and values, and return what each new token attends to."""
        config, batch = self._config, self._batch
        cached_keys, cached_values = self._cache.layer(layer)
        queries = rotate_and_store(queries, keys, values, rotations, cached_keys, cached_values, batch.slots)
        group = config.num_heads // config.num_kv_heads
        rows = max(_LEAST_ROWS, triton.next_power_of_2(batch.queries * group))
        blocks = batch.block_sequences.shape[0]
        output = torch.empty_like(queries)
        partial, sums = output, output
        if batch.splits > 1:
            shape = (blocks, config.num_kv_heads, batch.splits, rows)
            partial = torch.empty((*shape, config.head_dim), dtype=torch.float32, device=queries.device)
            sums = torch.empty((*shape, 2), dtype=torch.float32, device=queries.device)
        shared = {
            "HEADS": config.num_heads,
            "KV_HEADS": config.num_kv_heads,
            "GROUP": group,
            "HEAD_DIM": config.head_dim,
            "QUERIES": batch.queries,
            "SPLITS": batch.splits,
            "BLOCK_ROWS": rows,
            "BLOCK_DIM": max(16, triton.next_power_of_2(config.head_dim)),
        }
        _attend[(blocks, config.num_kv_heads, batch.splits)](
            output,
            partial,
            sums,
            queries,
            cached_keys,
            cached_values,
            batch.tables,
            batch.rows,
            batch.starts,
            batch.lengths,
            batch.block_sequences,
            batch.block_starts,
            config.attention_scale * _LOG2_E,
            config.attention_softcap or 0.0,
            batch.tables.stride(0),
            BLOCK_SIZE=self._cache.block_size,
            WINDOW=config.windows[layer],
            HAS_WINDOW=config.windows[layer] != FULL,
            HAS_SOFTCAP=config.attention_softcap is not None,
            TILE=_TILE,
            **shared,
        )
        if batch.splits > 1:
            _combine[(blocks, config.num_kv_heads)](
                output, partial, sums, batch.starts, batch.block_sequences, batch.block_starts, **shared
            )
        return output


def queries_per_block(config: ModelConfig) -> int:
    """Return how many tokens of a prompt one program computes."""
    return max(1, _PROMPT_ROWS * config.num_kv_heads // config.num_heads)


@triton.jit
def _attend(
    output,
    partial,
    sums,
    queries,
    cached_keys,
    cached_values,
    tables,
    rows,
    starts,
    lengths,
    block_sequences,
    block_starts,
    scale,
    softcap,
    table_stride,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    TILE: tl.constexpr,
):
    block, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence = tl.load(block_sequences + block)
    first_token = tl.load(starts + sequence)
    count = tl.load(starts + sequence + 1) - first_token
    length = tl.load(lengths + sequence)
    table = tables + tl.load(rows + sequence).to(tl.int64) * table_stride

    lines = tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_DIM)
    block_start = tl.load(block_starts + block)
    new_token = block_start + lines // GROUP  # of each line of the tile
    is_query = (lines < QUERIES * GROUP) & (new_token < count)
    position = length - count + new_token
    head = kv_head * GROUP + lines % GROUP
    query_place = ((first_token + new_token).to(tl.int64) * HEADS + head) * HEAD_DIM
    in_row = columns < HEAD_DIM
    query = tl.load(
        queries + query_place[:, None] + columns[None, :], mask=is_query[:, None] & in_row[None, :], other=0.0
    )

    # The tokens that any query of the block sees, and the part of them that is this program's.
    last = tl.minimum(length, length - count + block_start + QUERIES)
    first = 0
    if HAS_WINDOW:
        first = tl.maximum(0, length - count + block_start - WINDOW + 1) // TILE * TILE
    tiles = tl.cdiv(tl.maximum(last - first, 0), TILE)
    share = tl.cdiv(tiles, SPLITS) * TILE
    begin = first + split * share
    end = tl.minimum(last, begin + share)

    greatest = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    attended = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    for start in range(begin, end, TILE):
        tokens = start + tl.arange(0, TILE)
        exists = tokens < end
        blocks = tl.load(table + tokens // BLOCK_SIZE, mask=exists, other=0).to(tl.int64)
        place = ((blocks * BLOCK_SIZE + tokens % BLOCK_SIZE) * KV_HEADS + kv_head) * HEAD_DIM
        tile = exists[:, None] & in_row[None, :]
        keys = tl.load(cached_keys + place[:, None] + columns[None, :], mask=tile, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        if (
            HAS_SOFTCAP
        ):  # tanh(x) is 2 * sigmoid(2 * x) - 1; `scale` holds a factor that exponents to base 2 need
            limit = softcap * 1.4426950408889634
            scores = (2.0 * tl.sigmoid(2.0 * scores / limit) - 1.0) * limit
        sees = exists[None, :] & (tokens[None, :] <= position[:, None])
        if HAS_WINDOW:
            sees = sees & (tokens[None, :] > position[:, None] - WINDOW)
        scores = tl.where(sees, scores, float("-inf"))
        highest = tl.maximum(greatest, tl.max(scores, axis=1))
        # A line that has seen no token yet has minus infinity; zero instead keeps differences defined.
        base = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(greatest - base)
        total = total * shrink + tl.sum(weights, axis=1)
        attended = attended * shrink[:, None]
        values = tl.load(cached_values + place[:, None] + columns[None, :], mask=tile, other=0.0)
        attended = tl.dot(weights.to(values.dtype), values, attended, input_precision="ieee")
        greatest = highest

    if SPLITS == 1:
        attended = attended / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(
            output + query_place[:, None] + columns[None, :],
            attended,
            mask=is_query[:, None] & in_row[None, :],
        )
    else:
        part = ((block * KV_HEADS + kv_head) * SPLITS + split).to(tl.int64) * BLOCK_ROWS + lines
        tl.store(partial + part[:, None] * HEAD_DIM + columns[None, :], attended, mask=in_row[None, :])
        tl.store(sums + part * 2, greatest)
        tl.store(sums + part * 2 + 1, total)


@triton.jit
def _combine(
    output,
    partial,
    sums,
    starts,
    block_sequences,
    block_starts,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    QUERIES: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    block, kv_head = tl.program_id(0), tl.program_id(1)
    sequence = tl.load(block_sequences + block)
    first_token = tl.load(starts + sequence)
    count = tl.load(starts + sequence + 1) - first_token
    lines = tl.arange(0, BLOCK_ROWS)
    columns = tl.arange(0, BLOCK_DIM)
    in_row = columns < HEAD_DIM
    new_token = tl.load(block_starts + block) + lines // GROUP
    is_query = (lines < QUERIES * GROUP) & (new_token < count)

    greatest = tl.full([BLOCK_ROWS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    attended = tl.zeros([BLOCK_ROWS, BLOCK_DIM], dtype=tl.float32)
    for split in range(SPLITS):
        part = ((block * KV_HEADS + kv_head) * SPLITS + split).to(tl.int64) * BLOCK_ROWS + lines
        its_greatest = tl.load(sums + part * 2)
        its_total = tl.load(sums + part * 2 + 1)
        its_attended = tl.load(
            partial + part[:, None] * HEAD_DIM + columns[None, :], mask=in_row[None, :], other=0.0
        )
        highest = tl.maximum(greatest, its_greatest)
        base = tl.where(highest == float("-inf"), 0.0, highest)
        shrink, its_shrink = tl.exp2(greatest - base), tl.exp2(its_greatest - base)
        total = total * shrink + its_total * its_shrink
        attended = attended * shrink[:, None] + its_attended * its_shrink[:, None]
        greatest = highest
    head = kv_head * GROUP + lines % GROUP
    place = ((first_token + new_token).to(tl.int64) * HEADS + head) * HEAD_DIM
    attended = attended / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(output + place[:, None] + columns[None, :], attended, mask=is_query[:, None] & in_row[None, :])
