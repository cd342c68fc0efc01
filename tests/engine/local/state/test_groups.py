"""Placement groups: reserving, running in them, removing them."""

from __future__ import annotations

import pytest

from skate._engine.local.wire import messages as m
from skate._engine.local.wire.messages import Question
from skate.exceptions import (
    ActorPlacementGroupRemoved,
    RaySystemError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
)
from tests.engine.local.state.world import Process, World, load_error, result


@pytest.fixture
def world() -> World:
    return World(cpus=2, gpus=2)


def watch(process: Process, group: bytes) -> bytes:
    """Return an object that is ready when the group is."""
    id = result(process.ids.task())
    process.say(m.WatchGroup(group, id, b"reserved"))
    return id


def state_of(world: World, group: bytes) -> str:
    return world.machine.groups.table[group].state


# ---------------------------------------------------------------- reserving


def test_a_group_takes_its_resources_from_everybody_else(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0}, {"CPU": 1.0})
    assert (state_of(world, group), world.available()) == ("CREATED", 0)


def test_who_waits_for_a_group_is_told_when_it_is_reserved(world: World) -> None:
    driver = world.driver()
    task = driver.submit(resources={"CPU": 2.0})
    worker = world.start_worker()
    group = driver.reserve({"CPU": 1.0})
    ready = watch(driver, group)
    assert (state_of(world, group), driver.value_of(ready)) == ("PENDING", None)
    worker.finish(task)
    assert driver.value_of(ready) == b"reserved"


def test_who_asks_for_a_reserved_group_is_told_at_once(world: World) -> None:
    driver = world.driver()
    ready = watch(driver, driver.reserve({"CPU": 1.0}))
    assert driver.value_of(ready) == b"reserved"


def test_a_group_is_reserved_whole_or_not_at_all(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    driver.reserve({"CPU": 1.0}, {"CPU": 1.0})
    assert world.available() == 1
    worker.finish(task)
    assert world.available() == 0


def test_a_smaller_group_does_not_wait_for_a_larger_one(world: World) -> None:
    driver = world.driver()
    driver.submit()
    world.start_worker()
    large, small = driver.reserve({"CPU": 2.0}), driver.reserve({"CPU": 1.0})
    assert (state_of(world, large), state_of(world, small)) == ("PENDING", "CREATED")


def test_a_group_that_can_never_be_reserved_says_so(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 2.0}, {"CPU": 1.0})
    assert "asks for {CPU: 3}" in driver.answered()["impossible"]
    ready = watch(driver, group)
    assert isinstance(driver.error_of(ready), TaskUnschedulableError)


def test_bundles_cannot_be_on_nodes_of_their_own(world: World) -> None:
    driver = world.driver()
    driver.reserve({"CPU": 1.0}, {"CPU": 1.0}, strategy="STRICT_SPREAD")
    assert "this is one machine" in driver.answered()["impossible"]


def test_a_name_of_a_group_is_taken_once(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0}, name="g")
    driver.answered()
    driver.reserve({"CPU": 1.0}, name="g")
    with pytest.raises(RaySystemError, match="named 'g' exists already"):
        driver.answered()
    assert driver.ask(Question.GROUP_BY_NAME, text="\ng") == group
    driver.say(m.RemoveGroup(group))
    with pytest.raises(ValueError, match="no placement group has the name"):
        driver.ask(Question.GROUP_BY_NAME, text="\ng")


def test_a_group_that_asks_for_other_labels_says_so() -> None:
    world = World(labels={"zone": "a"})
    driver = world.driver()
    driver.reserve({"CPU": 1.0}, labels=[{"zone": "b"}])
    assert "asks for a node with labels" in driver.answered()["impossible"]


# ---------------------------------------------------------------- running in a group


def test_a_task_runs_in_its_bundle(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0}, {"CPU": 1.0})
    template = driver.define(group=group, bundle=1)
    first, second = driver.submit(template), driver.submit(template)
    worker = world.start_worker()
    assert worker.tasks == [first]
    worker.finish(first)
    assert worker.tasks == [second]


def test_a_task_without_a_bundle_takes_any(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0}, {"CPU": 1.0})
    template = driver.define(group=group)
    tasks = {driver.submit(template), driver.submit(template)}
    workers = world.start_workers()
    assert {task for worker in workers for task in worker.tasks} == tasks


def test_a_task_waits_until_its_group_is_reserved(world: World) -> None:
    driver = world.driver()
    blocker = driver.submit(resources={"CPU": 2.0})
    worker = world.start_worker()
    task = driver.submit(group=driver.reserve({"CPU": 1.0}))
    worker.finish(blocker)
    assert worker.tasks == [task]


def test_a_task_that_fits_no_bundle_fails_at_once(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0})
    task = driver.submit(group=group, resources={"CPU": 2.0})
    assert "no bundle of its placement group has that" in str(driver.error_of(result(task)))


