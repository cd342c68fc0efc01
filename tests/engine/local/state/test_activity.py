"""Answers for observers that ask often."""

from __future__ import annotations

from typing import Any

import pytest

from skate._engine.local.state.activity import MAX_UNFINISHED, MAX_WAITING
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.messages import Question
from tests.engine.local.state.world import PAGE, Process, World, result


@pytest.fixture
def world() -> World:
    return World(cpus=2)


def test_a_summary_counts_tasks_actors_and_workers(world: World) -> None:
    driver = world.driver()
    done, running = driver.submit(), driver.submit()
    driver.submit(needs=[result(running)])
    first, _ = world.start_workers()
    first.finish(done)
    found = driver.ask(Question.SUMMARY)
    assert found["tasks"] == {"FINISHED": 1, "RUNNING": 1, "PENDING_ARGS_AVAIL": 1}
    assert found["workers"] == 2
    assert found["total"]["CPU"] == 2
    assert found["available"] == {"CPU": 1}
    (waiting,) = found["waiting"]
    assert (waiting["kind"], waiting["since"]) == ("task", world.now)


def test_the_lists_of_a_summary_are_short(world: World) -> None:
    driver = world.driver()
    for _ in range(3 * MAX_WAITING):
        driver.submit()
    found = driver.ask(Question.SUMMARY)
    assert len(found["waiting"]) == MAX_WAITING
    assert sum(found["tasks"].values()) == 3 * MAX_WAITING


def test_placement_groups_that_wait_or_can_never_be_placed_are_in_a_summary(world: World) -> None:
    driver = world.driver()
    for name, cpus in (("placed", 2.0), ("waits", 1.0), ("too large", 99.0)):
        driver.reserve({"CPU": cpus}, name=name)
    waiting = driver.ask(Question.SUMMARY)["waiting"]
    assert [(each["kind"], each["name"]) for each in waiting] == [
        ("placement_group", "waits"),
        ("placement_group", "too large"),
    ]


def events(driver: Process, asked: str) -> dict[str, Any]:
    found: dict[str, Any] = driver.ask(Question.TASK_EVENTS, text=asked)
    return found


def test_events_are_read_in_parts_from_a_position(world: World) -> None:
    driver = world.driver()
    worker = None
    tasks = []
    for _ in range(5):
        tasks.append(driver.submit())
        worker = worker or world.start_worker()
        worker.finish(tasks[-1])
    left = driver.submit()
    first = events(driver, "0 0 3")
    assert [row["task_id"] for row in first["finished"]] == tasks[:3]
    assert (first["tasks_at"], first["tasks_total"]) == (3, 5)
    assert [row["task_id"] for row in first["unfinished"]] == [left]
    second = events(driver, "3 0 3")
    assert [row["task_id"] for row in second["finished"]] == tasks[3:]
    assert events(driver, "5 0 3")["finished"] == []
    counted = events(driver, "0 0 0")
    assert counted["finished"] == counted["unfinished"] == []


def test_events_that_are_no_longer_kept_are_counted(world: World) -> None:
    driver = world.driver()
    tasks = world.machine.tasks
    tasks.history = type(tasks.history)(maxlen=4)
    worker = None
    for _ in range(10):
        task = driver.submit()
        worker = worker or world.start_worker()
        worker.finish(task)
    found = events(driver, "0 0 100")
    assert len(found["finished"]) == 4
    assert (found["tasks_at"], found["tasks_total"]) == (10, 10)


def test_unfinished_tasks_in_an_answer_are_limited(world: World) -> None:
    driver = world.driver()
    for _ in range(MAX_UNFINISHED + 10):
        driver.submit()
    found = events(driver, "0 0 100")
    assert len(found["unfinished"]) == MAX_UNFINISHED
    assert found["unfinished_total"] == MAX_UNFINISHED + 10


def test_unfinished_calls_belong_to_the_question_that_asked_for_them(world: World) -> None:
    driver = world.driver()
    actor = driver.create()
    worker = world.start_worker()
    worker.become()
    driver._requests += 1
    driver.say(m.Ask(driver._requests, Question.TASK_EVENTS, text="0 0 10"))
    driver._requests += 1
    driver.say(m.Ask(driver._requests, Question.TASKS))
    first, second = worker.told(m.SendEvents)
    call = driver.ids.call(actor)
    running = (call, "Actor.run", "ACTOR_TASK", 1.0, 0.0, "RUNNING", "")
    for asked in (first, second):
        worker.say(m.Events([running], asked.request))
    rows = driver.answered()
    assert [row["task_id"] for row in rows].count(call) == 1


def test_memory_is_attributed_to_processes(world: World) -> None:
    driver = world.driver()
    big = driver.put_shared(3)
    driver.put_shared(1)
    driver.pin(big)
    found = driver.ask(Question.MEMORY_BY_PROCESS, text="1")
    assert [row["object_id"] for row in found["objects"]] == [big]
    assert found["objects"][0]["holders"] == [driver.number]
    assert found["objects"][0]["mapped_by"] == [driver.number]
    assert found["total"] == 2
    assert found["mapped"] == 3 * PAGE
    assert [driver.number, 2, 4 * PAGE, 3 * PAGE] in [list(row) for row in found["processes"]]
