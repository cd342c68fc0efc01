"""Drawing tokens on the device, against the sampler of one request."""

from __future__ import annotations

import itertools

import pytest
import torch

from skate.llm import SamplingParams
from skate.llm._engine.sampler import RequestSampler, draw_tokens

VOCABULARY = 600
SETTINGS = [
    SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=1)
    for temperature, top_k, top_p, min_p in itertools.product((0.7, 1.3), (0, 1, 40), (1.0, 0.6), (0.0, 0.05))
]


def draw_both(settings: list[SamplingParams], seed: int) -> tuple[list[int], list[int]]:
    """Return the tokens that the device draws, and those that the requests' samplers choose."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(settings), VOCABULARY, generator=generator) * 3
    samplers = [
        RequestSampler(params, seed=number, prompt=[], stop_tokens=[])
        for number, params in enumerate(settings)
    ]
    found = draw_tokens(logits, [sampler.draw(seed) for sampler in samplers]).tolist()
    expected = [sampler.choose(row, seed)[0] for sampler, row in zip(samplers, logits, strict=True)]
    return found, expected


@pytest.mark.parametrize("seed", range(10))
def test_a_batch_of_requests_gets_the_tokens_that_each_gets_alone(seed: int) -> None:
    found, expected = draw_both(SETTINGS, seed)
    assert found == expected


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_requests_with_the_same_parameters_get_the_tokens_that_each_gets_alone(
    params: SamplingParams,
) -> None:
    found, expected = draw_both([params] * 8, 3)
    assert found == expected


def test_tokens_outside_the_limits_are_not_drawn() -> None:
    logits = torch.full((1, 4), -torch.inf)
    logits[0, 2] = 0.0
    sampler = RequestSampler(SamplingParams(temperature=1.0), seed=0, prompt=[], stop_tokens=[])
    assert {draw_tokens(logits, [sampler.draw(index)]).item() for index in range(50)} == {2}
