"""Triton kernels for the operations between the matrix products of a layer.

Each replaces several small kernels of torch. A decode step is a few hundred kernels of some microseconds, so their
number matters more than their arithmetic. Sums are in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from skate.llm._engine.layer_ops import Activation, Norm, TorchLayerOps

_GATE_BLOCK = 1024


class FusedLayerOps(TorchLayerOps):
    """The operations of a layer as one kernel each; torch computes layer norms and the exact GELU, which are rare."""

    def norm(self, values: torch.Tensor, norm: Norm) -> torch.Tensor:
        """Return the normalised values."""
        if norm.bias is not None:
            return super().norm(values, norm)
        rows = values.reshape(-1, values.shape[-1])
        normed = torch.empty_like(rows)
        _launch_norm(rows, None, rows, normed, norm)
        return normed.view(values.shape)

    def add_norm(
        self, hidden: torch.Tensor, update: torch.Tensor, norm: Norm
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the hidden states and their update, and the normalised sum."""
        if norm.bias is not None:
            return super().add_norm(hidden, update, norm)
        total, normed = torch.empty_like(hidden), torch.empty_like(hidden)
        _launch_norm(hidden, update, total, normed, norm)
        return total, normed

    def gate(self, projected: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Return the product of the activated first half of each row and its second half."""
        if activation == "gelu":
            return super().gate(projected, activation)
        count, width = projected.shape[0], projected.shape[1] // 2
        output = projected.new_empty(count, width)
        grid = (count, triton.cdiv(width, _GATE_BLOCK))
        _gate[grid](output, projected, width, IS_SILU=activation == "silu", BLOCK=_GATE_BLOCK)
        return output


def rotate_and_store(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rotations: torch.Tensor | None,
    cached_keys: torch.Tensor,
    cached_values: torch.Tensor,
    slots: torch.Tensor,
) -> torch.Tensor:
    """Rotate queries and keys by their positions, store keys and values in the cache, and return the queries.

    Args:
        queries: Of shape `(tokens, heads, head_dim)`, as keys and values. Tokens and heads may have any stride.
        rotations: A row of cosines and one of sines for each token, in float32; None does not rotate.
        cached_keys: The layer's keys, of shape `(slots, heads, head_dim)`.
        cached_values: The layer's values.
        slots: Where each token goes.
    """
    count, heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    rotated = queries.new_empty(count, heads, head_dim)
    _rotate_and_store[(count,)](
        rotated,
        queries,
        keys,
        values,
        rotated if rotations is None else rotations,
        cached_keys,
        cached_values,
        slots,
        queries.stride(0),
        queries.stride(1),
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        ROTATES=rotations is not None,
        BLOCK_HEADS=triton.next_power_of_2(heads),
        BLOCK_KV_HEADS=triton.next_power_of_2(kv_heads),
        BLOCK_DIM=triton.next_power_of_2(head_dim),
    )
    return rotated


def _launch_norm(
    rows: torch.Tensor, update: torch.Tensor | None, total: torch.Tensor, normed: torch.Tensor, norm: Norm
) -> None:
    width = rows.shape[-1]
    block = triton.next_power_of_2(width)
    _add_norm[(rows.shape[0],)](
        total,
        normed,
        rows,
        rows if update is None else update,
        norm.weight,
        norm.eps,
        width,
        ADDS=update is not None,
        BLOCK=block,
        num_warps=min(16, max(1, block // 256)),
    )


@triton.jit
def _add_norm(total, normed, rows, update, weight, eps, width, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(rows + row + columns, mask=inside, other=0.0)
    if ADDS:
        values = values + tl.load(update + row + columns, mask=inside, other=0.0)
        tl.store(total + row + columns, values, mask=inside)
    exact = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(exact * exact, axis=0) / width + eps)
    weights = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + columns, exact * scale * weights, mask=inside)


@triton.jit
def _gate(output, projected, width, IS_SILU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    first = tl.load(projected + row * 2 * width + columns, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(projected + row * 2 * width + width + columns, mask=inside, other=0.0).to(tl.float32)
    if IS_SILU:
        activated = first * tl.sigmoid(first)
    else:  # 1 + tanh(x) is 2 * sigmoid(2 * x)
        activated = first * tl.sigmoid(1.5957691216057308 * (first + 0.044715 * first * first * first))
    tl.store(output + row * width + columns, activated * second, mask=inside)


@triton.jit
def _rotate_and_store(
    rotated,
    queries,
    keys,
    values,
    rotations,
    cached_keys,
    cached_values,
    slots,
    query_stride,
    query_head_stride,
    key_stride,
    key_head_stride,
    value_stride,
    value_head_stride,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTATES: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_KV_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    columns = tl.arange(0, BLOCK_DIM)[None, :]
    in_row = columns < HEAD_DIM
    partners = (columns + HEAD_DIM // 2) % HEAD_DIM
    heads = tl.arange(0, BLOCK_HEADS)[:, None]
    kv_heads = tl.arange(0, BLOCK_KV_HEADS)[:, None]
    is_query, is_key = in_row & (heads < HEADS), in_row & (kv_heads < KV_HEADS)

    query_rows = queries + token * query_stride + heads * query_head_stride
    key_rows = keys + token * key_stride + kv_heads * key_head_stride
    query = tl.load(query_rows + columns, mask=is_query, other=0.0).to(tl.float32)
    key = tl.load(key_rows + columns, mask=is_key, other=0.0).to(tl.float32)
    if ROTATES:
        row = rotations + token * 2 * HEAD_DIM
        cosines = tl.load(row + columns, mask=in_row, other=0.0).to(tl.float32)
        sines = tl.load(row + HEAD_DIM + columns, mask=in_row, other=0.0).to(tl.float32)
        query = (
            query * cosines + tl.load(query_rows + partners, mask=is_query, other=0.0).to(tl.float32) * sines
        )
        key = key * cosines + tl.load(key_rows + partners, mask=is_key, other=0.0).to(tl.float32) * sines
    tl.store(rotated + (token * HEADS + heads) * HEAD_DIM + columns, query, mask=is_query)
    place = (slot * KV_HEADS + kv_heads) * HEAD_DIM + columns
    tl.store(cached_keys + place, key, mask=is_key)
    value = tl.load(
        values + token * value_stride + kv_heads * value_head_stride + columns, mask=is_key, other=0.0
    )
    tl.store(cached_values + place, value, mask=is_key)
