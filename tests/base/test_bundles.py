"""Checks of placement groups."""

from __future__ import annotations

from typing import Any

import pytest

from skate._base.bundles import (
    NODE_LABEL,
    STRATEGIES,
    check_bundle_index,
    check_fits,
    validate_bundles,
    validate_label_selectors,
    validate_lifetime,
    validate_strategy,
)


def test_bundles_come_back_as_floats_without_zeros() -> None:
    assert validate_bundles([{"CPU": 1, "memory": 0}, {"GPU": 0.75}]) == [{"CPU": 1.0}, {"GPU": 0.75}]


@pytest.mark.parametrize(
    ("bundles", "message"),
    [
        ("not a list", "must be a list"),
        ({}, "must be a list"),
        ([], "must be a non-empty list"),
        ([{"CPU": 1}, "not a dict"], "dictionaries from names of resources to numbers"),
        ([{8: 7}], "dictionaries from names of resources to numbers"),
        ([{"CPU": "6"}], "dictionaries from names of resources to numbers"),
        ([{"CPU": 0, "GPU": 0}], "only 0 values"),
        ([{}], "only 0 values"),
        ([{"CPU": -1}], "negative or infinite"),
        ([{"bundle": 1}], "'bundle' is reserved"),
    ],
)
def test_bad_bundles_are_refused(bundles: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate_bundles(bundles)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_is_accepted(strategy: str) -> None:
    assert validate_strategy(strategy) == strategy


def test_the_default_strategy_packs() -> None:
    assert validate_strategy(None) == "PACK"
    assert validate_strategy(None, {NODE_LABEL: "SPREAD", "ray.io/gpu-domain": "STRICT_PACK"}) == "SPREAD"
    assert validate_strategy(None, {"ray.io/gpu-domain": "STRICT_PACK"}) == "PACK"


@pytest.mark.parametrize(
    ("strategy", "topology", "message"),
    [
        ("BEST", None, "Invalid placement group strategy 'BEST'"),
        ("PACK", {NODE_LABEL: "PACK"}, "strategy` and `topology_strategy` cannot both"),
        (None, [NODE_LABEL], "must be a dict"),
        (None, {"": "PACK"}, "keys must be non-empty strings"),
        (None, {1: "PACK"}, "keys must be non-empty strings"),
        (None, {NODE_LABEL: "BEST"}, "Invalid topology strategy"),
        (None, {"ray.io/zone": "SPREAD"}, "only 'STRICT_PACK' is supported"),
        (None, {"a": "STRICT_PACK", "b": "STRICT_PACK"}, "at most one topology label"),
    ],
)
def test_bad_strategies_are_refused(strategy: str | None, topology: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate_strategy(strategy, topology)


def test_every_bundle_gets_a_label_selector() -> None:
    assert validate_label_selectors(None, 2) == [{}, {}]
    assert validate_label_selectors([{"region": "eu"}], 1) == [{"region": "eu"}]


@pytest.mark.parametrize(
    ("selectors", "message"),
    [
        ("not a list", "must be a list"),
        ([], "has 0 selectors for 1 bundles"),
        (["not a dict"], "must be a list of string dictionary"),
        ([{1: "value"}], "must be a list of string dictionary"),
        ([{"key": 1}], "must be a list of string dictionary"),
        ([{"INVALID key!": "value"}], "Invalid label selector provided"),
    ],
)
def test_bad_label_selectors_are_refused(selectors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate_label_selectors(selectors, 1)


def test_a_lifetime_is_none_or_detached() -> None:
    assert validate_lifetime(None) is None
    assert validate_lifetime("detached") == "detached"
    with pytest.raises(ValueError, match="is None, to end with its driver, or 'detached'; got 'forever'"):
        validate_lifetime("forever")


def test_a_bundle_index_is_checked_against_the_group() -> None:
    for index in (-1, 0, 1):
        check_bundle_index(index, 2)
    for index in (-2, 2):
        with pytest.raises(ValueError, match=f"bundle index {index} is invalid.*0 to 1"):
            check_bundle_index(index, 2)
    check_bundle_index(-1, None)
    with pytest.raises(ValueError, match="bundle index must be -1"):
        check_bundle_index(0, None)


def test_work_must_fit_into_one_bundle() -> None:
    bundles = [{"CPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}]
    check_fits("f", {"CPU": 2.0}, bundles)
    check_fits("f", {}, bundles, 0)
    with pytest.raises(
        ValueError, match=r"Cannot schedule f .* request \{'CPU': 3, 'GPU': 0\.5\} cannot fit"
    ):
        check_fits("f", {"CPU": 3.0, "GPU": 0.5}, bundles)
    with pytest.raises(ValueError, match=r"request \{'CPU': 2\} .* group, \[\{'CPU': 1\.0\}\]"):
        check_fits("f", {"CPU": 2.0}, bundles, 0)
