"""Matrix products with weights, laid out for the device that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch.nn import functional

Quantization = Literal["int4"]
_GROUP = 32  # weights that share a scale and an offset
_OUTPUTS = 16  # `PackedInt4Linear` needs a multiple of that many
_OUTLIERS = 32  # inputs of the head that are not quantized
_TILE = 16  # rows that `Bfloat16Linear` computes together
_MOST_ROWS = 32  # with more rows, oneDNN adds in another order


class Linear(Protocol):
    """A matrix product with fixed weights."""

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        ...


MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], Linear]  # of a weight and a bias
MakeHead = Callable[
    [torch.Tensor, torch.Tensor], Linear
]  # of a weight and some rows that it may be multiplied with


class PlainLinear:
    """A product with weights as checkpoints store them, `(out, in)`: the layout that is fast on GPUs."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        return functional.linear(rows, self.weight, self.bias)


class TransposedLinear:
    """A product with weights stored as `(in, out)`, which a CPU multiplies faster with 2 to 32 rows.

    A single row is computed as two: CPU libraries use another algorithm for one row, whose sums are rounded
    differently, so the output of a request would depend on the other requests.
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


class Bfloat16Linear:
    """A product in bfloat16, of float32 rows, for CPUs that have instructions for it.

    Rows are computed in blocks of 16 or 32, the last of which is padded. Sums of other blocks are rounded differently,
    so the output of a request would depend on the other requests.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.bfloat16(), _TILE)
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        count = rows.shape[0]
        padded = functional.pad(rows.bfloat16(), (0, 0, 0, -count % _TILE))
        blocks = [self._multiply(block) for block in torch.split(padded, _MOST_ROWS)]
        product = (blocks[0] if len(blocks) == 1 else torch.cat(blocks))[:count].float()
        return product if self.bias is None else product + self.bias

    def _multiply(self, rows: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, None, "none", [], "")
        return product


def has_bfloat16() -> bool:
    """Return whether this CPU has instructions for products in bfloat16, which others compute slowly."""
    # ARM's are not used, because nobody has checked that the result of a row is the same among others there.
    supported: bool = torch.cpu._is_avx512_bf16_supported()
    return supported


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A matrix in 4 bits: each value is `(code - 8) * scale + offset`, with a scale and an offset for 32 inputs.

    Args:
        codes: From 0 to 15, of shape `(out, in)`.
        scales: In bfloat16, of shape `(out, in / 32)`.
        offsets: In float32, of the same shape.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor


class Int4Linear(ABC):
    """A product with weights in 4 bits.

    The offset of a group contributes the offset times the sum of the group's inputs. All offsets together are
    therefore one small product in float32, and the kernels need only the scales.
    """

    def __init__(self, weight: QuantizedWeight, bias: torch.Tensor | None = None) -> None:
        self._out, self._in = weight.codes.shape
        self._offsets = weight.offsets.t().contiguous()
        self.bias = bias

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        sums = rows.view(rows.shape[0], -1, _GROUP).sum(dim=-1)
        product = _add_product(self._multiply(rows), sums, self._offsets)
        return product if self.bias is None else product + self.bias

    @abstractmethod
    def _multiply(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product with the weights without their offsets."""


class DynamicInt4Linear(Int4Linear):
    """A product of rows in 8 bits with weights in 4 bits, by the kernels of torch's ARM build."""

    def __init__(self, weight: QuantizedWeight, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight, bias)
        codes = weight.codes
        # With scales of another type, torch uses an algorithm that is 80 times slower.
        self._packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
            (codes[:, 1::2] << 4 | codes[:, ::2]).to(torch.uint8),
            weight.scales,
            None,
            _GROUP,
            self._in,
            self._out,
        )

    def _multiply(self, rows: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.aten._dyn_quant_matmul_4bit(
            rows, self._packed, _GROUP, self._in, self._out
        )
        return product


class PackedInt4Linear(Int4Linear):
    """A product of rows in bfloat16 with weights in 4 bits, by the kernels that torch has for every CPU.

    They are made for x86. With rows of another type, torch uses an algorithm that is 70 times slower.
    """

    def __init__(self, weight: QuantizedWeight, bias: torch.Tensor | None = None) -> None:
        super().__init__(weight, bias)
        padding = (0, 0, 0, -self._out % _OUTPUTS)
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
            functional.pad(weight.codes, padding).to(torch.int32), 1
        )
        scales = functional.pad(weight.scales, padding).t()
        self._scales = torch.stack((scales, torch.zeros_like(scales)), dim=-1).contiguous()

    def _multiply(self, rows: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows.bfloat16(), self._packed, _GROUP, self._scales
        )
        return product[:, : self._out].float()


