"""Resources are counted, although calls run one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.exceptions import (
    ActorPlacementGroupRemoved,
    ActorUnschedulableError,
    RaySystemError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
)
from skate.util import placement_group, placement_group_table, remove_placement_group
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    skate.init(engine="inline", num_cpus=4, num_gpus=2, resources={"disk": 1}, labels={"zone": "a"})
    yield
    skate.shutdown()


@skate.remote
def available() -> dict[str, float]:
    return skate.available_resources()


@skate.remote
def devices() -> tuple[list[Any], str | None]:
    return skate.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")


@skate.remote
class Holder:
    def devices(self) -> tuple[list[Any], str | None]:
        return skate.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")

    def ask(self) -> dict[str, float]:
        found: dict[str, float] = skate.get(available.remote())
        return found


def test_a_running_task_holds_its_resources() -> None:
    found = skate.get(available.options(num_cpus=3, resources={"disk": 1}).remote())
    assert found["CPU"] == 1
    assert "disk" not in found
    assert skate.available_resources()["CPU"] == 4


def test_a_task_that_calls_another_lends_its_cpus() -> None:
    holder = Holder.options(num_cpus=4).remote()
    assert "CPU" not in skate.available_resources()
    assert skate.get(holder.ask.remote())["CPU"] == 3
    assert "CPU" not in skate.available_resources()


def test_an_impossible_request_fails_at_get() -> None:
    with pytest.raises(TaskUnschedulableError, match=r"CPU: 99"):
        skate.get(available.options(num_cpus=99).remote())
    with pytest.raises(ActorUnschedulableError, match=r"tape: 1"):
        skate.get(Holder.options(resources={"tape": 1}).remote().ask.remote())
    with pytest.raises(TaskUnschedulableError, match="zone"):
        skate.get(available.options(label_selector={"zone": "b"}).remote())
    assert skate.get(available.options(label_selector={"zone": "a"}).remote())


def test_gpus_are_handed_out_one_by_one() -> None:
    first = Holder.options(num_gpus=1).remote()
    assert skate.get(first.devices.remote()) == ([0], "0")
    assert skate.get(devices.options(num_gpus=1).remote()) == ([1], "1")
    assert skate.get(devices.remote())[0] == []
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None


def test_what_waits_for_resources_runs_when_they_are_free() -> None:
    holder = Holder.options(resources={"disk": 1}).remote()
    ref = available.options(resources={"disk": 1}).remote()
    second = Holder.options(resources={"disk": 1}).remote()
    asked = second.ask.remote()
    assert skate.wait([ref, asked], timeout=0) == ([], [ref, asked])
    skate.kill(holder)
    assert "disk" not in skate.get(ref)
    assert "disk" not in skate.get(asked)


def test_a_group_reserves_its_bundles() -> None:
    group = placement_group([{"CPU": 2}, {"CPU": 1, "GPU": 1}], name="mine")
    assert group.wait(0)
    assert skate.available_resources()["CPU"] == 1
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1)
    assert skate.get(devices.options(num_gpus=1, scheduling_strategy=strategy).remote())[0] == [0]
    row = placement_group_table(group)
    assert (row["state"], row["name"], row["strategy"]) == ("CREATED", "mine", "PACK")
    assert row["bundles"] == {0: {"CPU": 2.0}, 1: {"CPU": 1.0, "GPU": 1.0}}
    assert skate.util.get_placement_group("mine") == group
    remove_placement_group(group)
    assert skate.available_resources()["CPU"] == 4
    assert placement_group_table(group)["state"] == "REMOVED"


def test_removing_a_group_ends_what_is_in_it() -> None:
    group = placement_group([{"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group)
    inside = Holder.options(num_cpus=1, scheduling_strategy=strategy).remote()
    skate.get(inside.devices.remote())
    waiting = available.options(scheduling_strategy=strategy).remote()
    remove_placement_group(group)
    with pytest.raises(ActorPlacementGroupRemoved):
        skate.get(inside.devices.remote())
    with pytest.raises(TaskPlacementGroupRemoved):
        skate.get(waiting)
    with pytest.raises(TaskPlacementGroupRemoved):
        skate.get(group.ready())


def test_children_stay_in_the_group_where_asked() -> None:
    @skate.remote
    def parent() -> Any:
        @skate.remote
        def child() -> str | None:
            return skate.get_runtime_context().get_placement_group_id()

        return skate.get(child.remote())

    group = placement_group([{"CPU": 2}])
    captured = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    assert skate.get(parent.options(scheduling_strategy=captured).remote()) == group.id.hex()
    assert skate.get(parent.remote()) is None


def test_two_groups_of_one_name_are_refused() -> None:
    placement_group([{"CPU": 1}], name="once")
    with pytest.raises(RaySystemError, match="once"):
        placement_group([{"CPU": 1}], name="once")
