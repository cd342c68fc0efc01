"""Matrix products with weights, laid out for the device that runs them."""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch.nn import functional

Quantization = Literal["int4"]
_GROUP = 32  # weights that share a scale
_OUTPUTS = 16  # `PackedInt4Linear` needs a multiple of that many


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


class DynamicInt4Linear:
    """A product of rows in 8 bits with weights in 4 bits, by the kernels of torch's ARM build."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._out, self._in = weight.shape
        values, scales = _quantize(weight)
        # With scales of another type, torch takes an algorithm that is 80 times slower.
        self._packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
            (values[:, 1::2] << 4 | values[:, ::2]).to(torch.uint8), scales, None, _GROUP, self._in, self._out
        )
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        product: torch.Tensor = torch.ops.aten._dyn_quant_matmul_4bit(
            rows, self._packed, _GROUP, self._in, self._out
        )
        return product if self.bias is None else product + self.bias


class PackedInt4Linear:
    """A product with weights in 4 bits by the kernels that torch has for every CPU, which are made for x86."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._out = weight.shape[0]
        values, scales = _quantize(functional.pad(weight, (0, 0, 0, -self._out % _OUTPUTS)))
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values.to(torch.int32), 1)
        offsets = torch.zeros_like(scales)
        self._scales = torch.stack((scales.t(), offsets.t()), dim=-1).float().contiguous()
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        product: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows, self._packed, _GROUP, self._scales
        )
        product = product[:, : self._out]
        return product if self.bias is None else product + self.bias


def make_int4_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """Store weights in 4 bits, of which each 32 share a scale, for the kernels of this machine.

    Raises:
        ValueError: If the number of inputs is not a multiple of 32.
    """
    if weight.shape[1] % _GROUP:
        raise ValueError(
            f"quantization='int4' needs matrices whose number of inputs is a multiple of {_GROUP}, and one has "
            f"{weight.shape[1]}; leave quantization out"
        )
    is_arm: bool = torch.backends.kleidiai.is_available()  # type: ignore[no-untyped-call]
    kind = DynamicInt4Linear if is_arm else PackedInt4Linear
    return kind(weight, bias)


def _quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights rounded to values from 0 to 15, where 8 stands for 0, and their scales in bfloat16."""
    groups = weight.float().view(weight.shape[0], -1, _GROUP)
    # The value of greatest magnitude becomes -8, so all 16 values are used.
    extreme = groups.gather(-1, groups.abs().argmax(dim=-1, keepdim=True))
    scales = torch.where(extreme != 0, extreme / -8, torch.ones_like(extreme)).bfloat16()
    values = (groups / scales.float()).round().clamp(-8, 7).flatten(1).to(torch.int8) + 8
    return values, scales.squeeze(-1).contiguous()
