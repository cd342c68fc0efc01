"""Matrix products with weights, laid out for the device that runs them."""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch.nn import functional

Quantization = Literal["int4"]
_GROUP = 32  # weights that share a scale


class Linear(Protocol):
    """A matrix product with fixed weights."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        ...


class PlainLinear:
    """A product with weights as checkpoints store them, `(out, in)`: the layout that GPUs want."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        return functional.linear(rows, self.weight, self.bias)


class TransposedLinear:
    """A product with weights stored as `(in, out)`, which a CPU multiplies faster with 2 to 32 rows.

    A single row is computed as two: with one row, a CPU library takes another algorithm, whose sums are rounded
    differently, and the output of a request would depend on what else runs.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight.t().contiguous()
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        single = rows.shape[0] == 1
        if single:
            rows = rows.expand(2, -1)
        product = (
            torch.mm(rows, self.weight) if self.bias is None else torch.addmm(self.bias, rows, self.weight)
        )
        return product[:1] if single else product


class Int4Linear:
    """A product with weights of 4 bits, of which each 32 share a scale, by the kernels in torch's CPU build."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._out, self._in = weight.shape
        packed, scales = _quantize(weight)
        self._packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
            packed, scales, None, _GROUP, self._in, self._out
        )
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        product: torch.Tensor = torch.ops.aten._dyn_quant_matmul_4bit(
            rows, self._packed, _GROUP, self._in, self._out
        )
        return product if self.bias is None else product + self.bias


def _quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights rounded to 4 bits, two in a byte, and their scales."""
    groups = weight.float().view(weight.shape[0], -1, _GROUP)
    largest = groups.abs().amax(dim=-1, keepdim=True)
    # The value of greatest magnitude becomes -8, so all 16 values are used.
    extreme = groups.gather(-1, groups.abs().argmax(dim=-1, keepdim=True))
    # The fast kernels of ARM take scales in bfloat16 only.
    scales = torch.where(largest > 0, extreme / -8, torch.ones_like(extreme)).bfloat16()
    rounded = (groups / scales.float()).round().clamp(-8, 7).flatten(1).to(torch.int8) + 8
    packed = (rounded[:, 1::2] << 4 | rounded[:, ::2]).to(torch.uint8)
    return packed, scales.squeeze(-1).contiguous()