class OutlierLinear:
    """A product with weights in 4 bits, except for those of the few largest inputs, which are in float32.

    The weights of large inputs need more than 4 bits. Besides, if rows are rounded to 8 bits, large inputs determine
    how coarsely the others are rounded.
    """

    def __init__(self, weight: torch.Tensor, outliers: torch.Tensor) -> None:
        self._outliers = outliers
        self._outlier_weight = weight.index_select(1, outliers).t().contiguous()
        self._rest = make_int4_linear(weight.index_fill(1, outliers, 0.0))

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the product for each row."""
        product = self._rest(rows.index_fill(1, self._outliers, 0.0))
        return _add_product(product, rows.index_select(1, self._outliers), self._outlier_weight)


def make_int4_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """Quantize weights to 4 bits in groups of 32 that share a scale and an offset, for the kernels of this machine.

    Raises:
        ValueError: If the number of inputs is not a multiple of 32.
    """
    is_arm: bool = torch.backends.kleidiai.is_available()  # type: ignore[no-untyped-call]
    kind = DynamicInt4Linear if is_arm else PackedInt4Linear
    return kind(quantize_int4(weight), bias)


def make_int4_head(weight: torch.Tensor, examples: torch.Tensor) -> Linear:
    """Quantize weights to 4 bits, except those of the inputs that are largest in some example rows.

    Raises:
        ValueError: If the number of inputs is not a multiple of 32.
    """
    power = examples.square().mean(dim=0)
    return OutlierLinear(weight, power.topk(min(_OUTLIERS, power.shape[0])).indices)


def quantize_int4(weight: torch.Tensor) -> QuantizedWeight:
    """Round weights to 16 values between the minimum and the maximum of their group.

    Weights that were already rounded in this way, as in GGUF files of 4 bits, hardly change.

    Raises:
        ValueError: If the number of inputs is not a multiple of 32.
    """
    if weight.shape[1] % _GROUP:
        raise ValueError(
            f"quantization='int4' needs matrices whose number of inputs is a multiple of {_GROUP}, and one has "
            f"{weight.shape[1]}; leave quantization out"
        )
    groups = weight.float().reshape(weight.shape[0], -1, _GROUP)
    least, greatest = groups.amin(dim=-1, keepdim=True), groups.amax(dim=-1, keepdim=True)
    scales = ((greatest - least) / 15).bfloat16()
    offsets = least + 8 * scales.float()
    steps = torch.where(scales == 0, 1.0, scales.float())  # a group of equal weights has the scale 0
    codes = ((groups - offsets) / steps).round_().add_(8).clamp_(0, 15)
    return QuantizedWeight(codes.flatten(1).to(torch.int8), scales.squeeze(-1), offsets.squeeze(-1))


def _add_product(total: torch.Tensor, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the sum of a tensor, which may be overwritten, and a product with weights stored as `(in, out)`."""
    if rows.shape[0] == 1:  # is computed as two, as in `TransposedLinear`
        return torch.addmm(total.expand(2, -1), rows.expand(2, -1), weight)[:1]
    return total.addmm_(rows, weight)
