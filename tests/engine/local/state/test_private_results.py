"""Tasks that are submitted together, and results that are private to their owner."""

from __future__ import annotations

import pytest

from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED
from skate._engine.local.wire import messages as m
from skate.exceptions import OwnerDiedError, TaskCancelledError, TaskUnschedulableError, WorkerCrashedError
from tests.engine.local.state.test_scheduler import tasks_of
from tests.engine.local.state.world import PAGE, Process, Worker, World, load_error, result


@pytest.fixture
def world() -> World:
    return World(cpus=1)


def private_error(process: Process, task: bytes) -> Exception:
    (told,) = [each for each in process.heard if isinstance(each, m.PrivateResult) and each.task == task]
    assert told.result.state == ERROR
    return load_error(told.result.data)


def short_tasks(world: World, count: int) -> tuple[Process, Worker, list[bytes]]:
    """Return a driver, its worker, and tasks of which several are sent to the worker at a time."""
    driver = world.driver()
    worker, template = tasks_of(driver, 0.0001)
    tasks = driver.submit_many(template, count)
    return driver, worker, tasks


def test_short_tasks_reach_a_worker_in_one_message(world: World) -> None:
    _, worker, tasks = short_tasks(world, 9)
    (message,) = worker.told(m.RunMany)
    assert message.tasks == tasks
    assert message.args == [b"args"] * 9


def test_small_values_reach_their_owner_in_one_message(world: World) -> None:
    driver, worker, tasks = short_tasks(world, 9)
    driver.told(m.Values)
    worker.finish_many(tasks)
    (message,) = driver.told(m.Values)
    assert dict(zip(message.tasks, message.values, strict=True)) == {task: task for task in tasks}
    assert world.unfinished == []


def test_the_node_does_not_keep_a_private_value(world: World) -> None:
    _, worker, tasks = short_tasks(world, 2)
    worker.finish_many(tasks)
    assert not world.knows(result(tasks[0]))


def test_tasks_of_several_owners_reach_a_worker_each_with_its_template() -> None:
    world = World(cpus=3)
    driver = world.driver()
    parents = [driver.submit(), driver.submit()]
    first, second = world.start_workers()
    assert {*first.tasks, *second.tasks} == set(parents)
    mine, theirs = first.submit_many(first.define(), 1), second.submit_many(second.define(), 1)
    worker = world.start_worker()
    assert worker.tasks == mine
    worker.finish_many(mine)
    worker.finish_many(theirs)
    assert (first.private_values(), second.private_values()) == ({mine[0]: mine[0]}, {theirs[0]: theirs[0]})


def test_a_task_that_depends_on_a_private_result_gets_it(world: World) -> None:
    driver = world.driver()
    (first,) = driver.submit_many(driver.define(), 1)
    driver.say(m.Register(result(first), PENDING, follows=True))
    second = driver.submit(needs=[result(first)])
    worker = world.start_worker()
    worker.finish_many([first])
    assert worker.tasks == [second]
    assert worker.runs[0].arguments[0].data == first
    (told,) = driver.told(m.PrivateResult)
    assert (told.task, told.registered) == (first, True)


def test_a_reference_that_crosses_its_value_is_not_lost(world: World) -> None:
    driver = world.driver()
    (task,) = driver.submit_many(driver.define(), 1)
    worker = world.start_worker()
    worker.finish_many([task])
    driver.say(m.Register(result(task), PENDING, follows=True))
    other = world.driver()
    other.hold(result(task))
    other.say(m.Subscribe([result(task)]))
    assert other.value_of(result(task)) is None
    driver.say(m.Register(result(task), INLINE, b"value"))
    assert other.value_of(result(task)) == b"value"


def test_an_object_whose_owner_dies_before_it_sends_the_value_is_an_error(world: World) -> None:
    driver, other = world.driver(), world.driver()
    (task,) = driver.submit_many(driver.define(), 1)
    world.start_worker().finish_many([task])
    other.hold(result(task))
    other.say(m.Subscribe([result(task)]))
    driver.say(m.Register(result(task), PENDING, follows=True))
    driver.leave()
    assert isinstance(other.error_of(result(task)), OwnerDiedError)


