"""Placement groups on a running engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import skate
from skate.exceptions import TaskPlacementGroupRemoved
from skate.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.conftest import LeakWatch


@pytest.fixture(scope="module")
def shared_session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=4):
        yield


@pytest.fixture
def group(shared_session: None) -> Iterator[PlacementGroup]:
    """Return a group of two bundles with a CPU each, that is gone after the test."""
    made = placement_group([{"CPU": 1}, {"CPU": 1}], name="two")
    yield made
    remove_placement_group(made)


@skate.remote
def current() -> PlacementGroup | None:
    return get_current_placement_group()


def test_a_group_becomes_ready(group: PlacementGroup) -> None:
    assert group.wait(30)
    assert skate.get(group.ready()) == group
    assert placement_group_table(group)["state"] == "CREATED"


def test_a_group_takes_its_resources_away(group: PlacementGroup) -> None:
    assert group.wait(30)
    assert skate.available_resources()["CPU"] == 2


def test_a_task_runs_in_the_group_it_was_sent_to(group: PlacementGroup) -> None:
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1)
    assert skate.get(current.options(scheduling_strategy=strategy).remote()) == group
    assert skate.get(current.remote()) is None


def test_an_actor_runs_in_the_group_it_was_sent_to(group: PlacementGroup) -> None:
    @skate.remote(num_cpus=1)
    class Worker:
        def group(self) -> PlacementGroup | None:
            return get_current_placement_group()

    worker = Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
    assert skate.get(worker.group.remote()) == group


def test_a_group_is_found_by_name_in_a_task(group: PlacementGroup) -> None:
    @skate.remote
    def find() -> PlacementGroup:
        return get_placement_group("two")

    found = skate.get(find.remote())
    assert found == group
    assert found.bundle_specs == [{"CPU": 1.0}, {"CPU": 1.0}]


def test_a_removed_group_is_never_ready(group: PlacementGroup) -> None:
    remove_placement_group(group)
    with pytest.raises(TaskPlacementGroupRemoved):
        skate.get(group.ready())
    assert placement_group_table(group)["state"] == "REMOVED"


def test_a_group_waits_for_its_resources(group: PlacementGroup) -> None:
    assert group.wait(30)
    second = placement_group([{"CPU": 3}])
    assert not second.wait(0)
    remove_placement_group(group)
    assert second.wait(30)
    remove_placement_group(second)
