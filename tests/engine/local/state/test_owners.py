"""Tasks and actors whose owner, the process that has started them, ends."""

from __future__ import annotations

import pytest

from skate._engine.local.wire import messages as m
from skate.exceptions import OwnerDiedError
from tests.engine.local.state.world import World, handle, result


@pytest.fixture
def world() -> World:
    return World(cpus=1)


def test_queued_tasks_of_a_worker_that_is_done_go_on_though_nobody_asks_for_them(world: World) -> None:
    driver = world.driver()
    task = driver.submit(resources={})
    parent = world.start_worker()
    first, second = parent.submit(), parent.submit(needs=[result(parent.submit())])
    parent.release(result(first), result(second))
    parent.finish(task, last=True)
    parent.say(m.Goodbye())
    parent.leave(0)
    worker = world.start_worker()
    done = []
    while worker.tasks:
        done.append(worker.tasks[0])
        worker.finish(worker.tasks[0])
    assert done[0] == first
    assert done[-1] == second
    assert world.unfinished == []


def test_a_queued_generator_of_a_worker_that_is_done_is_not_held_back_for_a_reader(world: World) -> None:
    driver = world.driver()
    task = driver.submit(resources={})
    parent = world.start_worker()
    generator = parent.submit(num_returns=m.STREAMING)
    world.fail_to_start()  # nobody has room for it yet
    parent.finish(task, last=True)
    parent.say(m.Goodbye())
    parent.leave(0)
    worker = world.start_worker()
    assert worker.tasks == [generator]
    assert [(each.task, each.closed) for each in worker.told(m.Consumed)] == [(generator, True)]


def test_queued_tasks_of_a_dead_worker_are_dropped_if_nobody_can_ask_for_them(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    worker.submit(parent=parent)
    worker.leave()
    assert world.unfinished == []


def test_queued_tasks_of_a_dead_worker_that_only_wait_for_each_other_are_dropped(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent)
    worker.submit(needs=[result(child)], parent=parent)
    worker.leave()
    assert world.unfinished == []
    assert world.commanded(m.StartWorker) == []


def test_a_task_of_a_dead_worker_runs_if_somebody_holds_any_of_its_results(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent, num_returns=2)
    driver.hold(result(child, 2))
    driver.say(m.Subscribe([result(child, 2)]))
    worker.leave()
    world.start_worker().finish(child, b"1", b"2")
    assert driver.value_of(result(child, 2)) == b"2"


def test_the_tasks_of_a_job_end_with_it(world: World) -> None:
    driver, other = world.driver(), world.driver()
    running, queued = driver.submit(), driver.submit()
    other.hold(result(queued))
    other.say(m.Subscribe([result(queued)]))
    worker = world.start_worker()
    driver.leave()
    assert world.killed() == [worker.number]
    assert world.unfinished == []
    assert running != queued
    assert isinstance(other.error_of(result(queued)), OwnerDiedError)


@pytest.mark.parametrize("done", [True, False])
def test_an_actor_outlives_the_worker_that_created_it_if_that_is_done(world: World, done: bool) -> None:
    driver = world.driver()
    task = driver.submit()
    creator = world.start_worker()
    actor = creator.create()
    driver.hold(handle(actor))
    world.start_worker().become()
    creator.finish(task, last=True)
    if done:
        creator.say(m.Goodbye())
    creator.leave(0 if done else -9)
    assert world.machine.actors.table[actor].state == ("ALIVE" if done else "DEAD")


def test_an_actor_shares_the_fate_of_the_actor_that_created_it_however_that_ends(world: World) -> None:
    driver = world.driver()
    driver.create()
    creator = world.start_worker()
    creator.become()
    actor = creator.create()
    driver.hold(handle(actor))
    world.start_worker().become()
    creator.say(m.Goodbye())
    creator.leave(0)
    assert world.machine.actors.table[actor].state == "DEAD"
