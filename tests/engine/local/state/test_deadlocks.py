"""Deadlocks: exactly the waits that can never end raise an error; starvation causes one warning."""

from __future__ import annotations

from typing import Any

import pytest

from skate._engine.local.state.deadlocks import (
    CHECK_INTERVAL_S,
    MIN_WAIT_S,
    REPORT_TIMEOUT_S,
    STARVATION_TIMEOUT_S,
)
from skate._engine.local.state.wait_graph import OBJECT, PROCESS, WaitGraph
from skate._engine.local.wire import messages as m
from tests.engine.local.state.world import Process, Worker, World, result


@pytest.fixture
def world() -> World:
    return World(cpus=4, resources={"x": 1.0})


def actor_of(driver: Process, **options: Any) -> tuple[bytes, Worker]:
    driver.create(**options)
    worker = driver.world.start_worker()
    return worker.become(), worker


def look(world: World) -> None:
    """Let the machine look, at what has waited for a moment."""
    world.pass_time(max(2 * MIN_WAIT_S, CHECK_INTERVAL_S))


def look_for_long(world: World) -> None:
    """Let the machine look again and again, as it does while the same processes wait."""
    for _ in range(5):
        look(world)


def told(*processes: Process) -> list[m.Deadlock]:
    return [message for process in processes for message in process.told(m.Deadlock)]


def two_that_wait(world: World) -> tuple[Process, Worker, Worker]:
    """Return a driver, and two actors each of which runs a call that waits for the other."""
    driver = world.driver()
    first, one = actor_of(driver)
    second, two = actor_of(driver)
    running = driver.call(first, one)
    there, back = one.call(second, two), two.call(first, one)
    one.block(result(there), task=running)
    two.block(result(back), task=there)
    return driver, one, two


# ------------------------------------------------------------ what is a deadlock


def test_a_task_that_waits_for_what_waits_for_it_is_told(world: World) -> None:
    driver = world.driver()
    task = driver.submit(name="outer")
    worker = world.start_worker()
    child = worker.submit(name="inner", needs=[result(task)], parent=task)
    worker.block(result(child))
    look(world)
    (message,) = told(worker)
    assert message.wait == 1
    assert "task inner waits for task outer" in message.text


def test_of_two_actors_that_wait_for_each_other_the_last_is_told(world: World) -> None:
    driver, one, two = two_that_wait(world)
    look(world)
    assert told(driver, one) == []
    (message,) = told(two)
    assert message.text.count("waits for actor Actor") == 2


def test_a_task_that_waits_for_a_resource_that_it_holds_is_told(world: World) -> None:
    driver = world.driver()
    driver.submit(name="outer", resources={"x": 1.0})
    worker = world.start_worker()
    worker.block(result(worker.submit(name="inner", resources={"x": 1.0})))
    look(world)
    (message,) = told(worker)
    assert "task inner waits for the resources {x: 1}" in message.text
    assert "task outer (pid 1002) holds {x: 1}" in message.text


def test_an_actor_that_holds_all_cpus_and_waits_for_a_task_is_told(world: World) -> None:
    driver = world.driver()
    actor, worker = actor_of(driver, spec={"resources": {"CPU": 4.0}})
    worker.block(result(worker.submit()), task=driver.call(actor, worker))
    look(world)
    assert len(told(worker)) == 1


def test_a_constructor_that_waits_for_a_call_of_its_own_actor_is_told(world: World) -> None:
    driver = world.driver()
    actor = driver.create()
    worker = world.start_worker()
    call = worker.ids.call(actor)
    worker.unsent = [(actor, [call], [])]
    worker.block(result(call))
    look(world)
    (message,) = told(worker)
    assert "waits for itself" in message.text


