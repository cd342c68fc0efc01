"""Scheduling strategies: their fields and their validation."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import skate
from skate._base.ids import NodeID
from skate._base.options import TaskOptions
from skate.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)


def test_a_placement_group_strategy_defaults_to_any_bundle() -> None:
    strategy = PlacementGroupSchedulingStrategy(None)
    assert strategy.placement_group_bundle_index == -1
    assert strategy.placement_group_capture_child_tasks is None


def test_a_node_may_be_given_as_id_or_as_digits() -> None:
    node = NodeID.from_random()
    assert NodeAffinitySchedulingStrategy(node, soft=True).node_id == node.hex()
    assert NodeAffinitySchedulingStrategy(node.hex(), soft=False).node_id == node.hex()


@pytest.mark.parametrize("node", ["abc", "zz" * 28, "", None, 3, NodeID.nil()])
def test_something_that_is_no_node_id_is_refused(node: Any) -> None:
    with pytest.raises(ValueError, match="Invalid node_id"):
        NodeAffinitySchedulingStrategy(node, soft=False)


def test_contradicting_flags_of_a_node_strategy_are_refused() -> None:
    node = NodeID.from_random()
    with pytest.raises(ValueError, match=r"_spill_on_unavailable cannot be set when soft is False"):
        NodeAffinitySchedulingStrategy(node, soft=False, _spill_on_unavailable=True)
    with pytest.raises(ValueError, match=r"_fail_on_unavailable cannot be set when soft is True"):
        NodeAffinitySchedulingStrategy(node, soft=True, _fail_on_unavailable=True)


@pytest.mark.parametrize("operator", [In, NotIn])
def test_an_operator_needs_values_that_are_strings(operator: type[In]) -> None:
    name = operator.__name__
    with pytest.raises(ValueError, match=f"{name}.* has no values to compare a label with"):
        operator()
    with pytest.raises(ValueError, match=f"{name}.* takes strings, .* but argument 1 is 3"):
        operator("a", 3)  # type: ignore[arg-type]
    assert operator("a", "b").values == ["a", "b"]


@pytest.mark.parametrize(
    ("hard", "soft", "message"),
    [
        (None, None, "has no condition"),
        ({}, {}, "has no condition"),
        (None, ["1"], "The soft parameter must be a map"),
        (3, None, "The hard parameter must be a map"),
        ({111: In("a")}, None, "The keys of `hard` must be strings"),
        ({"a": "b"}, None, "must be one of the `In`, `NotIn`, `Exists` or `DoesNotExist`"),
    ],
)
def test_bad_label_conditions_are_refused(hard: Any, soft: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NodeLabelSchedulingStrategy(hard, soft=soft)


@pytest.mark.parametrize(
    ("operator", "matches"),
    [
        (In("us", "eu"), True),
        (In("ap"), False),
        (NotIn("ap"), True),
        (NotIn("eu"), False),
        (Exists(), True),
        (DoesNotExist(), False),
    ],
)
def test_a_condition_matches_labels(operator: In | NotIn | Exists | DoesNotExist, matches: bool) -> None:
    (condition,) = NodeLabelSchedulingStrategy({"region": operator}).hard
    assert condition.matches({"region": "eu"}) is matches


def test_conditions_on_a_label_that_is_not_there() -> None:
    operators: dict[str, Any] = {"a": In("x"), "b": NotIn("x"), "c": Exists(), "d": DoesNotExist()}
    conditions = NodeLabelSchedulingStrategy(operators).hard
    assert [condition.matches({}) for condition in conditions] == [False, True, False, True]


def test_strategies_are_accepted_as_options_and_survive_pickling() -> None:
    strategy = NodeLabelSchedulingStrategy({"region": In("eu")})
    options = pickle.loads(pickle.dumps(TaskOptions.parse({"scheduling_strategy": strategy})))
    assert repr(options.scheduling_strategy) == repr(strategy)


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_a_task_runs_on_a_node_whose_labels_meet_the_conditions(engine: str) -> None:
    @skate.remote
    def where(conditions: str) -> str:
        return conditions

    with skate.init(engine=engine, num_cpus=1, labels={"region": "eu"}):
        for hard in (
            {"region": Exists()},
            {"spot": DoesNotExist()},
            {"region": In("eu"), "spot": NotIn("x")},
        ):
            task = where.options(scheduling_strategy=NodeLabelSchedulingStrategy(hard))
            assert skate.get(task.remote(repr(hard)), timeout=30) == repr(hard)
        for hard in ({"region": DoesNotExist()}, {"spot": Exists()}, {"region": NotIn("eu")}):
            task = where.options(scheduling_strategy=NodeLabelSchedulingStrategy(hard))
            with pytest.raises(skate.exceptions.TaskUnschedulableError):
                skate.get(task.remote("nowhere"), timeout=30)
