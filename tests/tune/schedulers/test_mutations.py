"""Mutations of hyperparameters."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.tune.schedulers._mutations import explore, fill_missing, flatten_mutations, mutated_values
from skate.tune.search.sample import (
    choice,
    loguniform,
    qrandint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)


def outcomes(value: Any, distribution: Any, resample: float = 0.0, count: int = 100) -> set[Any]:
    rng = random.Random(0)
    mutations = flatten_mutations({"v": distribution})
    return {explore({"v": value}, mutations, resample, (1.2, 0.8), None, rng)[0]["v"] for _ in range(count)}


@pytest.mark.parametrize("kind", [list, tuple])
def test_values_of_a_list_move_to_a_neighbor(kind: Any) -> None:
    values = kind([3, 4, 8, 10])
    assert outcomes(4, values) == {3, 8}
    assert outcomes(3, values) == {3, 4}
    assert outcomes(10, values) == {8, 10}


def test_a_value_that_is_not_in_its_list_is_resampled() -> None:
    assert outcomes(7, [3, 4, 8, 10]) == {3, 4, 8, 10}


def test_resampling_draws_from_the_whole_distribution() -> None:
    assert outcomes(4, [3, 4, 8, 10], 1.0) == {3, 4, 8, 10}
    assert outcomes("a", choice(["a", "b", "c"]), 1.0) == {"a", "b", "c"}
    assert outcomes(1.0, lambda: 7.5, 1.0) == {7.5}


def test_numbers_are_scaled() -> None:
    assert outcomes(100.0, lambda: 10.0) == {80.0, 120.0}
    assert outcomes(100.0, uniform(0, 1000)) == {80.0, 120.0}
    assert outcomes(10.0, randn()) == {8.0, 12.0}


def test_integers_stay_integers() -> None:
    assert {(type(value), value) for value in outcomes(10, lambda: 10)} == {(int, 8), (int, 12)}
    assert outcomes(1, lambda: 5) == {1}, "a size never becomes zero by rounding"
    assert outcomes(10, lambda: 7.9, 1.0) == {7}


def test_scaled_numbers_stay_within_the_bounds_of_their_space() -> None:
    assert outcomes(0.95, uniform(0.9, 1.0)) == {0.9, 1.0}
    assert outcomes(0.95, loguniform(0.9, 1.0)) == {0.9, 1.0}
    assert outcomes(10, randint(9, 11)) == {9, 10}, "the upper bound of integers is exclusive"


def test_scaled_numbers_stay_multiples() -> None:
    assert outcomes(0.5, quniform(0.0, 1.0, 0.25)) == {0.5}
    assert outcomes(32, qrandint(8, 64, 8)) == {24, 40}


def test_values_that_cannot_be_scaled_are_resampled() -> None:
    assert outcomes("a", choice(["a", "b"])) == {"a", "b"}
    assert outcomes(True, choice([True, False])) == {True, False}
    assert outcomes(None, lambda: 3.0) == {3.0}


def test_nested_hyperparameters_mutate_and_the_rest_stays() -> None:
    big = object()
    config = {"a": {"b": 4, "keep": big}, "1": {"2": {"3": 100}}, "other": [1, 2]}
    mutations = flatten_mutations({"a": {"b": [3, 4, 8]}, "1": {"2": {"3": lambda: 10}}})
    new, operations = explore(config, mutations, 0.0, (1.2, 0.8), None, random.Random(1))
    assert new["a"]["b"] in (3, 8)
    assert new["1"]["2"]["3"] in (80, 120)
    assert new["a"]["keep"] is big
    assert new["other"] == [1, 2]
    assert config["a"]["b"] == 4, "the configuration of the source does not change"
    assert operations.keys() == {"a/b", "1/2/3"}
    assert mutated_values(new, mutations) == {("a", "b"): new["a"]["b"], ("1", "2", "3"): new["1"]["2"]["3"]}


def test_operations_say_what_was_done() -> None:
    rng = random.Random(0)
    seen = {
        explore(
            {"v": 1, "w": 1.0}, flatten_mutations({"v": [1, 2], "w": uniform(0, 9)}), 0.3, (2,), None, rng
        )[1][name]
        for _ in range(50)
        for name in ("v", "w")
    }
    assert seen == {"resample", "shift left (noop)", "shift right", "* 2"}


def test_a_custom_function_has_the_last_word() -> None:
    def double(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "v": config["v"] * 2}

    new, _ = explore(
        {"v": 10.0}, flatten_mutations({"v": lambda: 1.0}), 0.0, (1.0,), double, random.Random(0)
    )
    assert new == {"v": 20.0}
    with pytest.raises(TypeError, match="custom_explore_fn must return the configuration"):
        explore({}, {}, 0.0, (1.0,), lambda config: None, random.Random(0))  # type: ignore[arg-type, return-value]


def test_missing_hyperparameters_are_sampled() -> None:
    config: dict[str, Any] = {"a": {"b": 1}}
    mutations = flatten_mutations({"a": {"b": [5], "c": [6]}, "d": uniform(2, 3), "e": {"f": lambda: 8}})
    sampled = fill_missing(config, mutations, random.Random(0))
    assert config["a"] == {"b": 1, "c": 6}
    assert 2 <= config["d"] <= 3
    assert config["e"] == {"f": 8}
    assert sampled.keys() == {"a/c", "d", "e/f"}


def test_a_section_that_is_no_dictionary_is_an_error() -> None:
    with pytest.raises(ValueError, match="'a/b' cannot be set: 'a' is 3"):
        fill_missing({"a": 3}, flatten_mutations({"a": {"b": [1]}}), random.Random(0))


@pytest.mark.parametrize("distribution", ["abc", {1, 2}, 3.0, None])
def test_what_is_no_distribution_is_an_error(distribution: Any) -> None:
    with pytest.raises(TypeError, match=r"hyperparam_mutations\['a/b'\] must be a list"):
        flatten_mutations({"a": {"b": distribution}})


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (sample_from(lambda: 1), "cannot be perturbed"),
        ({"grid_search": [1]}, "is a grid"),
        ([], "has no values"),
    ],
)
def test_distributions_that_cannot_mutate_are_errors(distribution: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flatten_mutations({"v": distribution})


@given(
    st.floats(-100, 100),
    st.floats(0.01, 100),
    st.floats(0, 1),
    st.lists(st.floats(0.1, 3), min_size=1, max_size=3),
    st.integers(0, 1000),
)
def test_any_mutation_of_a_bounded_number_is_within_its_bounds(
    low: float, width: float, share: float, factors: list[float], seed: int
) -> None:
    rng = random.Random(seed)
    space = uniform(low, low + width)
    config = {"v": low + share * width}
    for _ in range(5):
        config, _ = explore(config, flatten_mutations({"v": space}), 0.2, factors, None, rng)
        assert low <= config["v"] <= low + width
