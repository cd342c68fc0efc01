"""Placement groups: reserving bundles, running in them, and removing them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import skate
from skate.exceptions import (
    ActorPlacementGroupRemoved,
    RayActorError,
    RaySystemError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
)
from skate.util import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tests.contract.support import Signal, eventually

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.one_machine]


@skate.remote
class Holder:
    def ping(self) -> str:
        return "pong"

    def group(self) -> Any:
        return get_current_placement_group()


@skate.remote
def assigned() -> dict[str, float]:
    return skate.get_runtime_context().get_assigned_resources()


def inside(group: Any, **more: Any) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(placement_group=group, **more)


def free_cpus() -> float:
    return skate.available_resources().get("CPU", 0)


def test_a_group_that_fits_becomes_ready() -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    assert skate.get(group.ready()) == group
    remove_placement_group(group)


def test_wait_says_that_a_group_is_ready() -> None:
    group = placement_group([{"CPU": 1}])
    assert group.wait(30) is True
    remove_placement_group(group)


@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_every_strategy_that_one_machine_can_meet_is_met(strategy: str) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy=strategy)
    assert group.wait(30)
    remove_placement_group(group)


def test_strict_spread_of_one_bundle_is_met() -> None:
    group = placement_group([{"CPU": 1}], strategy="STRICT_SPREAD")
    assert group.wait(30)
    remove_placement_group(group)


def test_strict_spread_over_more_nodes_than_there_are_fails_at_once() -> None:
    with pytest.raises((ValueError, skate.exceptions.RayError), match="STRICT_SPREAD"):
        skate.get(placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD").ready())


def test_a_group_larger_than_the_machine_fails_at_once_with_both_amounts() -> None:
    with pytest.raises((ValueError, skate.exceptions.RayError), match=r"(?s)1000.*4"):
        skate.get(placement_group([{"CPU": 1000}]).ready())


def test_a_group_knows_its_bundles() -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 0.5}])
    assert group.bundle_specs == [{"CPU": 1.0}, {"CPU": 0.5}]
    assert group.bundle_count == 2
    assert isinstance(group.id, skate.PlacementGroupID)
    remove_placement_group(group)


def test_a_group_reserves_its_resources() -> None:
    eventually(lambda: free_cpus() == 4)
    group = placement_group([{"CPU": 3}])
    skate.get(group.ready())
    eventually(lambda: free_cpus() == 1)
    remove_placement_group(group)
    eventually(lambda: free_cpus() == 4)


def test_a_task_runs_in_a_group() -> None:
    group = placement_group([{"CPU": 2}])
    ref = assigned.options(num_cpus=2, scheduling_strategy=inside(group)).remote()
    assert skate.get(ref)["CPU"] == 2
    remove_placement_group(group)


def test_a_task_runs_in_a_bundle_by_index() -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 2}])
    strategy = inside(group, placement_group_bundle_index=1)
    assert skate.get(assigned.options(num_cpus=2, scheduling_strategy=strategy).remote())["CPU"] == 2
    remove_placement_group(group)


def test_an_actor_runs_in_a_group() -> None:
    group = placement_group([{"CPU": 1}])
    holder = Holder.options(num_cpus=1, scheduling_strategy=inside(group)).remote()
    assert skate.get(holder.ping.remote()) == "pong"
    remove_placement_group(group)


def test_a_task_in_a_group_runs_on_an_otherwise_full_machine() -> None:
    group = placement_group([{"CPU": 1}])
    skate.get(group.ready())
    holder = Holder.options(num_cpus=3).remote()
    skate.get(holder.ping.remote())
    skate.get(assigned.options(scheduling_strategy=inside(group)).remote())
    skate.kill(holder)
    remove_placement_group(group)


def test_a_task_outside_does_not_use_a_groups_resources() -> None:
    group = placement_group([{"CPU": 4}])
    skate.get(group.ready())
    ref = assigned.remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    remove_placement_group(group)
    assert skate.get(ref) == {"CPU": 1.0}


def test_tasks_in_a_group_wait_for_their_turn() -> None:
    group = placement_group([{"CPU": 1}])
    holder = Holder.options(num_cpus=1, scheduling_strategy=inside(group)).remote()
    skate.get(holder.ping.remote())
    ref = assigned.options(scheduling_strategy=inside(group)).remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    skate.kill(holder)
    skate.get(ref)
    remove_placement_group(group)


def test_a_task_that_fits_no_bundle_is_refused() -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    with pytest.raises((ValueError, skate.exceptions.RayError), match=r"(?s)2.*1"):
        skate.get(assigned.options(num_cpus=2, scheduling_strategy=inside(group)).remote())
    remove_placement_group(group)


def test_a_bundle_index_that_does_not_exist_is_refused() -> None:
    group = placement_group([{"CPU": 1}])
    with pytest.raises(ValueError, match="index"):
        assigned.options(scheduling_strategy=inside(group, placement_group_bundle_index=5)).remote()
    remove_placement_group(group)


def test_a_group_that_has_to_wait_becomes_ready_later() -> None:
    holder = Holder.options(num_cpus=4).remote()
    skate.get(holder.ping.remote())
    group = placement_group([{"CPU": 1}])
    assert group.wait(1) is False
    skate.kill(holder)
    assert skate.get(group.ready()) == group
    remove_placement_group(group)


def test_a_task_submitted_to_a_waiting_group_runs_when_it_is_ready() -> None:
    holder = Holder.options(num_cpus=4).remote()
    skate.get(holder.ping.remote())
    group = placement_group([{"CPU": 1}])
    ref = assigned.options(scheduling_strategy=inside(group)).remote()
    skate.kill(holder)
    assert skate.get(ref)["CPU"] == 1
    remove_placement_group(group)


def test_removing_a_group_ends_its_actors() -> None:
    group = placement_group([{"CPU": 1}])
    holder = Holder.options(num_cpus=1, scheduling_strategy=inside(group)).remote()
    skate.get(holder.ping.remote())
    remove_placement_group(group)
    with pytest.raises((RayActorError, ActorPlacementGroupRemoved)):
        eventually(lambda: skate.get(holder.ping.remote()) is None)


def test_removing_a_group_ends_its_tasks() -> None:
    signal = Signal.remote()
    group = placement_group([{"CPU": 1}])

    @skate.remote(max_retries=0)
    def blocked() -> None:
        skate.get(signal.wait.remote())

    ref = blocked.options(scheduling_strategy=inside(group)).remote()
    skate.get(signal.wait_for_waiters.remote(1))
    remove_placement_group(group)
    with pytest.raises(skate.exceptions.RayError):
        skate.get(ref)


def test_removing_twice_is_the_same_as_once() -> None:
    group = placement_group([{"CPU": 1}])
    remove_placement_group(group)
    remove_placement_group(group)


def test_a_group_removed_before_it_is_ready_gives_everything_back() -> None:
    for _ in range(50):
        remove_placement_group(placement_group([{"CPU": 1}, {"CPU": 1}]))
    eventually(lambda: free_cpus() == 4)


def test_a_task_for_a_removed_group_fails() -> None:
    group = placement_group([{"CPU": 1}])
    skate.get(group.ready())
    remove_placement_group(group)
    with pytest.raises((TaskPlacementGroupRemoved, TaskUnschedulableError), match="removed"):
        skate.get(assigned.options(scheduling_strategy=inside(group)).remote())


def test_the_driver_is_in_no_group() -> None:
    assert get_current_placement_group() is None


def test_an_actor_sees_the_group_it_is_in() -> None:
    group = placement_group([{"CPU": 1}])
    holder = Holder.options(num_cpus=1, scheduling_strategy=inside(group)).remote()
    assert skate.get(holder.group.remote()) == group
    remove_placement_group(group)


def test_child_tasks_leave_the_group_by_default() -> None:
    group = placement_group([{"CPU": 2}])

    @skate.remote
    def child() -> Any:
        return get_current_placement_group()

    @skate.remote
    def parent() -> Any:
        return skate.get(child.remote())

    assert skate.get(parent.options(scheduling_strategy=inside(group)).remote()) is None
    remove_placement_group(group)


def test_child_tasks_are_captured_when_asked() -> None:
    group = placement_group([{"CPU": 2}])

    @skate.remote
    def child() -> Any:
        return get_current_placement_group()

    @skate.remote
    def parent() -> Any:
        return skate.get(child.remote())

    strategy = inside(group, placement_group_capture_child_tasks=True)
    assert skate.get(parent.options(scheduling_strategy=strategy).remote()) == group
    remove_placement_group(group)


def test_child_tasks_of_a_thread_in_an_actor_are_captured_too() -> None:
    group = placement_group([{"CPU": 2}])

    @skate.remote
    def child() -> Any:
        return get_current_placement_group()

    @skate.remote
    class Parent:
        def call_in_thread(self) -> Any:
            with ThreadPoolExecutor(1) as threads:
                return threads.submit(
                    lambda: (get_current_placement_group(), skate.get(child.remote()))
                ).result()

    strategy = inside(group, placement_group_capture_child_tasks=True)
    parent = Parent.options(num_cpus=1, scheduling_strategy=strategy).remote()
    assert skate.get(parent.call_in_thread.remote()) == (group, group)
    remove_placement_group(group)


def test_a_named_group_is_found_by_name() -> None:
    group = placement_group([{"CPU": 1}], name="named")
    skate.get(group.ready())
    assert get_placement_group("named") == group
    remove_placement_group(group)


def test_a_name_of_a_group_is_taken_until_the_group_is_removed() -> None:
    group = placement_group([{"CPU": 1}], name="only_one")
    skate.get(group.ready())
    with pytest.raises(RaySystemError):
        placement_group([{"CPU": 1}], name="only_one")
    remove_placement_group(group)
    again = placement_group([{"CPU": 1}], name="only_one")
    assert again.wait(30)
    remove_placement_group(again)


def test_waiting_for_a_group_larger_than_the_machine_ends_with_the_timeout() -> None:
    group = placement_group([{"CPU": 10_000}])
    begun = time.monotonic()
    assert group.wait(0.3) is False
    assert time.monotonic() - begun >= 0.3
    remove_placement_group(group)


def test_an_unknown_group_name_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no_such_group"):
        get_placement_group("no_such_group")


def test_a_group_travels_to_a_task() -> None:
    group = placement_group([{"CPU": 1}])

    @skate.remote(num_cpus=0)
    def use(group: Any) -> float:
        return skate.get(assigned.options(scheduling_strategy=inside(group)).remote())["CPU"]

    assert skate.get(use.remote(group)) == 1
    remove_placement_group(group)


def test_the_table_shows_state_and_strategy() -> None:
    group = placement_group([{"CPU": 1}], strategy="SPREAD", name="tabled")
    skate.get(group.ready())
    row = placement_group_table(group)
    assert row["name"] == "tabled"
    assert row["strategy"] == "SPREAD"
    assert row["state"] == "CREATED"
    remove_placement_group(group)
    assert placement_group_table(group)["state"] == "REMOVED"


def test_the_runtime_context_names_the_group() -> None:
    group = placement_group([{"CPU": 1}])

    @skate.remote
    def group_id() -> str | None:
        return skate.get_runtime_context().get_placement_group_id()

    assert skate.get(group_id.options(scheduling_strategy=inside(group)).remote()) == group.id.hex()
    assert skate.get_runtime_context().get_placement_group_id() is None
    remove_placement_group(group)


def test_a_crashed_actor_is_restarted_in_its_group() -> None:
    group = placement_group([{"CPU": 1}])

    @skate.remote(max_restarts=1, max_task_retries=1)
    class Mortal:
        def die_first(self) -> Any:
            if not skate.get_runtime_context().was_current_actor_reconstructed:
                os._exit(1)
            return get_current_placement_group()

    mortal = Mortal.options(num_cpus=1, scheduling_strategy=inside(group)).remote()
    assert skate.get(mortal.die_first.remote()) == group
    remove_placement_group(group)


@pytest.mark.parametrize(
    "bundles",
    [[], [{}], [{"CPU": 0}], [{"CPU": -1}], "CPU", [1]],
    ids=["none", "empty", "zero", "negative", "text", "number"],
)
def test_bundles_that_make_no_sense_are_refused(bundles: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        placement_group(bundles)


def test_an_unknown_strategy_is_refused_and_named() -> None:
    with pytest.raises(ValueError, match="SCATTER"):
        placement_group([{"CPU": 1}], strategy="SCATTER")


def test_an_unknown_group_lifetime_is_refused() -> None:
    with pytest.raises(ValueError, match="lifetime"):
        placement_group([{"CPU": 1}], lifetime="eternal")
