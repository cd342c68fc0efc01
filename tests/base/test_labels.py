"""Labels and label selectors: their syntax, and which nodes a selector matches."""

from __future__ import annotations

import pytest

from skate._base.labels import (
    fallback_strategy_problem,
    label_key_problem,
    label_selector_problem,
    label_value_problem,
    selector_matches,
    selector_value_problem,
)


@pytest.mark.parametrize("key", ["region", "ray.io/accelerator-type", "a", "A_b.c-d"])
def test_good_label_keys_are_accepted(key: str) -> None:
    assert label_key_problem(key) is None


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("-region", "Invalid label key name"),
        ("region-", "Invalid label key name"),
        ("", "Invalid label key name"),
        ("a" * 64, "Invalid label key name"),
        ("ray!.io/region", "Invalid label key prefix"),
        ("/region", "Invalid label key prefix"),
        ("a." * 127 + "a/region", "Invalid label key prefix"),
        (3, "The key is not string type"),
    ],
)
def test_bad_label_keys_are_named(key: object, problem: str) -> None:
    assert problem in (label_key_problem(key) or "")


@pytest.mark.parametrize("value", ["_a", "a-", "@a", "a" * 64])
def test_bad_label_values_are_named(value: str) -> None:
    assert "Invalid label key value" in (label_value_problem(value) or "")


@pytest.mark.parametrize("value", ["", "a-value", "a" * 63])
def test_good_label_values_are_accepted(value: str) -> None:
    assert label_value_problem(value) is None


@pytest.mark.parametrize("value", ["spot", "!GPU", "in(A1, B2,C3)", "!in(spot, on-demand)", ""])
def test_good_selectors_are_accepted(value: str) -> None:
    assert selector_value_problem(value) is None


@pytest.mark.parametrize(
    "value", ["-spot", "spot_", "in()", "in(spot,", "in(a, b!c)", "!!!in(a)", "a" * 64, 3]
)
def test_bad_selectors_are_named(value: object) -> None:
    assert "Invalid label selector value" in (selector_value_problem(value) or "")


def test_a_selector_is_a_mapping() -> None:
    assert label_selector_problem(None) is None
    assert label_selector_problem({"region": "us-west4"}) is None
    assert "must be a dictionary" in (label_selector_problem(["region"]) or "")


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        (
            [{"label_selector": {"a": "b"}, "memory": 1}],
            "Unsupported option found in fallback_strategy: 'memory'",
        ),
        ([{}], "fallback_strategy has an empty dictionary"),
        ([3], "fallback_strategy has 3; each of its items must be a dictionary."),
        ([{"label_selector": 3}], "fallback_strategy has 3 as 'label_selector', which must be a dictionary."),
        ([{"label_selector": {"a": "b"}}, {"label_selector": {"!a": "b"}}], "Invalid label key name"),
        ([{"label_selector": {"a": "b!"}}], "Invalid label selector value"),
    ],
)
def test_bad_fallback_strategies_are_named(strategy: list[object], problem: str) -> None:
    assert problem in (fallback_strategy_problem(strategy) or "")


def test_a_fallback_strategy_may_be_missing_or_empty() -> None:
    assert fallback_strategy_problem(None) is None
    assert fallback_strategy_problem([]) is None


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"region": "us"}, True),
        ({"region": "eu"}, False),
        ({"region": "!eu"}, True),
        ({"region": "!us"}, False),
        ({"region": "in(eu, us)"}, True),
        ({"region": "!in(eu, us)"}, False),
        ({"zone": "a"}, False),
        ({"zone": "!a"}, True),
        ({"region": "us", "zone": "a"}, False),
        ({"empty": "in()"}, False),  # the label exists, and its value is the empty string
        ({"empty": "!in()"}, True),
        ({"region": "in()"}, False),
        ({"region": "!in()"}, True),
        ({"zone": "in()"}, True),
        ({"zone": "!in()"}, False),
    ],
)
def test_a_selector_matches_the_labels_it_names(selector: dict[str, str], matches: bool) -> None:
    assert selector_matches(selector, {"region": "us", "kind": "spot", "empty": ""}) is matches