def test_another_process_may_ask_for_a_private_result_before_its_owner_has_registered_it(
    world: World,
) -> None:
    driver, other = world.driver(), world.driver()
    (task,) = driver.submit_many(driver.define(), 1)
    other.hold(result(task))
    other.say(m.Subscribe([result(task)]))
    world.start_worker().finish_many([task])
    assert other.value_of(result(task)) == task
    (told,) = driver.told(m.PrivateResult)
    assert told.result.data == task


def test_a_large_private_result_is_held_by_its_owner(world: World) -> None:
    driver = world.driver()
    (task,) = driver.submit_many(driver.define(), 1)
    worker = world.start_worker()
    granted = worker.allocate(1)
    assert granted is not None
    worker.finish_with(task, m.Result(SHARED, segment=granted.segment, size=PAGE))
    (told,) = driver.told(m.PrivateResult)
    assert (told.result.state, told.registered) == (SHARED, True)
    assert world.knows(result(task))
    driver.release(result(task))
    assert not world.knows(result(task))


def test_a_large_private_result_of_a_gone_owner_takes_no_room() -> None:
    world = World(cpus=2)
    driver = world.driver()
    parent = driver.submit()
    owner = world.start_worker()
    (task,) = owner.submit_many(owner.define(), 1, parent)
    worker = world.start_worker()
    granted = worker.allocate(1)
    assert granted is not None
    owner.leave()
    worker.finish_with(task, m.Result(SHARED, segment=granted.segment, size=PAGE))
    assert not world.knows(result(task))
    assert world.machine.store.used == world.machine.store._spare_bytes
    assert parent in world.unfinished or driver.heard


def test_references_inside_a_private_result_are_held(world: World) -> None:
    driver = world.driver()
    (task,) = driver.submit_many(driver.define(), 1)
    worker = world.start_worker()
    inner = worker.put()
    worker.finish_with(task, m.Result(INLINE, b"list", contains=[inner]))
    worker.release(inner)
    assert world.knows(inner)
    driver.release(result(task))
    assert not world.knows(inner)


def test_a_private_task_that_can_never_run_fails(world: World) -> None:
    driver = world.driver()
    (task,) = driver.submit_many(driver.define(resources={"GPU": 1.0}), 1)
    assert isinstance(private_error(driver, task), TaskUnschedulableError)


def test_a_queued_private_task_is_cancelled(world: World) -> None:
    driver = world.driver()
    first, second = driver.submit_many(driver.define(), 2)
    driver.say(m.Cancel(second))
    assert isinstance(private_error(driver, second), TaskCancelledError)
    assert world.unfinished == [first]


def test_tasks_that_a_dead_worker_had_not_begun_run_elsewhere_and_the_other_fails(world: World) -> None:
    driver, worker, tasks = short_tasks(world, 4)
    assert worker.tasks == tasks
    worker.leave()
    assert isinstance(private_error(driver, tasks[0]), WorkerCrashedError)
    other = world.start_worker()
    while other.tasks:
        other.finish_many(other.tasks)
    assert driver.private_values().keys() >= set(tasks[1:])


def test_a_private_task_is_retried_alone(world: World) -> None:
    driver = world.driver()
    (task,) = driver.submit_many(driver.define(max_retries=1), 1)
    world.start_worker().leave()
    worker = world.start_worker()
    (run,) = worker.told(m.Run)
    assert (run.task, run.attempt) == (task, 1)


def test_tasks_that_are_handed_back_are_sent_again(world: World) -> None:
    _, worker, tasks = short_tasks(world, 4)
    worker.hand_back(*tasks[1:])
    worker.finish_many(tasks[:1], 0.0001)
    assert worker.tasks == tasks[1:]


def test_values_of_tasks_that_a_worker_does_not_have_are_ignored(world: World) -> None:
    driver, worker, tasks = short_tasks(world, 2)
    worker.finish_many(tasks)
    driver.told(m.Values)
    worker.finish_many(tasks)
    assert driver.told(m.Values) == []
