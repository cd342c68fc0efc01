"""Variants of search spaces."""

from __future__ import annotations

import collections
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.tune.search.sample import Uniform, choice, randint, sample_from, uniform
from skate.tune.search.variant_generator import (
    RecursiveDependencyError,
    Variants,
    count_variants,
    evaluated_params,
    format_vars,
    generate_variants,
    grid_search,
    parse_spec_vars,
)


def configs(space: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return [spec["config"] for _, spec in generate_variants({"config": space}, **options)]


def test_grids_form_all_combinations_and_the_first_varies_fastest() -> None:
    found = configs({"foo": grid_search([1, 2, 3]), "bar": {"grid_search": [True, False]}, "constant": "x"})
    assert [(each["bar"], each["foo"]) for each in found] == [
        (True, 1),
        (False, 1),
        (True, 2),
        (False, 2),
        (True, 3),
        (False, 3),
    ]
    assert all(each["constant"] == "x" for each in found)


def test_a_space_of_constants_has_one_variant() -> None:
    assert list(generate_variants({"config": {"x": 1}})) == [({}, {"config": {"x": 1}})]


def test_nested_dicts_lists_and_tuples_are_resolved() -> None:
    space = {"a": {"b": [uniform(0, 1), {"c": (1, grid_search([2, 3]))}]}, "t": ((choice([5]),),)}
    first, second = configs(space)
    assert first["a"]["b"][1]["c"] == (1, 2)
    assert second["a"]["b"][1]["c"] == (1, 3)
    assert 0 <= first["a"]["b"][0] <= 1
    assert first["t"] == ((5,),)
    assert isinstance(space["a"]["b"], list)
    assert not isinstance(space["a"]["b"][0], float), "the space itself does not change"


def test_named_tuples_keep_their_type() -> None:
    Point = collections.namedtuple("Point", "x y")
    (found,) = configs({"p": Point(1, choice([2]))})
    assert found["p"] == Point(1, 2)
    assert type(found["p"]) is Point


def test_resolved_values_are_returned_by_their_paths() -> None:
    ((resolved, _),) = generate_variants({"config": {"x": {"y": choice([1])}, "z": choice([2]), "c": 3}})
    assert resolved == {("config", "x", "y"): 1, ("config", "z"): 2}
    assert evaluated_params(resolved) == {"x/y": 1, "z": 2}


@pytest.mark.parametrize("order", [("x", "y", "z"), ("z", "y", "x"), ("y", "z", "x")])
def test_functions_depend_on_each_other_in_any_order(order: tuple[str, ...]) -> None:
    space = {
        "x": randint(0, 100),
        "y": sample_from(lambda spec: spec.config.x + 1),
        "z": sample_from(lambda config: config["y"] + 1),
    }
    (found,) = configs({key: space[key] for key in order})
    assert found["y"] == found["x"] + 1
    assert found["z"] == found["x"] + 2


def test_functions_read_nested_values_and_lists() -> None:
    (found,) = configs(
        {
            "a": {
                "b": {"c": choice([2])},
                "d": [choice([3]), sample_from(lambda config: config["a"]["d"][0] + 1)],
            },
            "sum": sample_from(lambda spec: spec.config.a.b.c + sum(spec.config.a.d)),
            "names": sample_from(lambda config: sorted(config["a"])),
            "default": sample_from(lambda config: config.get("missing", 7)),
        }
    )
    assert found == {"a": {"b": {"c": 2}, "d": [3, 4]}, "sum": 9, "names": ["b", "d"], "default": 7}


def test_functions_read_fields_of_the_experiment() -> None:
    ((_, spec),) = generate_variants(
        {
            "num_workers": 4,
            "config": {"a": sample_from(lambda spec: spec.num_workers)},
            "cpu": {"eval": "spec.config.a"},
        }
    )
    assert (spec["config"]["a"], spec["cpu"]) == (4, 4)


def test_a_configuration_without_an_experiment_can_be_resolved() -> None:
    ((_, found),) = generate_variants({"x": choice([1]), "y": sample_from(lambda spec: spec.config.x)})
    assert found == {"x": 1, "y": 1}


def test_each_function_is_called_once_per_variant() -> None:
    calls: list[int] = []

    def draw() -> int:
        calls.append(1)
        return len(calls)

    (found,) = configs({"a": sample_from(lambda config: config["b"]), "b": sample_from(draw)})
    assert found == {"a": 1, "b": 1}
    assert len(calls) == 1


def test_grids_of_functions_depend_on_other_values() -> None:
    space = {
        "x": grid_search(
            [sample_from(lambda spec: spec.config.y * 100), sample_from(lambda spec: spec.config.y * 200)]
        ),
        "y": sample_from(lambda spec: 1),
    }
    assert configs(space) == [{"x": 100, "y": 1}, {"x": 200, "y": 1}]


def test_values_of_grids_and_choices_may_contain_domains_and_grids() -> None:
    found = configs(
        {"x": grid_search([{"name": "a", "k": choice([1])}, {"name": "b", "l": grid_search([2, 3])}])}
    )
    assert found == [
        {"x": {"name": "a", "k": 1}},
        {"x": {"name": "b", "l": 2}},
        {"x": {"name": "b", "l": 3}},
    ]
    assert configs(
        {"x": choice([{"inner": grid_search([1, 2])}]), "y": sample_from(lambda c: c["x"]["inner"] * 2)}
    ) == [
        {"x": {"inner": 1}, "y": 2},
        {"x": {"inner": 2}, "y": 4},
    ]
    ((resolved, _),) = generate_variants({"config": {"x": choice([{"k": choice([1])}])}})
    assert resolved == {("config", "x"): {"k": 1}, ("config", "x", "k"): 1}


def test_values_are_sampled_for_every_combination_of_grids() -> None:
    found = configs({"g": grid_search([1, 2, 3]), "u": uniform(0, 1)}, random_state=0)
    assert len({each["u"] for each in found}) == 3


def test_constant_grid_search_keeps_sampled_values_over_the_grid() -> None:
    space = {
        "g": grid_search([1, 2, 3]),
        "u": uniform(0, 1),
        "f": sample_from(lambda config: config["g"] * 10),
    }
    found = configs(space, constant_grid_search=True, random_state=0)
    assert len({each["u"] for each in found}) == 1
    assert [each["f"] for each in found] == [10, 20, 30]
    ((resolved, _), *_) = generate_variants({"config": space}, constant_grid_search=True)
    assert {path[-1] for path in resolved} == {"g", "u", "f"}


@pytest.mark.parametrize(
    ("space", "cycle"),
    [
        ({"foo": sample_from(lambda spec: spec.config.foo)}, "foo -> foo"),
        (
            {
                "foo": sample_from(lambda config: config["sub"]["bar"]),
                "sub": {"bar": sample_from(lambda config: config["foo"])},
            },
            "foo -> sub/bar -> foo",
        ),
    ],
)
def test_a_cycle_is_an_error_that_names_the_values(space: dict[str, Any], cycle: str) -> None:
    with pytest.raises(RecursiveDependencyError, match=rf"`foo` recursively depends on itself: {cycle}\."):
        configs(space)


def test_a_failing_function_is_an_error_that_names_the_path() -> None:
    with pytest.raises(ValueError, match=r"Could not sample 'a/b' .* KeyError: 'missing'"):
        configs({"a": {"b": sample_from(lambda config: config["missing"])}})


def test_unknown_types_are_errors_that_name_the_path() -> None:
    with pytest.raises(TypeError, match="unknown type at 'model/lr'"):
        configs({"model": {"lr": Uniform()}})
    with pytest.raises(TypeError, match="unknown type at 'lr'"):
        configs({"lr": Uniform})
    with pytest.raises(TypeError, match="grid_search at 'layers' needs a list of values, got int: 3"):
        configs({"layers": grid_search(3)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="grid_search at 'layers' needs at least one value"):
        configs({"layers": grid_search([])})


def test_definitions_of_other_libraries_are_unknown_types() -> None:
    stats = pytest.importorskip("scipy.stats")
    with pytest.raises(TypeError, match=r"unknown type at 'lr': scipy\.stats"):
        configs({"lr": stats.uniform(0, 1)})


def test_optuna_distributions_are_unknown_types() -> None:
    optuna = pytest.importorskip("optuna")
    with pytest.raises(TypeError, match=r"at 'lr': optuna.* pass it to OptunaSearch\(space=...\)"):
        configs({"lr": optuna.distributions.FloatDistribution(0, 1)})


def test_other_objects_are_constants() -> None:
    marker = object()
    (found,) = configs({"data": marker, "call": print, "cls": dict, "x": choice([1])})
    assert found["data"] is marker
    assert found["call"] is print


def test_variants_are_counted() -> None:
    space = {
        "a": grid_search([1, 2, 3]),
        "b": uniform(0, 1),
        "c": [grid_search([1, {"d": grid_search([4, 5])}])],
    }
    spec = {"config": space, "num_samples": 2}
    assert count_variants(spec) == 18
    assert count_variants(spec, [{"a": 1}]) == 3 + 9
    assert count_variants({"config": {}}) == 1
    assert len(configs(space)) == 9


@given(sizes=st.lists(st.integers(1, 3), max_size=4))
def test_the_count_is_the_number_of_variants(sizes: list[int]) -> None:
    space = {str(number): grid_search(range(size)) for number, size in enumerate(sizes)}
    found = configs(space)
    assert count_variants({"config": space}) == len(found) == len({tuple(each.items()) for each in found})


def test_values_are_formatted_as_names_of_folders() -> None:
    values = {
        ("config", "lr"): 0.123456,
        ("config", "act"): "re/lu x",
        ("config", "layers", 0): 3,
        ("z",): [1, 2],
    }
    assert format_vars(values) == "act=re_lu_x,0=3,lr=0.1235,z=1_2"
    assert format_vars({}) == ""


def test_a_space_is_split_into_constants_domains_and_grids() -> None:
    constants, sampled, grids = parse_spec_vars({"a": 1, "b": {"c": uniform(0, 1)}, "d": grid_search([1])})
    assert constants == [(("a",), 1)]
    assert [path for path, _ in sampled] == [("b", "c")]
    assert [path for path, _ in grids] == [("d",)]


def test_variants_survive_pickling_in_the_middle() -> None:
    space = {
        "g": grid_search([1, {"h": grid_search([2, 3, 4])}, 5]),
        "u": uniform(0, 1),
        "f": sample_from(lambda config: config["u"] * 2),
    }
    for consumed in range(5):
        variants = Variants({"config": space}, random_state=4)
        for _ in range(consumed):
            next(variants)
        loaded = cloudpickle.loads(cloudpickle.dumps(variants))
        assert list(loaded) == list(variants)
