"""Workers that the system refuses to start: attempts, time-outs, and which tasks fail in the end."""

from __future__ import annotations

import pytest

from skate._engine.common.process_limits import FIRST_BACKOFF, LONGEST_BACKOFF, RETRY_SECONDS
from skate._engine.local.wire import messages as m
from skate.exceptions import ActorDiedError, RaySystemError
from tests.engine.local.state.world import World, load_error, result

WHY = "pids.max = 24, 24 in use"


@pytest.fixture
def world() -> World:
    return World(cpus=1)


def refuse(world: World) -> int:
    """Refuse to start every worker that is wanted; return how many that were."""
    wanted = world.commanded(m.StartWorker)
    for command in wanted:
        world.tell(0, m.WorkerGone(command.number, refused=WHY))
    return len(wanted)


def refuse_for(world: World, seconds: float) -> int:
    """Refuse every attempt for a time; return how many there were."""
    attempts = refuse(world)
    end = world.now + seconds
    while world.now < end:
        wait = world.machine.next_tick()
        world.pass_time(min(end - world.now, LONGEST_BACKOFF if wait is None else wait))
        attempts += refuse(world)
    return attempts


def test_a_refused_worker_is_attempted_again_after_a_pause(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    assert refuse(world) == 1
    assert world.commanded(m.StartWorker) == []
    world.pass_time(FIRST_BACKOFF)
    assert world.start_worker().tasks == [task]
    assert world.machine.next_tick() is None


def test_attempts_become_rarer_and_never_come_in_numbers() -> None:
    world = World(cpus=8)
    driver = world.driver()
    for _ in range(8):
        driver.submit()
    assert refuse(world) == 8
    assert 1 < refuse_for(world, LONGEST_BACKOFF) < 8
    world.pass_time(LONGEST_BACKOFF)
    assert len(world.commanded(m.StartWorker)) == 1


def test_the_end_of_any_process_is_a_reason_to_attempt_at_once(world: World) -> None:
    driver = world.driver()
    ends = world.start_worker_for(driver)
    driver.submit(environment="e")
    assert refuse(world) == 1
    ends.leave()
    assert len(world.commanded(m.StartWorker)) == 1


def test_a_task_that_no_process_can_be_started_for_fails_after_a_while(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    refuse_for(world, RETRY_SECONDS / 2)
    assert driver.value_of(result(task)) is None
    refuse_for(world, RETRY_SECONDS)
    error = driver.error_of(result(task))
    assert isinstance(error, RaySystemError)
    assert WHY in str(error)
    assert world.commanded(m.StartWorker) == []


def test_an_actor_that_no_process_can_be_started_for_dies_after_a_while(world: World) -> None:
    driver = world.driver()
    actor = driver.create()
    refuse_for(world, 2 * RETRY_SECONDS)
    update = driver.told(m.ActorUpdate)[-1]
    assert (update.actor, update.state) == (actor, "DEAD")
    error = load_error(update.error)
    assert isinstance(error, ActorDiedError)
    assert WHY in str(error)
    assert error.likely_cause is None


def test_what_was_submitted_later_has_the_same_time(world: World) -> None:
    driver = world.driver()
    first = driver.submit()
    refuse_for(world, 0.9 * RETRY_SECONDS)
    second = driver.submit()
    refuse_for(world, 0.5 * RETRY_SECONDS)
    assert isinstance(driver.error_of(result(first)), RaySystemError)
    assert second in world.unfinished
    refuse_for(world, RETRY_SECONDS)
    assert isinstance(driver.error_of(result(second)), RaySystemError)


def test_tasks_wait_for_the_workers_that_are_there() -> None:
    world = World(cpus=2)
    driver = world.driver()
    first = driver.submit()
    worker = world.start_worker()
    second = driver.submit()
    refuse_for(world, 3 * RETRY_SECONDS)
    assert second in world.unfinished
    worker.finish(first)
    assert worker.tasks[-1] == second


def test_a_worker_that_waits_for_the_task_itself_does_not_count(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit()
    worker.say(m.Blocked(parent, [result(child)], False))
    refuse_for(world, 2 * RETRY_SECONDS)
    assert isinstance(worker.error_of(result(child)), RaySystemError)


def test_tasks_that_wait_for_resources_do_not_fail() -> None:
    world = World(cpus=1)
    driver = world.driver()
    refused = driver.submit()
    assert refuse(world) == 1
    driver.say(m.Cancel(refused, False, False))
    actor = driver.create(spec={"resources": {"CPU": 1.0}})
    world.pass_time(LONGEST_BACKOFF)
    world.start_workers()
    waiting = driver.submit()
    world.pass_time(5 * RETRY_SECONDS)
    assert waiting in world.unfinished
    assert world.machine.actors.table[actor].state != "DEAD"


def test_a_thread_that_a_worker_cannot_start_counts_as_a_refusal(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    for _ in range(5):  # more often than a worker may die while it starts
        (start,) = world.commanded(m.StartWorker)
        world.tell(start.number, m.Hello("worker", 1, start.number, "w", refused=WHY))
        world.tell(0, m.WorkerGone(start.number, 1))
        world.pass_time(LONGEST_BACKOFF)
    assert task in world.unfinished
    assert world.start_worker().tasks == [task]


def test_refused_workers_are_not_listed_among_the_dead(world: World) -> None:
    driver = world.driver()
    driver.submit()
    refuse_for(world, 2 * RETRY_SECONDS)
    assert world.machine.gone == []
