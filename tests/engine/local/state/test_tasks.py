"""Submission, dependencies, results, retries, cancellation."""

from __future__ import annotations

import pytest

from skate._base.object_ref import ERROR, INLINE, SHARED
from skate._engine.local.state.tasks import MAX_RETRY_DELAY_S, SECOND_RETRY_DELAY_S
from skate._engine.local.wire import messages as m
from skate.exceptions import (
    ObjectFreedError,
    ObjectLostError,
    TaskCancelledError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from tests.engine.local.state.world import Process, Worker, World, result

SHORT = 0.0  # seconds: tasks that take so long are sent ahead


@pytest.fixture
def world() -> World:
    return World(cpus=1)


def short_tasks(driver: Process) -> tuple[Worker, int]:
    """Return a worker, and a template whose tasks are sent to it ahead of time."""
    template = driver.define(name="short")
    first = driver.submit(template)
    worker = driver.world.start_worker()
    worker.finish(first, seconds=SHORT)
    return worker, template


# ---------------------------------------------------------------- running


def test_a_task_runs_on_a_worker_that_is_started_for_it(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    assert worker.tasks == [task]
    assert [define.template.name for define in worker.told(m.Define)] == ["f"]


def test_the_owner_is_told_the_result(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    world.start_worker().finish(task, b"42")
    assert driver.value_of(result(task)) == b"42"
    assert world.unfinished == []


def test_a_worker_is_sent_a_function_once(world: World) -> None:
    driver = world.driver()
    template = driver.define()
    driver.say(m.Export(b"f", b"code"))
    first, second = driver.submit(template), driver.submit(template)
    worker = world.start_worker()
    worker.finish(first)
    worker.finish(second)
    assert [define.code for define in worker.told(m.Define)] == [b"code"]


def test_a_task_with_several_results_gives_each_to_its_reference(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=2)
    world.start_worker().finish(task, b"1", b"2")
    assert [driver.value_of(result(task, index)) for index in (1, 2)] == [b"1", b"2"]


def test_results_that_a_worker_does_not_speak_of_get_its_error(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=3)
    world.start_worker().finish_with(task, m.Result(ERROR, b"cancelled"))
    assert [driver.value_of(result(task, index)) for index in (1, 2, 3)] == [b"cancelled"] * 3


def test_results_that_are_missing_altogether_are_lost(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=2)
    world.start_worker().finish(task, b"1")
    assert isinstance(driver.error_of(result(task, 2)), ObjectLostError)


def test_a_task_without_results_runs(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=0)
    worker = world.start_worker()
    worker.finish_with(task)
    assert world.unfinished == []
    assert world.available() == 1


def test_the_result_of_a_dropped_reference_is_not_kept(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    driver.release(result(task))
    granted = worker.allocate(1)
    assert granted is not None
    worker.finish_with(task, m.Result(SHARED, segment=granted.segment, size=10))
    assert not world.knows(result(task))
    again = worker.allocate(1)
    assert again is not None
    assert again.segment == granted.segment, "the memory of an unwanted result is used again"


def test_a_request_that_can_never_be_met_fails_at_once(world: World) -> None:
    driver = world.driver()
    task = driver.submit(name="greedy", resources={"CPU": 8.0})
    error = driver.error_of(result(task))
    assert isinstance(error, TaskUnschedulableError)
    assert "greedy asks for {CPU: 8}, which can never be met: this node has {CPU: 1}" in str(error)


def test_an_impossible_task_with_a_broken_argument_fails_once(world: World) -> None:
    driver = world.driver()
    broken = driver.submit(resources={"CPU": 8.0})
    task = driver.submit(resources={"CPU": 8.0}, needs=[result(broken)])
    assert driver.value_of(result(task)) == driver.value_of(result(broken))
    rows = [id for id, *_ in world.machine.tasks.history if id == task]
    assert len(rows) == 1


# ---------------------------------------------------------------- dependencies


def test_a_task_waits_for_the_objects_it_needs(world: World) -> None:
    driver = world.driver()
    first = driver.submit()
    second = driver.submit(needs=[result(first)])
    worker = world.start_worker()
    assert worker.tasks == [first]
    worker.finish(first, b"1")
    assert worker.tasks == [second]
    assert [argument.data for argument in worker.runs[0].arguments] == [b"1"]


def test_a_task_may_need_an_object_twice(world: World) -> None:
    driver = world.driver()
    first = driver.submit()
    second = driver.submit(needs=[result(first), result(first)])
    worker = world.start_worker()
    worker.finish(first, b"1")
    assert worker.tasks == [second]
    assert [argument.slot for argument in worker.runs[0].arguments] == [0, 1]


def test_the_argument_of_a_task_lives_until_the_task_is_over(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    task = driver.submit(needs=[value])
    driver.release(value)
    assert world.knows(value)
    world.start_worker().finish(task)
    assert not world.knows(value)


def test_a_task_fails_with_the_error_of_what_it_needs(world: World) -> None:
    driver = world.driver()
    first = driver.submit()
    second = driver.submit(needs=[result(first)])
    world.start_worker().fail(first, b"oops")
    assert driver.value_of(result(second)) == b"oops"
    assert world.unfinished == []


def test_a_task_that_needs_an_error_fails_at_once(world: World) -> None:
    driver = world.driver()
    first = driver.submit()
    world.start_worker().fail(first, b"oops")
    second = driver.submit(needs=[result(first)])
    assert driver.value_of(result(second)) == b"oops"


def test_an_error_runs_through_a_long_chain_of_tasks(world: World) -> None:
    driver = world.driver()
    template = driver.define()
    first = last = driver.submit(template)
    for _ in range(2000):
        last = driver.submit(template, needs=[result(last)])
    world.start_worker().fail(first, b"oops")
    assert driver.value_of(result(last)) == b"oops"
    assert world.unfinished == []


def test_a_task_whose_argument_is_freed_while_it_waits_for_a_worker_fails(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    task = driver.submit(needs=[value])
    driver.say(m.Free([value]))
    assert isinstance(driver.error_of(result(task)), ObjectFreedError)
    assert world.start_worker().tasks == []


def test_a_task_whose_argument_is_freed_while_it_waits_for_another_fails(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    first = driver.submit()
    task = driver.submit(needs=[value, result(first)])
    driver.say(m.Free([value]))
    assert isinstance(driver.error_of(result(task)), ObjectFreedError)


def test_a_task_whose_argument_is_freed_is_not_retried(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    task = driver.submit(needs=[value], max_retries=3)
    worker = world.start_worker()
    driver.say(m.Free([value]))
    worker.leave()
    assert isinstance(driver.error_of(result(task)), ObjectFreedError)


# ---------------------------------------------------------------- retries


def test_a_task_is_retried_when_its_worker_dies(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=1)
    world.start_worker().leave()
    second = world.start_worker()
    assert [(run.task, run.attempt) for run in second.runs] == [(task, 1)]


def test_a_task_without_retries_left_fails_with_the_story_of_its_worker(world: World) -> None:
    driver = world.driver()
    task = driver.submit(name="crash")
    world.start_worker().leave(-11)
    error = driver.error_of(result(task))
    assert isinstance(error, WorkerCrashedError)
    assert "crash" in str(error)
    assert "last words" in str(error)


def test_a_task_with_endless_retries_is_retried_each_time(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=-1)
    for _ in range(5):
        world.start_worker().leave()
        world.pass_time(MAX_RETRY_DELAY_S)
    assert world.start_worker().tasks == [task]


def test_the_first_retry_is_immediate_and_further_ones_wait_longer_each_time(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=-1)
    worker = world.start_worker()
    worker.fail(task, b"first", retry=True)
    assert worker.tasks == [task]
    pauses = []
    for _ in range(7):
        worker.fail(task, b"another", retry=True)
        assert worker.tasks == []
        pauses.append(world.machine.next_tick())
        world.pass_time(pauses[-1])
        assert worker.tasks == [task]
    assert pauses[:3] == pytest.approx(
        [SECOND_RETRY_DELAY_S, 2 * SECOND_RETRY_DELAY_S, 4 * SECOND_RETRY_DELAY_S]
    )
    assert pauses[-1] == pytest.approx(MAX_RETRY_DELAY_S)


def test_a_task_that_waits_for_its_retry_can_be_cancelled(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=-1)
    worker = world.start_worker()
    for _ in range(2):
        worker.fail(task, b"again", retry=True)
    driver.say(m.Cancel(task, False, False))
    assert isinstance(driver.error_of(result(task)), TaskCancelledError)
    world.pass_time(MAX_RETRY_DELAY_S)
    assert worker.tasks == []
    assert world.unfinished == []


def test_an_exception_to_retry_on_uses_up_a_retry(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=1)
    worker = world.start_worker()
    worker.fail(task, b"first", retry=True)
    assert worker.tasks == [task]
    worker.fail(task, b"second", retry=True)
    assert driver.value_of(result(task)) == b"second"


def test_another_exception_is_not_retried(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=1)
    world.start_worker().fail(task, b"oops")
    assert driver.value_of(result(task)) == b"oops"


def test_a_late_result_of_a_worker_that_was_given_up_is_dropped(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=1)
    worker = world.start_worker()
    worker.leave()
    again = world.start_worker()
    world.machine.handle(worker.number, m.Done(task, [m.Result(INLINE, b"late")]), world.now)
    assert driver.value_of(result(task)) is None
    again.finish(task, b"right")
    assert driver.value_of(result(task)) == b"right"


# ---------------------------------------------------------------- cancelling


def test_a_queued_task_that_is_cancelled_is_not_run(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    driver.say(m.Cancel(task))
    assert isinstance(driver.error_of(result(task)), TaskCancelledError)
    assert world.start_worker().tasks == []


def test_a_waiting_task_that_is_cancelled_lets_go_of_its_arguments(world: World) -> None:
    driver = world.driver()
    first = driver.submit()
    second = driver.submit(needs=[result(first)])
    driver.release(result(first))
    driver.say(m.Cancel(second))
    assert not world.knows(result(first))


def test_a_running_task_is_interrupted(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    driver.say(m.Cancel(task))
    assert [cancel.task for cancel in worker.told(m.CancelRunning)] == [task]
    assert driver.value_of(result(task)) is None


def test_a_cancelled_task_is_not_retried(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=5)
    worker = world.start_worker()
    driver.say(m.Cancel(task))
    worker.leave()
    assert isinstance(driver.error_of(result(task)), TaskCancelledError)


def test_a_task_cancelled_by_force_loses_its_worker(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=5)
    worker = world.start_worker()
    driver.say(m.Cancel(task, force=True))
    assert world.killed() == [worker.number]
    assert world.available() == 1
    worker.leave()
    assert isinstance(driver.error_of(result(task)), TaskCancelledError)


def test_a_running_task_cancels_what_it_has_submitted_itself(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent)
    driver.say(m.Cancel(parent, recursive=True))
    # Were the node to do so as well, the child would be interrupted twice, the second time in its clean-up.
    assert [(told.task, told.recursive) for told in worker.told(m.CancelRunning)] == [(parent, True)]
    assert worker.value_of(result(child)) is None


def test_cancelling_by_force_reaches_what_a_task_has_submitted(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent)
    driver.say(m.Cancel(parent, force=True, recursive=True))
    assert isinstance(worker.error_of(result(child)), TaskCancelledError)


def test_cancelling_without_recursion_leaves_children_alone(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    worker = world.start_worker()
    child = worker.submit(parent=parent)
    driver.say(m.Cancel(parent, recursive=False))
    assert worker.value_of(result(child)) is None


def test_a_task_that_is_over_cannot_be_cancelled(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    world.start_worker().finish(task)
    driver.say(m.Cancel(task, force=True))
    assert world.killed() == []


def test_cancelling_a_call_of_an_actor_is_passed_to_its_caller(world: World) -> None:
    driver, other = world.driver(), world.driver()
    actor = driver.create()
    call = driver.ids.call(actor)
    other.say(m.Cancel(call))
    assert [cancel.task for cancel in driver.told(m.Cancel)] == [call]


def test_a_cancelled_task_that_is_handed_back_is_not_run(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, behind = driver.submit(template), driver.submit(template)
    driver.say(m.Cancel(behind))
    worker.hand_back(behind)
    assert isinstance(driver.error_of(result(behind)), TaskCancelledError)
    assert worker.tasks == [running]


def test_cancelling_by_force_spares_the_task_that_runs_before_the_cancelled_one(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, behind = driver.submit(template), driver.submit(template)
    assert worker.tasks == [running, behind]
    driver.say(m.Cancel(behind, force=True))
    assert world.killed() == []
    assert [cancel.task for cancel in worker.told(m.CancelRunning)] == [behind]
    worker.finish(running, b"fine", seconds=SHORT)
    assert driver.value_of(result(running)) == b"fine"


def test_cancelling_by_force_kills_the_worker_once_it_runs_the_cancelled_task(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, behind = driver.submit(template), driver.submit(template)
    driver.say(m.Cancel(behind, force=True))
    worker.finish(running, seconds=SHORT)
    assert world.machine.next_tick() is not None
    world.pass_time(1)
    assert world.killed() == [worker.number]
    worker.leave()
    assert isinstance(driver.error_of(result(behind)), TaskCancelledError)


def test_tasks_behind_one_cancelled_by_force_run_elsewhere(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, behind = driver.submit(template), driver.submit(template)
    driver.say(m.Cancel(running, force=True))
    worker.leave()
    assert world.start_worker().tasks == [behind]
    assert driver.value_of(result(behind)) is None


def test_cancelling_by_force_lets_the_first_of_several_tasks_tell_that_it_is_over(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    over, running = driver.submit(template), driver.submit(template)
    driver.say(m.Cancel(over, force=True))
    assert world.killed() == []
    assert [cancel.task for cancel in worker.told(m.CancelRunning)] == [over]
    worker.finish(over, seconds=SHORT)  # it was run, and its result waited for others to travel with
    world.pass_time(1)
    assert world.killed() == []
    worker.finish(running, b"fine")
    assert driver.value_of(result(running)) == b"fine"


def test_cancelling_by_force_kills_a_worker_that_runs_the_first_of_several_tasks(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, behind = driver.submit(template), driver.submit(template)
    world.now += 1  # it has run for long, but has only now heard of the cancellation
    driver.say(m.Cancel(running, force=True))
    world.pass_time(0.001)
    assert world.killed() == []
    world.pass_time(1)
    assert world.killed() == [worker.number]
    worker.leave()
    assert isinstance(driver.error_of(result(running)), TaskCancelledError)
    assert driver.value_of(result(behind)) is None


def test_a_worker_that_is_gone_is_not_killed_for_a_cancelled_task(world: World) -> None:
    driver = world.driver()
    worker, template = short_tasks(driver)
    running, behind = driver.submit(template), driver.submit(template)
    driver.say(m.Cancel(behind, force=True))
    worker.finish(running, seconds=SHORT)
    worker.leave()
    world.pass_time(1)
    assert world.killed() == []
    assert world.machine.next_tick() is None
