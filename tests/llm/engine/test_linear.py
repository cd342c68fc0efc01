"""Matrix products, laid out for a CPU."""

from __future__ import annotations

import pytest
import torch

from skate.llm._engine.linear import Int4Linear, TransposedLinear

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


@pytest.mark.parametrize("bias", [None, BIAS])
def test_weights_of_four_bits_are_near_to_the_weights(bias: torch.Tensor | None) -> None:
    expected = torch.nn.functional.linear(ROWS, WEIGHT, bias)
    found = Int4Linear(WEIGHT, bias)(ROWS)
    assert (found - expected).norm() / expected.norm() < 0.12


def test_groups_of_zeros_stay_zeros() -> None:
    found = Int4Linear(torch.zeros(32, 64))(ROWS)
    assert torch.equal(found, torch.zeros_like(found))


def test_multiples_of_the_scale_are_exact() -> None:
    """Integers from -8 to 7, of which each group holds -8, need no rounding; rows are rounded to 8 bits."""
    weight = torch.randint(-8, 8, (32, 64), generator=torch.Generator().manual_seed(1)).float()
    weight[:, ::32] = -8
    rows = torch.eye(64)
    torch.testing.assert_close(Int4Linear(weight)(rows), weight.t(), atol=0.05, rtol=0)
