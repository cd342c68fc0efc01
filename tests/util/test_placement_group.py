"""Placement groups, with an engine that only records the requests."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import Any

import pytest

import skate
from skate import _engine
from skate._base.ids import PlacementGroupID
from skate._base.options import ActorOptions, TaskOptions
from skate._placement_group import check_placement
from skate.util.placement_group import (
    PlacementGroup,
    check_placement_group_index,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
    validate_placement_group,
)
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy


class FakeEngine:
    """Reserves everything at once and remembers it."""

    def __init__(self) -> None:
        self.groups: dict[bytes, dict[str, Any]] = {}
        self.current: bytes | None = None

    def create_placement_group(
        self,
        bundles: list[dict[str, float]],
        strategy: str,
        name: str,
        lifetime: str | None,
        labels: list[dict[str, str]],
    ) -> bytes:
        id = PlacementGroupID.from_random().binary()
        self.groups[id] = {
            "placement_group_id": id.hex(),
            "name": name,
            "bundles": dict(enumerate(bundles)),
            "strategy": strategy,
            "state": "CREATED",
            "lifetime": lifetime,
            "labels": labels,
        }
        return id

    def remove_placement_group(self, id: bytes) -> None:
        self.groups[id]["state"] = "REMOVED"

    def placement_group_ready(self, id: bytes, value: object) -> object:
        return (self.groups[id]["state"], value)

    def placement_group_table(self) -> dict[str, dict[str, Any]]:
        return {id.hex(): dict(group) for id, group in self.groups.items()}

    def find_placement_group(self, name: str, namespace: str | None) -> bytes | None:
        for id, group in self.groups.items():
            if group["name"] == name and group["state"] != "REMOVED":
                return id
        return None

    def current_placement_group(self) -> bytes | None:
        return self.current


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine()

    def get(reference: tuple[str, object]) -> object:
        if reference[0] != "CREATED":
            raise RuntimeError("removed")
        return reference[1]

    monkeypatch.setattr(_engine, "current", lambda: engine, raising=False)
    monkeypatch.setattr(skate, "get", get, raising=False)
    monkeypatch.setattr(
        skate,
        "wait",
        lambda refs, timeout: (refs, []) if refs[0][0] != "PENDING" else ([], refs),
        raising=False,
    )
    return engine


def test_a_group_knows_its_bundles(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1, "memory": 0}, {"GPU": 2}])
    assert group.bundle_specs == [{"CPU": 1.0}, {"GPU": 2.0}]
    assert group.bundle_count == 2
    assert not group.is_empty


def test_the_module_can_be_called_like_the_function_in_it(engine: FakeEngine) -> None:
    module = importlib.import_module("skate.util.placement_group")
    made = module([{"CPU": 1}])  # type: ignore[operator]
    assert made.bundle_count == 1


def test_what_was_asked_reaches_the_engine(engine: FakeEngine) -> None:
    placement_group(
        [{"CPU": 1}], "SPREAD", name="n", lifetime="detached", bundle_label_selector=[{"region": "eu"}]
    )
    (made,) = engine.groups.values()
    assert (made["strategy"], made["name"], made["lifetime"]) == ("SPREAD", "n", "detached")
    assert made["labels"] == [{"region": "eu"}]


def test_bad_arguments_never_reach_the_engine(engine: FakeEngine) -> None:
    with pytest.raises(ValueError, match="non-empty list"):
        placement_group([])
    with pytest.raises(ValueError, match="Invalid placement group strategy"):
        placement_group([{"CPU": 1}], strategy="BEST")
    with pytest.raises(
        ValueError, match="_soft_target_node_id needs strategy='STRICT_PACK', and the strategy is 'PACK'"
    ):
        placement_group([{"CPU": 1}], _soft_target_node_id="ab")
    with pytest.raises(TypeError, match="must be a string"):
        placement_group([{"CPU": 1}], name=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="or 'detached'; got 'long'"):
        validate_placement_group([{"CPU": 1}], lifetime="long")
    assert engine.groups == {}
    assert validate_placement_group([{"CPU": 1}])


def test_ready_gives_the_group_itself(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1}])
    assert skate.get(group.ready()) is group


def test_wait_tells_whether_the_group_is_ready(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(1)
    engine.groups[group.id.binary()]["state"] = "PENDING"
    assert not group.wait(1)


def test_waiting_for_a_removed_group_raises(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1}])
    remove_placement_group(group)
    with pytest.raises(RuntimeError, match="removed"):
        group.wait(1)


def test_a_group_is_found_by_name(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1}], name="n")
    found = get_placement_group("n")
    assert found == group
    assert found.bundle_specs == [{"CPU": 1.0}]
    with pytest.raises(ValueError, match="Failed to look up placement group 'other'"):
        get_placement_group("other")
    with pytest.raises(ValueError, match="needs the name of a placement group"):
        get_placement_group("")


def test_the_table_holds_one_group_or_all(engine: FakeEngine) -> None:
    first, second = placement_group([{"CPU": 1}]), placement_group([{"CPU": 2}])
    assert placement_group_table(first)["bundles"] == {0: {"CPU": 1.0}}
    assert set(placement_group_table()) == {first.id.hex(), second.id.hex()}
    assert placement_group_table(PlacementGroup(PlacementGroupID.from_random())) == {}


def test_the_current_group_is_known(engine: FakeEngine) -> None:
    assert get_current_placement_group() is None
    group = placement_group([{"CPU": 1}])
    engine.current = group.id.binary()
    assert get_current_placement_group() == group


def test_the_empty_group_has_nothing() -> None:
    empty = PlacementGroup.empty()
    assert empty.is_empty
    assert empty.bundle_specs == []
    with pytest.raises(ValueError, match="bundle index must be -1"):
        check_placement_group_index(empty, 0)


def test_a_bundle_index_is_checked(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    check_placement_group_index(group, 1)
    with pytest.raises(ValueError, match="bundle index 3 is invalid"):
        check_placement_group_index(group, 3)


def test_work_must_fit_into_the_group_it_is_sent_to(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1}, {"disk": 1}])

    def sent(kind: type[ActorOptions] | type[TaskOptions], index: int = -1, **options: Any) -> None:
        strategy = PlacementGroupSchedulingStrategy(group, index)
        check_placement("work", kind.parse({"scheduling_strategy": strategy, **options}))

    sent(TaskOptions)
    sent(TaskOptions, 1, num_cpus=0, resources={"disk": 1})
    sent(ActorOptions, 0)
    with pytest.raises(ValueError, match="cannot fit into any bundles"):
        sent(TaskOptions, num_cpus=2)
    with pytest.raises(ValueError, match="cannot fit into any bundles"):
        sent(ActorOptions, 1)
    with pytest.raises(ValueError, match="bundle index 3 is invalid"):
        sent(TaskOptions, 3)


def test_a_bundle_index_needs_a_group() -> None:
    check_placement("work", TaskOptions())
    with pytest.raises(ValueError, match="bundle index must be -1"):
        check_placement("work", TaskOptions(placement_group_bundle_index=0))


def test_groups_are_equal_by_id(engine: FakeEngine) -> None:
    group = placement_group([{"CPU": 1}])
    assert {group: "found"}[copy.copy(group)] == "found"
    assert pickle.loads(pickle.dumps(group)) == group
    assert group != placement_group([{"CPU": 1}])


def test_only_groups_can_be_removed(engine: FakeEngine) -> None:
    with pytest.raises(TypeError, match="expected a PlacementGroup"):
        remove_placement_group("group")  # type: ignore[arg-type]
