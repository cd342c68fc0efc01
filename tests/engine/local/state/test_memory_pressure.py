"""Which worker the node kills when memory runs short, and what happens to its task."""

from __future__ import annotations

import pytest

from skate._engine.local.state.memory_pressure import FRESH_WORKER_LIMIT, Candidate, choose
from skate._engine.local.state.tasks import FIRST_OOM_DELAY_S, MAX_OOM_DELAY_S
from skate._engine.local.wire import messages as m
from skate.exceptions import ActorDiedError, OutOfMemoryError
from tests.engine.local.state.world import World, load_error, result

GB = 10**9


@pytest.fixture
def world() -> World:
    return World(cpus=4)


def press(world: World, **sizes: int) -> list[int]:
    """Say that memory runs short; return the workers that are killed for it."""
    message = m.MemoryPressure(96 * GB, 100 * GB, "", 0.95, {}, [("pid 7, firefox", 2 * GB)])
    message.sizes = {int(name[1:]): size for name, size in sizes.items()}
    world.tell(0, message)
    return world.killed()


def candidate(
    number: int, *, idle: bool = False, retriable: bool = False, since: float = 0, size: int = 0
) -> Candidate:
    return Candidate(number, idle, retriable, since, size)


def test_nobody_is_chosen_among_nobody() -> None:
    assert choose([]) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (candidate(1, idle=True), candidate(2, retriable=True, since=9, size=9)),
        (candidate(1, idle=True, size=2), candidate(2, idle=True, size=1)),
        (candidate(1, retriable=True, since=1), candidate(2, since=9, size=9)),
        (candidate(1, retriable=True, since=2), candidate(2, retriable=True, since=1, size=9)),
        (candidate(1, since=2), candidate(2, since=1, size=9)),
    ],
    ids=[
        "idle ones first",
        "the largest idle one",
        "what can run again",
        "the newest of those",
        "the newest",
    ],
)
def test_the_order_in_which_workers_end(first: Candidate, second: Candidate) -> None:
    assert choose([first, second]) == choose([second, first]) == first


def test_the_newest_task_that_can_run_again_ends_and_runs_again_later(world: World) -> None:
    driver = world.driver()
    old = driver.submit(max_retries=1)
    world.start_worker()
    world.pass_time(1)
    new = driver.submit(max_retries=1)
    second = world.start_worker()
    world.pass_time(1)
    driver.submit(max_retries=0)
    world.start_worker()
    assert press(world) == [second.number]
    second.leave()
    assert {old, new} <= set(world.unfinished)
    assert world.commanded(m.StartWorker) == []
    world.pass_time(FIRST_OOM_DELAY_S)
    assert world.start_worker().tasks == [new]


def test_one_worker_ends_at_a_time(world: World) -> None:
    driver = world.driver()
    for _ in range(2):
        driver.submit(max_retries=0)
    first, second = world.start_workers()
    (killed,) = press(world)
    assert press(world) == []
    {first.number: first, second.number: second}[killed].leave()
    assert len(press(world)) == 1


def test_a_task_without_retries_fails_with_who_used_how_much(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=0, name="greedy")
    worker = world.start_worker()
    assert press(world, **{f"w{worker.number}": 80 * GB}) == [worker.number]
    worker.leave()
    error = driver.error_of(result(task))
    assert isinstance(error, OutOfMemoryError)
    text = str(error)
    assert "96,000.0 MB of the 100,000.0 MB that this machine has are in use (96.0%)" in text
    assert text.index("task greedy") < text.index("80,000.0 MB") < text.index("2,000.0 MB  pid 7, firefox")
    assert "RAY_memory_usage_threshold" in text
    assert error.task_name == "greedy"
    assert world.machine.gone[-1].over_memory


def test_retries_for_memory_do_not_use_up_others_and_become_rarer(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=1)
    pauses = []
    for _ in range(9):
        worker = world.start_worker()
        assert worker.tasks == [task]
        press(world)
        worker.leave()
        pauses.append(world.machine.next_tick())
        world.pass_time(pauses[-1])
    assert pauses[:3] == [FIRST_OOM_DELAY_S, 2 * FIRST_OOM_DELAY_S, 4 * FIRST_OOM_DELAY_S]
    assert pauses[-1] == MAX_OOM_DELAY_S
    world.start_worker().leave()
    assert world.start_worker().tasks == [task]  # the one retry after a crash is left
    assert world.machine.tasks.memory_retries == {task: 9}


def test_retries_for_memory_can_be_limited(world: World) -> None:
    world.machine.memory_pressure.oom_retries = 1
    driver = world.driver()
    task = driver.submit(max_retries=3)
    for _ in range(2):
        worker = world.start_worker()
        press(world)
        worker.leave()
        world.pass_time(FIRST_OOM_DELAY_S)
    assert isinstance(driver.error_of(result(task)), OutOfMemoryError)
    assert world.machine.tasks.memory_retries == {}


def test_a_task_that_waits_to_run_again_can_be_cancelled(world: World) -> None:
    driver = world.driver()
    task = driver.submit(max_retries=1)
    worker = world.start_worker()
    press(world)
    worker.leave()
    driver.say(m.Cancel(task, False, False))
    world.pass_time(FIRST_OOM_DELAY_S)
    assert world.unfinished == []
    assert world.commanded(m.StartWorker) == []


def test_an_actor_restarts_as_often_as_it_may_and_then_is_dead(world: World) -> None:
    driver = world.driver()
    actor = driver.create(max_restarts=1)
    for _ in range(2):
        worker = world.start_worker()
        worker.become()
        assert press(world) == [worker.number]
        worker.leave()
    error = load_error(driver.told(m.ActorUpdate)[-1].error)
    assert isinstance(error, OutOfMemoryError)
    assert isinstance(error, ActorDiedError)
    assert error.actor_id == actor.hex()
    assert "memory ran out" in str(error)


def test_idle_workers_end_only_if_they_hold_something(world: World) -> None:
    driver = world.driver()
    world.machine.scheduler.prestart(driver.job)
    world.machine.settle()
    world.route(world.machine.take())
    fresh = world.start_worker()
    assert press(world) == []
    assert press(world, **{f"w{fresh.number}": FRESH_WORKER_LIMIT + 1}) == [fresh.number]
    fresh.leave()
    used = world.start_worker_for(driver)
    assert press(world) == [used.number]


def test_drivers_never_end(world: World) -> None:
    driver = world.driver()
    assert press(world, **{f"w{driver.number}": 90 * GB}) == []
