"""Choosing tokens."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from skate.llm import SamplingParams
from skate.llm._engine.sampler import RequestSampler

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])


def sampler(*, seed: int = 0, prompt: tuple[int, ...] = (), **params: Any) -> RequestSampler:
    return RequestSampler(SamplingParams(**params), seed=seed, prompt=prompt, stop_tokens=(4,))


def draws(count: int = 4000, **params: Any) -> Counter[int]:
    chooser = sampler(**params)
    return Counter(chooser.choose(LOGITS, index)[0] for index in range(count))


def test_temperature_zero_takes_the_greatest_logit() -> None:
    chooser = sampler(temperature=0)
    assert chooser.is_plain_greedy
    assert chooser.choose(LOGITS, 0) == (4, None)


def test_tokens_are_drawn_by_their_probabilities() -> None:
    found = draws(temperature=1.5)
    expected = torch.softmax(LOGITS / 1.5, dim=-1)
    for token, probability in enumerate(expected.tolist()):
        spread = math.sqrt(probability * (1 - probability) / 4000)
        assert abs(found[token] / 4000 - probability) < 4 * spread


def test_the_same_seed_and_position_give_the_same_token() -> None:
    chosen = [sampler(seed=7).choose(LOGITS, index)[0] for index in range(50)]
    assert chosen == [sampler(seed=7).choose(LOGITS, index)[0] for index in range(50)]
    assert chosen != [sampler(seed=8).choose(LOGITS, index)[0] for index in range(50)]


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"top_k": 2}, {4, 0}),
        ({"top_p": 0.6}, {4}),  # the most probable alone has 0.64
        ({"top_p": 0.7}, {4, 0}),
        ({"top_p": 1.0}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.0}, {4}),
        ({"min_p": 0.3}, {4, 0}),
        ({"min_p": 0.1, "top_k": 4}, {4, 0, 1}),
    ],
)
def test_only_probable_tokens_are_drawn(params: dict[str, float], allowed: set[int]) -> None:
    assert set(draws(**params)) == allowed


def test_top_p_looks_beyond_the_first_candidates_when_the_distribution_is_flat() -> None:
    flat = torch.linspace(0, 1, 2000)
    chooser = sampler(top_p=0.9)
    chosen = {chooser.choose(flat, index)[0] for index in range(3000)}
    assert min(chosen) > 100
    assert len(chosen) > 1200


def test_penalties_count_what_was_generated() -> None:
    chooser = sampler(temperature=0, presence_penalty=1.0, frequency_penalty=0.5)
    tokens = []
    for index in range(4):
        token, _ = chooser.choose(LOGITS, index)
        chooser.accept(token)
        tokens.append(token)
    # 4 has 3.0, then 1.5, below 0 with 2.0, which falls to 0.5; then 4 has 1.5 again, and 1.0.
    assert tokens == [4, 0, 4, 1]


def test_repetition_penalty_counts_the_prompt() -> None:
    token, _ = sampler(temperature=0, repetition_penalty=3.0, prompt=(4,)).choose(LOGITS, 0)
    assert token == 0


def test_logit_bias_can_force_and_forbid() -> None:
    assert sampler(temperature=0, logit_bias={3: 100}).choose(LOGITS, 0)[0] == 3
    assert sampler(temperature=0, logit_bias={4: -100}).choose(LOGITS, 0)[0] == 0


def test_stop_tokens_are_not_chosen_before_min_tokens() -> None:
    chooser = sampler(temperature=0, min_tokens=2)
    assert [chooser.choose(LOGITS, index)[0] for index in range(3)] == [0, 0, 4]


def test_log_probabilities_are_those_of_the_distribution_that_is_sampled_from() -> None:
    token, logprob = sampler(temperature=0.5, top_k=2, logprobs=2).choose(LOGITS, 3)
    expected = torch.log_softmax(torch.tensor([2.0, 3.0]) / 0.5, dim=-1).tolist()
    assert logprob is not None
    assert logprob.token == token
    assert [each for each, _ in logprob.top] == [4, 0]
    assert [value for _, value in logprob.top] == pytest.approx([expected[1], expected[0]], rel=1e-4)
    assert logprob.logprob == pytest.approx(expected[{0: 0, 4: 1}[token]], rel=1e-4)


def test_a_token_is_chosen_alone_as_in_a_batch() -> None:
    rows = torch.randn(6, 3000, generator=torch.Generator().manual_seed(0))
    together = [sampler(top_p=0.9, logprobs=0).choose(row, 5) for row in rows]
    assert together == [sampler(top_p=0.9, logprobs=0).choose(row.clone(), 5) for row in rows]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temperature": -1}, "temperature must be at least 0 and at most 100, got -1"),
        ({"temperature": math.nan}, "temperature must be at least 0 and at most 100, got nan"),
        ({"top_p": 1.5}, "top_p must be at least 0 and at most 1, got 1.5"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens must be at least 0 and at most 3, got 4"),
        ({"logprobs": 21}, "logprobs must be at least 0 and at most 20, got 21"),
        ({"stop": ("a", "")}, "a stop string is empty"),
        ({"logit_bias": {5: 101}}, r"logit_bias\[5\] must be at least -100 and at most 100, got 101"),
    ],
)
def test_values_outside_of_their_range_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**params)