def test_a_driver_that_waits_for_a_second_placement_group_is_told(world: World) -> None:
    driver = world.driver()
    driver.reserve({"CPU": 4.0})
    ready = result(driver.ids.task())
    driver.say(m.WatchGroup(driver.reserve({"CPU": 1.0}), ready, b"ready"))
    driver.stall(ready)
    look(world)
    (message,) = told(driver)
    assert "holds {CPU: 4}" in message.text


def test_coroutines_that_await_each_other_are_told(world: World) -> None:
    driver = world.driver()
    first, one = actor_of(driver, is_async=True)
    second, two = actor_of(driver, is_async=True)
    driver.call(first, one)
    one.awaited = [result(one.call(second, two))]
    two.awaited = [result(two.call(first, one))]
    one.say(m.Stalled())
    two.say(m.Stalled())
    look(world)
    (message,) = told(one, two)
    assert message.object in (*one.awaited, *two.awaited)


def test_a_wait_for_two_is_told_when_only_one_can_come(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    stuck = worker.submit(needs=[result(task)])
    running = worker.submit()
    world.start_workers()
    worker.block(result(stuck), result(running), need=2)
    look(world)
    assert len(told(worker)) == 1


def test_a_get_of_two_is_told_once_the_one_that_could_fail_is_there(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    stuck = worker.submit(needs=[result(task)])
    running = worker.submit()
    (other,) = world.start_workers()
    worker.block(result(stuck), result(running))
    look(world)
    assert told(worker) == []  # an error of the other would end the get
    other.finish(running)
    worker.waits[task] = (1, 1, [result(stuck)], False)
    look_for_long(world)
    assert told(worker)


def test_what_still_waits_after_one_was_told_is_told_too(world: World) -> None:
    _, one, two = two_that_wait(world)
    look(world)
    assert len(told(two)) == 1
    two.unblock(two.calls[0])
    answered = two.calls.pop(0)
    one.sent.remove(answered)
    one.unblock(one.calls[0])
    assert one.actor is not None
    again = one.ids.call(one.actor.actor)
    one.sent.append(again)
    one.calls.append(again)
    one.block(result(again), task=one.calls[0])
    look_for_long(world)
    assert told(one)


def test_processes_that_report_before_their_waits_begin_are_asked_again(world: World) -> None:
    _, one, two = two_that_wait(world)
    waits = [(worker, dict(worker.waits)) for worker in (one, two)]
    for worker, _ in waits:
        worker.waits.clear()
    look(world)
    assert told(one, two) == []
    for worker, kept in waits:
        worker.waits.update(kept)
    look_for_long(world)
    assert told(one, two)


# ------------------------------------------------------------ what is none


def test_a_cycle_that_an_answer_on_its_way_ends_is_none(world: World) -> None:
    driver, one, two = two_that_wait(world)
    two.calls.clear()  # answered directly; the one that asked has not read it yet
    look(world)
    assert told(driver, one, two) == []


def test_a_call_on_its_way_makes_its_actor_active(world: World) -> None:
    driver = world.driver()
    _, holder = actor_of(driver, spec={"resources": {"x": 1.0}})
    actor, worker = actor_of(driver)
    worker.block(result(worker.submit(resources={"x": 1.0})), task=driver.call(actor, worker))
    assert holder.actor is not None
    driver.sent.append(driver.ids.call(holder.actor.actor))
    driver.stall(result(driver.sent[0]))
    look(world)
    assert told(driver, worker) == []


def test_a_cancelled_call_may_end(world: World) -> None:
    driver, one, two = two_that_wait(world)
    driver.stall(result(driver.sent[0]))
    driver.cancelled = list(driver.sent)
    look(world)
    assert told(driver, one, two) == []


def test_a_cancelled_task_may_end(world: World) -> None:
    driver = world.driver()
    task = driver.submit(resources={"x": 1.0})
    worker = world.start_worker()
    worker.block(result(worker.submit(resources={"x": 1.0})))
    driver.say(m.Cancel(task, recursive=False))
    look(world)
    assert told(worker) == []


def test_an_actor_that_is_being_killed_gives_back_what_it_holds(world: World) -> None:
    driver, one, two = two_that_wait(world)
    assert one.actor is not None
    driver.say(m.KillActor(one.actor.actor, True))
    look(world)
    assert told(two) == []


def test_who_waits_for_a_limited_time_is_in_no_deadlock(world: World) -> None:
    driver = world.driver()
    first, one = actor_of(driver)
    second, two = actor_of(driver)
    there, back = one.call(second, two), two.call(first, one)
    one.block(result(there), task=driver.call(first, one), timed=True)
    two.block(result(back), task=there)
    look(world)
    assert told(one, two) == []


def test_a_process_that_does_not_report_counts_as_active(world: World) -> None:
    driver, one, two = two_that_wait(world)
    one.answers_probes = False
    look(world)
    world.pass_time(2 * REPORT_TIMEOUT_S)
    assert told(driver, one, two) == []


def test_a_process_that_has_gone_on_between_two_reports_counts_as_active(world: World) -> None:
    driver, one, two = two_that_wait(world)
    true_report = one.report

    def changing(round: int) -> m.WaitReport:
        report = true_report(round)
        report.turn = round
        return report

    one.report = changing  # type: ignore[method-assign]
    look(world)
    assert told(driver, one, two) == []


def test_an_actor_with_room_for_another_call_may_be_set_going_by_a_caller(world: World) -> None:
    driver = world.driver()
    actor, worker = actor_of(driver, max_concurrency=2, spec={"resources": {"CPU": 4.0}})
    worker.takes_calls = True
    call = driver.call(actor, worker)
    worker.block(result(worker.submit()), task=call)
    look(world)
    assert told(worker) == []
    driver.stall(result(call))
    look_for_long(world)
    assert told(worker, driver)  # now nobody could call it


@pytest.mark.parametrize("outsider", ["a driver that runs", "a task that runs", "a task that could run"])
def test_a_placement_group_may_be_removed_by_somebody_of_its_job(world: World, outsider: str) -> None:
    driver = world.driver()
    first = driver.reserve({"CPU": 4.0})
    ready = result(driver.ids.task())
    driver.say(m.WatchGroup(driver.reserve({"CPU": 1.0}), ready, b"ready"))
    if outsider == "a task that runs":
        driver.submit(resources={"x": 1.0})
        world.start_worker()
    elif outsider == "a task that could run":
        driver.submit(resources={"x": 1.0})
    if outsider == "a driver that runs":
        driver.submit(resources={"CPU": 1.0}, group=first)
        worker = world.start_worker()
        worker.block(ready)
    else:
        driver.stall(ready)
        worker = driver  # type: ignore[assignment]
    look(world)
    assert told(driver, worker) == []


def test_a_named_placement_group_may_be_removed_by_another_job(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.reserve({"CPU": 4.0}, name="known")
    ready = result(driver.ids.task())
    driver.say(m.WatchGroup(driver.reserve({"CPU": 1.0}), ready, b"ready"))
    driver.stall(ready)
    look(world)
    assert told(driver) == []
    other.leave()
    look_for_long(world)
    assert told(driver)


def test_a_driver_that_only_looks_does_not_count(world: World) -> None:
    driver, one, two = two_that_wait(world)
    world.driver(observer=True)
    look(world)
    assert len(told(driver, one, two)) == 1


def test_a_task_behind_another_that_runs_is_none(world: World) -> None:
    driver = world.driver()
    driver.submit(resources={"x": 1.0})
    world.start_worker()
    task = driver.submit()
    worker = world.start_worker()
    worker.block(result(worker.submit(resources={"x": 1.0})), task=task)
    look(world)
    assert told(worker) == []


def test_cpus_of_a_blocked_task_are_free_for_its_child(world: World) -> None:
    driver = world.driver()
    task = driver.submit(resources={"CPU": 4.0})
    worker = world.start_worker()
    worker.block(result(worker.submit(parent=task)))
    look(world)
    assert told(worker) == []


def test_waiting_for_the_end_of_a_long_chain_is_no_fault(world: World) -> None:
    driver = world.driver()
    task = driver.submit()
    worker = world.start_worker()
    template = worker.define(resources={"CPU": 4.0})
    last = worker.submit(template)
    for _ in range(3000):
        last = worker.submit(template, needs=[result(last)])
    worker.block(result(last), task=task)
    look(world)
    assert told(worker) == []


def test_of_many_objects_only_those_before_one_in_the_making_are_described(world: World) -> None:
    driver = world.driver()
    template = driver.define(resources={"CPU": 4.0})
    objects = [result(driver.submit(template)) for _ in range(100)]
    worker = world.start_worker()
    driver.stall(*objects)
    reports = {each.number: each.report(0) for each in (driver, worker)}
    found = WaitGraph(world.machine, reports, [(PROCESS, driver.number)])
    assert found.stuck == set()
    assert not any((OBJECT, id) in found.graph for id in objects)


@pytest.mark.parametrize("blocked", [1, 3])
def test_a_wait_for_two_needs_two_workers_that_run_code(world: World, blocked: int) -> None:
    driver = world.driver()
    tasks = [driver.submit() for _ in range(4)]
    workers = world.start_workers()
    for worker in workers[:blocked]:
        worker.block(result(worker.tasks[0]))  # for its own result
    driver.stall(*map(result, tasks), need=2)
    reports = {each.number: each.report(0) for each in (driver, *workers)}
    found = WaitGraph(world.machine, reports, [(PROCESS, driver.number)])
    assert ((PROCESS, driver.number) in found.stuck) == (blocked == 3)


def test_nobody_is_asked_while_nobody_waits(world: World) -> None:
    driver = world.driver()
    driver.submit()
    worker = world.start_worker()
    for _ in range(5):
        look(world)
    assert worker.told(m.WaitProbe) == []
    assert world.machine.deadlocks.next_tick() is None


# ------------------------------------------------------------ starvation


def warnings_of(driver: Process) -> list[str]:
    return [line for output in driver.told(m.Output) for line in output.lines]


def test_a_task_behind_idle_actors_is_warned_of_once(world: World) -> None:
    driver, other = world.driver(), world.driver()
    _, holder = actor_of(driver, spec={"resources": {"CPU": 4.0}})
    task = driver.submit(name="patient")
    driver.stall(result(task))
    for _ in range(20):
        world.pass_time(STARVATION_TIMEOUT_S / 4)
    (warning,) = warnings_of(driver)
    assert "task patient waits for the resources {CPU: 1}" in warning
    assert f"actor Actor (pid {1000 + holder.number}) holds {{CPU: 4}}" in warning
    assert warnings_of(other) == []
    assert told(driver) == []


def test_a_task_behind_an_actor_that_works_is_not_warned_of(world: World) -> None:
    driver = world.driver()
    actor, worker = actor_of(driver, spec={"resources": {"CPU": 4.0}})
    driver.call(actor, worker)
    driver.submit()
    for _ in range(20):
        world.pass_time(STARVATION_TIMEOUT_S / 4)
    assert warnings_of(driver) == []


def test_a_task_behind_a_long_task_is_not_warned_of(world: World) -> None:
    driver = world.driver()
    driver.submit(resources={"CPU": 4.0})
    world.start_worker()
    driver.submit()
    for _ in range(20):
        world.pass_time(STARVATION_TIMEOUT_S / 4)
    assert warnings_of(driver) == []


def test_a_placement_group_behind_another_is_warned_of(world: World) -> None:
    driver = world.driver()
    driver.reserve({"CPU": 4.0})
    driver.reserve({"CPU": 1.0})
    for _ in range(20):
        world.pass_time(STARVATION_TIMEOUT_S / 4)
    (warning,) = warnings_of(driver)
    assert "waits for the resources {CPU: 1}" in warning
