"""Matrix products, laid out for a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from skate.llm._engine.linear import (
    Bfloat16Linear,
    DynamicInt4Linear,
    Linear,
    PackedInt4Linear,
    TransposedLinear,
    has_bfloat16,
    make_int4_head,
    make_int4_linear,
    quantize_int4,
)

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(96, 64, generator=GENERATOR)
BIAS = torch.randn(96, generator=GENERATOR)
ROWS = torch.randn(33, 64, generator=GENERATOR)


@pytest.mark.parametrize("bias", [None, BIAS])
@pytest.mark.parametrize("count", [1, 2, 33])
def test_a_transposed_product_is_the_product(count: int, bias: torch.Tensor | None) -> None:
    expected = torch.nn.functional.linear(ROWS[:count], WEIGHT, bias)
    torch.testing.assert_close(TransposedLinear(WEIGHT, bias)(ROWS[:count]), expected, atol=1e-4, rtol=0)


def test_the_product_of_a_row_does_not_depend_on_the_number_of_rows() -> None:
    linear = TransposedLinear(WEIGHT)
    whole = linear(ROWS)
    for count in (1, 2, 7, 16):
        torch.testing.assert_close(linear(ROWS[:count]), whole[:count], atol=2e-5, rtol=0)


needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this CPU has no instructions for bfloat16")


@needs_bfloat16
@pytest.mark.parametrize("bias", [None, BIAS])
@pytest.mark.parametrize("count", [1, 16, 33])
def test_a_product_in_bfloat16_is_that_of_rounded_rows_and_weights(
    count: int, bias: torch.Tensor | None
) -> None:
    expected = torch.nn.functional.linear(ROWS[:count].bfloat16().float(), WEIGHT.bfloat16().float(), bias)
    found = Bfloat16Linear(WEIGHT, bias)(ROWS[:count])
    assert found.dtype == torch.float32
    assert relative_error(found, expected) < 0.004  # the product is rounded to bfloat16, too


@needs_bfloat16
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (576, 3072), (1536, 576)])
def test_the_product_of_a_row_in_bfloat16_is_the_same_among_others(inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(4)
    linear = Bfloat16Linear(torch.randn(outputs, inputs, generator=generator))
    rows = torch.randn(256, inputs, generator=generator)
    whole = linear(rows)
    for first, count in ((0, 1), (3, 1), (5, 2), (9, 7), (17, 16), (40, 31), (64, 48), (100, 140)):
        assert torch.equal(linear(rows[first : first + count]), whole[first : first + count])


@pytest.fixture(params=[DynamicInt4Linear, PackedInt4Linear])
def int4(request: pytest.FixtureRequest) -> Callable[..., Linear]:
    kind = request.param
    if kind is DynamicInt4Linear and not torch.backends.kleidiai.is_available():
        pytest.skip("needs torch's ARM build")
    return lambda weight, bias=None: kind(quantize_int4(weight), bias)


def dequantized(weight: torch.Tensor) -> torch.Tensor:
    quantized = quantize_int4(weight)
    codes = quantized.codes.float().unflatten(1, (-1, 32))
    return ((codes - 8) * quantized.scales.float()[..., None] + quantized.offsets[..., None]).flatten(1)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_weights_of_four_bits_are_near_to_the_weights(shift: float) -> None:
    """Also if all weights of a group have one sign: 16 values lie between the least and the greatest one."""
    weight = WEIGHT + shift
    groups = weight.unflatten(1, (-1, 32))
    step = (groups.amax(dim=-1) - groups.amin(dim=-1)) / 15
    error = (dequantized(weight) - weight).abs().unflatten(1, (-1, 32)).amax(dim=-1)
    assert torch.all(error < 0.6 * step)  # half a step, and the rounding of the scale


def test_weights_on_a_grid_with_an_offset_are_kept() -> None:
    """As those of GGUF files of type Q4_1, whose groups have a scale and an offset, too."""
    codes = torch.randint(0, 16, (32, 64), generator=torch.Generator().manual_seed(1))
    codes[:, ::32], codes[:, 1::32] = 0, 15
    weight = codes * 0.01 - 0.03
    torch.testing.assert_close(dequantized(weight), weight, atol=5e-4, rtol=0)


@pytest.mark.parametrize("count", [1, 2, 33])
@pytest.mark.parametrize("shift", [0.0, 3.0])
@pytest.mark.parametrize("bias", [None, BIAS])
def test_a_product_in_four_bits_is_that_of_the_dequantized_weights(
    int4: Callable[..., Linear], bias: torch.Tensor | None, shift: float, count: int
) -> None:
    """But for the rounding of rows, to 8 bits on ARM and to bfloat16 elsewhere."""
    weight = WEIGHT + shift
    expected = torch.nn.functional.linear(ROWS[:count], dequantized(weight), bias)
    assert relative_error(int4(weight, bias)(ROWS[:count]), expected) < 0.01


def test_the_product_of_a_row_in_four_bits_is_the_same_among_others(int4: Callable[..., Linear]) -> None:
    linear = int4(WEIGHT)
    whole = linear(ROWS)
    for count in (1, 2, 7, 16):
        torch.testing.assert_close(linear(ROWS[:count]), whole[:count], atol=2e-5, rtol=0)


def test_any_number_of_outputs_is_possible(int4: Callable[..., Linear]) -> None:
    expected = ROWS @ dequantized(WEIGHT[:41]).t()
    assert relative_error(int4(WEIGHT[:41])(ROWS), expected) < 0.01


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_groups_of_equal_weights_are_exact(int4: Callable[..., Linear], value: float) -> None:
    found = int4(torch.full((32, 64), value))(ROWS)
    torch.testing.assert_close(found, (ROWS.sum(dim=-1, keepdim=True) * value).expand(-1, 32))


def test_a_number_of_inputs_that_cannot_be_grouped_is_refused() -> None:
    with pytest.raises(
        ValueError, match="inputs is a multiple of 32, and one has 48; leave quantization out"
    ):
        make_int4_linear(torch.zeros(16, 48))


@pytest.mark.parametrize("count", [1, 33])
def test_great_inputs_of_the_head_are_not_rounded(count: int) -> None:
    weight = torch.randn(96, 128, generator=torch.Generator().manual_seed(2))
    rows = torch.randn(33, 128, generator=torch.Generator().manual_seed(3))
    rows[:, 70] *= 1000
    expected = rows[:count] @ weight.t()
    assert relative_error(make_int4_linear(weight)(rows[:count]), expected) > 0.02
    assert relative_error(make_int4_head(weight, rows[:5])(rows[:count]), expected) < 0.001


def test_a_head_may_have_few_inputs() -> None:
    expected = ROWS[:, :32] @ WEIGHT[:, :32].t()
    found = make_int4_head(WEIGHT[:, :32], ROWS[:5, :32])(ROWS[:, :32])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
