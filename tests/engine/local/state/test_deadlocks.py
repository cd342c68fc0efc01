"""Wait cycles: a get that can never return is told so, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from skate._engine.local import messages as m
from skate._engine.local.state.deadlocks import DOUBT
from tests.engine.local.state.world import Process, Worker, World, result


@pytest.fixture
def world() -> World:
    return World(cpus=4)


def actor_of(driver: Process, **options: Any) -> tuple[bytes, Worker]:
    driver.create(**options)
    worker = driver.world.start_worker()
    return worker.become(), worker


def test_a_task_that_waits_for_what_waits_for_it_is_told(world: World) -> None:
    driver = world.driver()
    task = driver.submit(name="outer")
    worker = world.start_worker()
    child = worker.submit(name="inner", needs=[result(task)], parent=task)
    worker.block(result(child))
    world.pass_time(2 * DOUBT)
    (told,) = worker.told(m.Deadlock)
    assert told.task == task
    assert "inner" in told.text
    assert "outer" in told.text


def test_two_actors_that_wait_for_each_other_are_told(world: World) -> None:
    driver = world.driver()
    first, one = actor_of(driver)
    second, two = actor_of(driver)
    to_second, to_first = one.ids.call(second), two.ids.call(first)
    one.block(result(to_second), task=driver.ids.call(first))
    two.block(result(to_first), task=driver.ids.call(second))
    world.pass_time(2 * DOUBT)
    assert two.told(m.Deadlock)


def test_a_cycle_that_an_answer_on_its_way_ends_is_none(world: World) -> None:
    driver = world.driver()
    first, one = actor_of(driver)
    second, two = actor_of(driver)
    running = driver.ids.call(first)
    one.block(result(one.ids.call(second)), task=running)
    two.block(result(two.ids.call(first)), task=driver.ids.call(second))
    one.unblock(running)  # the answer came directly, and the node learns of it only now
    world.pass_time(2 * DOUBT)
    assert one.told(m.Deadlock) == []
    assert two.told(m.Deadlock) == []


def test_who_waits_for_a_limited_time_is_in_no_cycle(world: World) -> None:
    driver = world.driver()
    first, one = actor_of(driver)
    second, two = actor_of(driver)
    one.block(result(one.ids.call(second)), task=driver.ids.call(first), timed=True)
    two.block(result(two.ids.call(first)), task=driver.ids.call(second))
    world.pass_time(2 * DOUBT)
    assert two.told(m.Deadlock) == []


def test_a_task_that_waits_for_a_limited_time_is_in_no_cycle(world: World) -> None:
    driver = world.driver()
    template = driver.define()
    first, second = driver.submit(template), driver.submit(template)
    one, two = world.start_workers()
    if one.tasks != [first]:
        one, two = two, one
    one.block(result(second), timed=True)
    two.block(result(first))
    world.pass_time(2 * DOUBT)
    assert two.told(m.Deadlock) == []


def test_an_actor_that_runs_several_calls_at_once_is_in_no_cycle(world: World) -> None:
    driver = world.driver()
    actor, worker = actor_of(driver, max_concurrency=2)
    worker.block(result(worker.ids.call(actor)), task=driver.ids.call(actor))
    world.pass_time(2 * DOUBT)
    assert worker.told(m.Deadlock) == []


def test_waiting_for_a_child_is_no_cycle(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    worker.block(result(worker.submit(parent=task)))
    world.pass_time(2 * DOUBT)
    assert worker.told(m.Deadlock) == []


def test_waiting_for_the_end_of_a_long_chain_is_no_fault(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    template = worker.define(resources={"CPU": 4.0})
    last = worker.submit(template)
    for _ in range(3000):
        last = worker.submit(template, needs=[result(last)])
    worker.block(result(last), task=task)
    world.pass_time(2 * DOUBT)
    assert worker.told(m.Deadlock) == []
