"""Answers to questions about the node."""

from __future__ import annotations

from typing import Any

import pytest

from skate._base.object_ref import INLINE, PENDING
from skate._engine.local.state.views import GATHERING_TIMEOUT_S, MAX_DEPTH
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.messages import Question
from tests.engine.local.state.world import World, result


@pytest.fixture
def world() -> World:
    return World(cpus=2)


def rows_by(rows: list[dict[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    return {row[key]: row for row in rows}


def test_a_question_that_the_node_does_not_know_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="does not know the question 'what'"):
        world.driver().ask("what")  # type: ignore[arg-type]


def test_total_and_available_resources_are_told(world: World) -> None:
    driver = world.driver()
    driver.submit()
    world.start_worker()
    assert driver.ask(Question.TOTAL)["CPU"] == 2
    assert driver.ask(Question.AVAILABLE) == {"CPU": 1}


def test_tasks_are_shown_in_all_their_states(world: World) -> None:
    driver = world.driver()
    template = driver.define(name="work")
    done, failed, running, queued = (driver.submit(template) for _ in range(4))
    waiting = driver.submit(template, needs=[result(running)])
    first, second = world.start_workers()
    first.finish(done)
    second.fail(failed)
    rows = rows_by(driver.ask(Question.TASKS), "task_id")
    assert [rows[task]["state"] for task in (done, failed, waiting)] == [
        "FINISHED",
        "FAILED",
        "PENDING_ARGS_AVAIL",
    ]
    assert {rows[running]["state"], rows[queued]["state"]} == {"RUNNING"}
    assert rows[failed]["error_type"] == "TASK_EXECUTION_EXCEPTION"
    assert rows[done]["worker_pid"] == 1000 + first.number


def test_each_attempt_of_a_task_is_shown(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=1)
    world.start_worker().leave()
    rows = [row for row in driver.ask(Question.TASKS) if row["task_id"] == task]
    assert [(row["attempt_number"], row["error_type"]) for row in rows] == [
        (0, "WORKER_DIED"),
        (1, None),
    ]


def test_what_actors_ran_is_asked_of_them(world: World) -> None:
    driver = world.driver()
    actor = driver.create()
    worker = world.start_worker()
    worker.become()
    driver._requests += 1
    driver.say(m.Ask(driver._requests, "tasks"))
    (asked,) = worker.told(m.SendEvents)
    call = driver.ids.call(actor)
    row = (call, "Actor.run", "ACTOR_TASK", 1.0, 2.0, "FINISHED", "")
    worker.say(m.Events([row], asked.request))
    rows = rows_by(driver.answered(), "task_id")
    assert rows[call]["name"] == "Actor.run"


def test_an_actor_that_is_too_busy_to_tell_is_not_waited_for(world: World) -> None:
    driver = world.driver()
    driver.create()
    world.start_worker().become()
    driver._requests += 1
    driver.say(m.Ask(driver._requests, "tasks"))
    assert world.machine.next_tick() == GATHERING_TIMEOUT_S
    world.pass_time(2 * GATHERING_TIMEOUT_S)
    assert isinstance(driver.answered(), list)


def test_an_actor_that_dies_instead_of_telling_is_not_waited_for(world: World) -> None:
    driver = world.driver()
    driver.create()
    worker = world.start_worker()
    worker.become()
    driver._requests += 1
    driver.say(m.Ask(driver._requests, "tasks"))
    worker.leave()
    assert isinstance(driver.answered(), list)


def test_who_asked_and_left_is_not_answered(world: World) -> None:
    driver, other = world.driver(), world.driver()
    driver.create()
    worker = world.start_worker()
    worker.become()
    other.say(m.Ask(1, "tasks"))
    (asked,) = worker.told(m.SendEvents)
    other.leave()
    worker.say(m.Events([], asked.request))
    assert other.told(m.Answer) == []


def test_actors_are_shown(world: World) -> None:
    driver = world.driver()
    actor = driver.create(name="amy")
    driver.answered()
    worker = world.start_worker()
    worker.become()
    row = rows_by(driver.ask(Question.ACTORS), "actor_id")[actor]
    assert (row["state"], row["name"], row["pid"]) == ("ALIVE", "amy", 1000 + worker.number)


def test_workers_are_shown_dead_or_alive(world: World) -> None:
    driver = world.driver()
    dead = world.start_worker_for(driver)
    dead.leave(3)
    rows = rows_by(driver.ask(Question.WORKERS), "worker_id")
    assert (rows[dead.number]["is_alive"], rows[dead.number]["exit_code"]) == (False, 3)
    assert rows[driver.number]["worker_type"] == "DRIVER"


def test_objects_are_shown_with_their_holders(world: World) -> None:
    driver, other = world.driver(), world.driver()
    value = driver.put_shared(1)
    other.hold(value)
    other.pin(value)
    row = rows_by(driver.ask(Question.OBJECTS), "object_id")[value]
    assert (row["shared"], row["pinned"], row["holders"]) == (True, 1, sorted([driver.number, other.number]))


def test_objects_that_only_one_process_knows_are_shown(world: World) -> None:
    driver, other = world.driver(), world.driver()
    (task,) = driver.submit_many(driver.define(), 1)
    driver.private, other.private = [(result(task), PENDING, 0)], [(result(other.ids.task()), INLINE, 7)]
    rows = rows_by(driver.ask(Question.OBJECTS), "object_id")
    assert (rows[result(task)]["owner"], rows[result(task)]["state"]) == (driver.number, PENDING)
    (row,) = (row for row in rows.values() if row["owner"] == other.number)
    assert (row["object_size"], row["holders"]) == (7, [other.number])


def test_an_object_that_has_just_been_registered_is_shown_once(world: World) -> None:
    driver = world.driver()
    value = driver.put()
    driver.private = [(value, INLINE, 5)]
    assert [row["object_id"] for row in driver.ask(Question.OBJECTS)] == [value]


def test_objects_are_shown_without_those_of_a_process_that_is_too_busy(world: World) -> None:
    driver, busy = world.driver(), world.driver()
    busy.private = None
    value = driver.put()
    with pytest.raises(ValueError, match="not enough values"):
        driver.ask(Question.OBJECTS)
    world.pass_time(GATHERING_TIMEOUT_S)
    assert [row["object_id"] for row in driver.answered()] == [value]


def test_groups_jobs_memory_and_environments_are_shown(world: World) -> None:
    driver = world.driver(entrypoint="run.py")
    group = driver.reserve({"CPU": 1.0}, name="g")
    driver.answered()
    driver.submit(environment="numpy")
    driver.put_shared(1)
    world.start_workers()
    assert [row["placement_group_id"] for row in driver.ask(Question.GROUPS)] == [group]
    assert [row["entrypoint"] for row in driver.ask(Question.JOBS)] == ["run.py"]
    assert driver.ask(Question.OBJECT_STORE)["used"] == 4096
    assert driver.ask(Question.RUNTIME_ENVS) == [{"runtime_env": "numpy", "ref_cnt": 1}]


# ---------------------------------------------------------------- why


def test_why_an_object_is_not_there_is_told_down_to_the_cause(world: World) -> None:
    driver = world.driver()
    first = driver.submit(name="load")
    second = driver.submit(name="train", needs=[result(first)])
    world.start_worker()
    lines = driver.ask(Question.WHY, subject=result(second))
    assert lines[0] == "task train waits for its arguments:"
    assert "task load runs on pid" in lines[1]


def test_who_has_the_resources_that_a_task_waits_for_is_told(world: World) -> None:
    driver = world.driver()
    driver.submit(name="hog", resources={"CPU": 2.0})
    world.start_worker()
    waiting = driver.submit(name="late")
    lines = driver.ask(Question.WHY, subject=result(waiting))
    assert "task late waits for a worker" in lines[0]
    assert "for hog" in lines[1]


def test_an_object_that_is_there_is_said_to_be(world: World) -> None:
    driver = world.driver()
    assert "is there" in driver.ask(Question.WHY, subject=driver.put())[0]


def test_an_object_that_two_wait_for_is_no_cycle(world: World) -> None:
    driver = world.driver()
    bottom = driver.submit(name="bottom", resources={"CPU": 2.0})
    left = driver.submit(name="left", needs=[result(bottom)])
    top = driver.submit(name="top", needs=[result(left), result(bottom)])
    lines = driver.ask(Question.WHY, subject=result(top))
    assert not any("cycle" in line for line in lines)
    assert any("see above" in line for line in lines)


def test_a_cycle_is_called_one(world: World) -> None:
    driver = world.driver()
    outer = driver.submit(name="outer")
    worker = world.start_worker()
    inner = worker.submit(name="inner", needs=[result(outer)], parent=outer)
    worker.block(result(inner))
    assert any("this is a cycle" in line for line in driver.ask(Question.WHY, subject=result(inner)))


def test_a_long_chain_is_explained_only_so_far(world: World) -> None:
    driver = world.driver()
    template = driver.define(name="link")
    last = driver.submit(template)
    for _ in range(2000):
        last = driver.submit(template, needs=[result(last)])
    lines = driver.ask(Question.WHY, subject=result(last))
    assert len(lines) == MAX_DEPTH + 2
    assert lines[-1].endswith("and so on")


def test_why_a_call_is_not_answered_is_told(world: World) -> None:
    driver = world.driver()
    actor = driver.create(spec={"name": "Counter"})
    call = result(driver.ids.call(actor))
    assert "actor Counter is PENDING_CREATION" in driver.ask(Question.WHY, subject=call)[0]
    world.start_worker().become()
    assert "actor Counter" in driver.ask(Question.WHY, subject=call)[0]


def test_a_constructor_that_never_ran_is_shown_as_failed(world: World) -> None:
    driver = world.driver()
    killed, lacking = driver.create(), driver.create(needs=[result(broken := driver.submit())])
    driver.say(m.KillActor(killed))
    world.start_worker().fail(broken)
    rows = [row for row in driver.ask(Question.TASKS) if row["type"] == "ACTOR_CREATION_TASK"]
    assert {row["actor_id"]: (row["state"], row["error_type"]) for row in rows} == {
        killed: ("FAILED", "ACTOR_DIED"),
        lacking: ("FAILED", "TASK_EXECUTION_EXCEPTION"),
    }
    assert len(rows) == 2
    assert "killed by `ray.kill`" in rows_by(rows, "actor_id")[killed]["error_message"]