def test_a_bundle_that_does_not_exist_is_an_error(world: World) -> None:
    driver = world.driver()
    task = driver.submit(group=driver.reserve({"CPU": 1.0}), bundle=1)
    assert "asks for bundle 1 of a placement group with 1 bundles" in str(driver.error_of(result(task)))


def test_a_group_that_can_never_be_reserved_fails_its_tasks(world: World) -> None:
    driver = world.driver()
    task = driver.submit(group=driver.reserve({"CPU": 50.0}))
    assert "can never be reserved" in str(driver.error_of(result(task)))


def test_a_task_gets_the_devices_of_its_bundle(world: World) -> None:
    driver = world.driver()
    outside = driver.submit(resources={"GPU": 1.0})
    group = driver.reserve({"GPU": 1.0})
    inside = driver.submit(group=group, resources={"GPU": 1.0})
    devices = {run.task: run.accelerators["GPU"] for worker in world.start_workers() for run in worker.runs}
    assert sorted([devices[outside], devices[inside]]) == [["0"], ["1"]]


def test_a_blocked_task_lends_its_cpu_within_its_bundle(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0}, {"CPU": 1.0})
    template = driver.define(group=group, bundle=0)
    first, second = driver.submit(template), driver.submit(template)
    worker = world.start_worker()
    worker.block(task=first)
    assert world.start_worker().tasks == [second]
    assert world.available() == 0


# ---------------------------------------------------------------- removing


def test_a_removed_group_gives_its_resources_back(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 2.0})
    driver.say(m.RemoveGroup(group))
    assert (state_of(world, group), world.available()) == ("REMOVED", 2)


def test_a_group_removed_before_it_was_reserved_is_never_reserved(world: World) -> None:
    driver = world.driver()
    task = driver.submit(resources={"CPU": 2.0})
    worker = world.start_worker()
    group = driver.reserve({"CPU": 1.0})
    ready = watch(driver, group)
    driver.say(m.RemoveGroup(group))
    assert isinstance(driver.error_of(ready), TaskPlacementGroupRemoved)
    worker.finish(task)
    assert world.available() == 2


def test_what_runs_in_a_removed_group_ends(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0})
    template = driver.define(group=group, max_retries=5)
    running, queued = driver.submit(template), driver.submit(template)
    worker = world.start_worker()
    driver.say(m.RemoveGroup(group))
    assert world.killed() == [worker.number]
    for task in (running, queued):
        assert isinstance(driver.error_of(result(task)), TaskPlacementGroupRemoved)
    worker.leave()
    assert world.unfinished == []
    assert world.available() == 2


def test_actors_in_a_removed_group_end(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0})
    spec = {"group": group, "resources": {"CPU": 1.0}}
    actor = driver.create(spec=spec, max_restarts=5)
    worker = world.start_worker()
    worker.become()
    driver.say(m.RemoveGroup(group))
    assert driver.state_of(actor) == "DEAD"
    update = driver.told(m.ActorUpdate)[-1]
    assert isinstance(load_error(update.error), ActorPlacementGroupRemoved)
    assert world.killed() == [worker.number]
    worker.leave()
    assert world.commanded(m.StartWorker) == []
    assert world.available() == 2


def test_a_chain_of_tasks_in_a_removed_group_fails_once_each(world: World) -> None:
    driver = world.driver()
    template = driver.define(group=driver.reserve({"CPU": 1.0}))
    first = driver.submit(template)
    second = driver.submit(template, needs=[result(first)])
    driver.say(m.RemoveGroup(next(iter(world.machine.groups.table))))
    rows = [id for id, *_ in world.machine.tasks.history]
    assert len(rows) == 2
    assert set(rows) == {first, second}


def test_a_task_submitted_to_a_removed_group_fails(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0})
    template = driver.define(group=group)
    driver.say(m.RemoveGroup(group))
    task = driver.submit(template)
    assert "a placement group that has been removed" in str(driver.error_of(result(task)))
    late = driver.submit(group=group)
    assert "a placement group that has been removed" in str(driver.error_of(result(late)))


def test_who_waits_for_a_removed_group_is_told(world: World) -> None:
    driver = world.driver()
    group = driver.reserve({"CPU": 1.0})
    driver.say(m.RemoveGroup(group))
    assert isinstance(driver.error_of(watch(driver, group)), TaskPlacementGroupRemoved)


def test_the_groups_of_a_job_end_with_it_but_for_detached_ones(world: World) -> None:
    driver, _ = world.driver(), world.driver()
    own = driver.reserve({"CPU": 1.0})
    detached = driver.reserve({"CPU": 1.0}, detached=True)
    driver.leave()
    assert (state_of(world, own), state_of(world, detached)) == ("REMOVED", "CREATED")
    assert world.available() == 1
