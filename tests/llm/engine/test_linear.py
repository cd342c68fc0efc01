"""Matrix products, laid out for a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from skate.llm._engine.linear import (
    DynamicInt4Linear,
    Linear,
    PackedInt4Linear,
    TransposedLinear,
    make_int4_linear,
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


@pytest.fixture(params=[DynamicInt4Linear, PackedInt4Linear])
def int4(request: pytest.FixtureRequest) -> Callable[..., Linear]:
    if request.param is DynamicInt4Linear and not torch.backends.kleidiai.is_available():
        pytest.skip("needs torch's ARM build")
    return request.param


@pytest.mark.parametrize("bias", [None, BIAS])
def test_weights_of_four_bits_are_near_to_the_weights(
    int4: Callable[..., Linear], bias: torch.Tensor | None
) -> None:
    expected = torch.nn.functional.linear(ROWS, WEIGHT, bias)
    found = int4(WEIGHT, bias)(ROWS)
    assert (found - expected).norm() / expected.norm() < 0.12


def test_any_number_of_outputs_is_possible(int4: Callable[..., Linear]) -> None:
    expected = ROWS @ WEIGHT[:41].t()
    found = int4(WEIGHT[:41])(ROWS)
    assert (found - expected).norm() / expected.norm() < 0.12


def test_groups_of_zeros_stay_zeros(int4: Callable[..., Linear]) -> None:
    found = int4(torch.zeros(32, 64))(ROWS)
    assert torch.equal(found, torch.zeros_like(found))


def test_multiples_of_the_scale_are_exact(int4: Callable[..., Linear]) -> None:
    """Integers from -8 to 7, of which each group holds -8, need no rounding; rows may be rounded to 8 bits."""
    weight = torch.randint(-8, 8, (32, 64), generator=torch.Generator().manual_seed(1)).float()
    weight[:, ::32] = -8
    torch.testing.assert_close(int4(weight)(torch.eye(64)), weight.t(), atol=0.05, rtol=0)


def test_a_number_of_inputs_that_cannot_be_grouped_is_refused() -> None:
    with pytest.raises(
        ValueError, match="inputs is a multiple of 32, and one has 48; leave quantization out"
    ):
        make_int4_linear(torch.zeros(16, 48))
