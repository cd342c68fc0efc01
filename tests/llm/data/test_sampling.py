"""Sampling parameters of rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skate.data.llm._sampling import sampling_params_of
from skate.llm import Grammar, SamplingParams


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, SamplingParams(max_tokens=16)),
        ({"max_tokens": None, "temperature": None}, SamplingParams(max_tokens=16)),
        ({"max_new_tokens": 5.0, "top_k": -1, "detokenize": False}, SamplingParams(max_tokens=5, top_k=0)),
        (
            {"stop": "x", "stop_token_ids": [3]},
            SamplingParams(max_tokens=16, stop=("x",), stop_token_ids=(3,)),
        ),
        (
            {"logit_bias": {"5": 1, 6: -2.5, "7": None}},
            SamplingParams(max_tokens=16, logit_bias={5: 1, 6: -2.5}),
        ),
        ({"n": 1, "best_of": None, "ignore_eos": True}, SamplingParams(max_tokens=16, ignore_eos=True)),
        (
            {"structured_outputs": {"choice": ["a", 'b"'], "regex": None}},
            SamplingParams(max_tokens=16, grammar=Grammar(kind="lark", text='start: "a" | "b\\""\n')),
        ),
        (
            {"guided_decoding": {"json_object": True}},
            SamplingParams(max_tokens=16, grammar=Grammar(kind="json")),
        ),
        ({"regex": "[ab]"}, SamplingParams(max_tokens=16, grammar=Grammar(kind="regex", text="[ab]"))),
    ],
)
def test_parameters_have_the_names_of_vllm_and_sglang(given: Any, expected: SamplingParams) -> None:
    assert sampling_params_of(given) == expected


@pytest.mark.parametrize("schema", [{"type": "object"}, '{"type": "object"}'])
def test_a_schema_is_a_dict_or_text(schema: Any) -> None:
    grammar = sampling_params_of({"structured_outputs": {"json": schema}}).grammar
    assert grammar is not None
    assert grammar.kind == "json_schema"
    assert json.loads(grammar.text)["type"] == "object"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"temprature": 0}, "no parameter 'temprature'. Did you mean 'temperature'"),
        ({"temperature": "hot"}, "'temperature' must be a number, got 'hot'"),
        ({"temperature": -1}, "temperature must be at least 0"),
        ({"max_tokens": 2.5}, "'max_tokens' must be an integer"),
        ({"max_tokens": True}, "'max_tokens' must be an integer"),
        ({"max_tokens": float("nan")}, "'max_tokens' must be an integer"),
        ({"stop": [3]}, "a string or a list of strings"),
        ({"stop": 3}, "'stop' must be a list"),
        ({"ignore_eos": "yes"}, "true or false"),
        ({"logit_bias": {"five": 1}}, "'logit_bias' must be an integer"),
        ({"n": 2}, "the engines do not support"),
        ({"structured_outputs": {"jsn": {}}}, "Did you mean 'json'"),
        ({"structured_outputs": {"json": "{"}}, "not valid JSON"),
        ({"structured_outputs": {"json": "{}", "regex": "a"}}, "keep one of them"),
        ([1], "must be a dict"),
    ],
)
def test_wrong_parameters_are_refused(given: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        sampling_params_of(given)
