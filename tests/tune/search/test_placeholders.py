"""Placeholders of the objects of a search space."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate import tune
from skate.tune.search import BasicVariantGenerator
from skate.tune.search._placeholders import ObjectTable, Placeholder, receive


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


class Unpicklable(Thing):
    def __reduce__(self) -> Any:
        raise AssertionError("it must not be pickled")


@dataclasses.dataclass
class Shape:
    width: int
    label: str = "a"
    names: list[str] = dataclasses.field(init=False, default_factory=list)

    @property
    def area(self) -> int:
        return self.width**2


def configs(table: ObjectTable, **options: Any) -> list[dict[str, Any]]:
    search = BasicVariantGenerator(**options)
    search.add_configurations({"x": {"run": "f", "config": table.space}})
    found = []
    while (trial := search.next_trial()) is not None:
        found.append(table.resolve(trial.config))
    return found


def test_numbers_texts_and_distributions_stay_in_the_space() -> None:
    space = {
        "a": 1,
        "b": [None, "x", 2.5],
        "c": tune.uniform(0, 1),
        "d": tune.choice([1, 2]),
        "e": (True, b"z"),
    }
    table = ObjectTable(space)
    assert not table
    assert table.space["a"] == 1
    assert table.space["b"] == [None, "x", 2.5]
    assert table.space["c"] is space["c"]
    assert table.space["d"].categories == [1, 2]
    assert table.space["e"] == (True, b"z")


def test_objects_of_grids_choices_and_lists_reach_the_configurations() -> None:
    things = [Thing(number) for number in range(6)]
    space = {
        "grid": tune.grid_search([things[0], {"inner": things[1]}, 7]),
        "choice": tune.choice([things[2]]),
        "list": [things[3], (things[4], 1)],
        "double": tune.sample_from(lambda spec: spec.config.choice.number * 2),
        "kept": things[5],
    }
    table = ObjectTable(space)
    found = configs(table)
    assert [config["grid"] for config in found] == [things[0], {"inner": things[1]}, 7]
    assert all(config["choice"] is things[2] for config in found)
    assert all(config["list"] == [things[3], (things[4], 1)] for config in found)
    assert [config["double"] for config in found] == [4, 4, 4]
    assert space["grid"]["grid_search"][0] is things[0], "the space of the user has changed"


def test_the_search_is_pickled_without_the_objects_and_finds_them_again() -> None:
    first = ObjectTable(
        {"x": tune.grid_search([Unpicklable(1), Unpicklable(2)]), "f": tune.sample_from(lambda _: 3)}
    )
    search = BasicVariantGenerator()
    search.add_configurations({"e": {"run": "f", "config": first.space}})
    search.next_trial()
    pickled = cloudpickle.dumps(search)

    second = ObjectTable({"x": tune.grid_search([Thing(10), Thing(20)]), "f": tune.sample_from(lambda _: 30)})
    with second.loading():
        again = pickle.loads(pickled)
    trial = again.next_trial()
    assert trial is not None
    config = second.resolve(trial.config)
    assert config["x"].number == 20
    assert config["f"] == 30


def test_a_function_that_is_unpickled_without_its_experiment_says_so() -> None:
    search = BasicVariantGenerator()
    search.add_configurations(
        {"e": {"run": "f", "config": ObjectTable({"f": tune.sample_from(lambda _: 3)}).space}}
    )
    again = pickle.loads(cloudpickle.dumps(search))
    with pytest.raises(ValueError, match=r"restore the experiment with Tuner.restore\(\)"):
        again.next_trial()


def test_a_configuration_is_stored_with_placeholders_of_the_same_places() -> None:
    thing = Thing(1)
    first = ObjectTable({"a": thing, "b": thing, "n": 1})
    stored = first.replace(configs(first)[0])
    assert stored["n"] == 1
    assert isinstance(stored["a"], Placeholder)
    assert copy.deepcopy(stored["a"]) is stored["a"]
    plain = {key: str(value) if isinstance(value, str) else value for key, value in stored.items()}

    second = ObjectTable({"a": Thing(2), "b": Thing(3), "n": 1})
    assert [second.resolve(plain)[key].number for key in "ab"] == [2, 3]


def test_objects_that_a_new_space_lacks_come_from_the_earlier_one() -> None:
    old = {"a": Thing(1), "b": Thing(2)}
    stored = ObjectTable(old).replace(old)
    table = ObjectTable({"a": Thing(10), "b": 5}, lambda: old)
    found = table.resolve(stored)
    assert (found["a"].number, found["b"].number) == (10, 2)


def test_a_dataclass_with_search_values_is_created_for_each_trial() -> None:
    table = ObjectTable({"shape": Shape(tune.grid_search([2, 3])), "fixed": Shape(5)})  # type: ignore[arg-type]
    found = configs(table)
    assert [config["shape"] for config in found] == [Shape(2), Shape(3)]
    assert [config["shape"].area for config in found] == [4, 9]
    assert all(config["fixed"] == Shape(5) for config in found)


def test_texts_that_look_like_placeholders_are_left_alone() -> None:
    table = ObjectTable({"a": Thing(1)})
    config = {"text": "<Thing 00000000>", "other": "<b>"}
    assert table.resolve(config) == config


@pytest.mark.usefixtures("engine")
class TestWorkers:
    def test_each_trial_has_copies_of_its_own(self) -> None:
        table = ObjectTable({"a": [1, {"b": Thing(4)}]})
        stored = table.replace(configs(table)[0])
        references = table.references(stored)
        one, other = receive(stored, references)[0], receive(stored, references)[0]
        assert one["a"][1]["b"].number == 4
        assert one["a"][1]["b"] is not other["a"][1]["b"]
        assert table.references(stored) == references

    def test_files_show_small_arrays_and_name_large_ones(self) -> None:
        np = pytest.importorskip("numpy")
        table = ObjectTable({"small": np.arange(3), "large": np.zeros(10_000)})
        stored = table.replace(configs(table)[0])
        config, shown = receive(stored, table.references(stored))
        assert config["large"].shape == (10_000,)
        assert list(shown["small"]) == [0, 1, 2]
        assert shown["large"].startswith("<ndarray ")


LEAVES = st.one_of(st.integers(), st.text(), st.none(), st.builds(Thing, st.integers()))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=12,
)


def flat(tree: Any) -> list[Any]:
    if isinstance(tree, Mapping):
        return [leaf for key, value in tree.items() for leaf in (key, *flat(value))]
    if isinstance(tree, list | tuple):
        return [leaf for value in tree for leaf in flat(value)]
    return [tree]


@given(st.dictionaries(st.text(), TREES))
def test_replacing_and_resolving_are_inverse(config: dict[str, Any]) -> None:
    if any(text in str(config) for text in ("grid_search", "eval")):
        return
    table = ObjectTable(config)
    stored = table.replace(config)
    assert not any(isinstance(leaf, Thing) for leaf in flat(stored))
    assert flat(table.resolve(stored)) == flat(config)
