"""Generators: items as they are made, the end, errors, retries, readers that are slow or stop."""

from __future__ import annotations

from typing import Any

import pytest

from skate._base.object_ref import ERROR, INLINE, SHARED
from skate._engine.local.wire import messages as m
from skate.exceptions import TaskCancelledError, WorkerCrashedError
from tests.engine.local.state.world import Process, Worker, World, load_error, result


@pytest.fixture
def world() -> World:
    return World(cpus=1)


def stream(driver: Process, **spec: Any) -> tuple[bytes, Worker]:
    """Return a generator task and the worker that runs it."""
    task = driver.submit(num_returns=m.STREAMING, **spec)
    return task, driver.world.start_worker()


def make(worker: Worker, task: bytes, index: int, data: bytes = b"item") -> None:
    """Yield an item."""
    worker.say(m.Item(task, index, m.Result(INLINE, data)))


def total(process: Process, task: bytes) -> int | None:
    """Return how many items the reader was told there are."""
    ends = [x for x in process.heard if isinstance(x, m.Ready) and x.id == result(task, 0)]
    return ends[-1].total if ends else None


def test_items_arrive_as_they_are_made_and_then_the_end(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver)
    make(worker, task, 1, b"a")
    assert driver.value_of(result(task, 1)) == b"a"
    assert total(driver, task) is None
    make(worker, task, 2, b"b")
    worker.finish_with(task, count=2)
    assert total(driver, task) == 2


def test_an_item_is_freed_when_its_reader_lets_go(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver)
    make(worker, task, 1)
    driver.release(result(task, 1))
    assert not world.knows(result(task, 1))


def test_an_error_comes_after_the_items(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver)
    make(worker, task, 1)
    worker.finish_with(task, m.Result(ERROR, b"oops"), count=1, failed="ValueError")
    assert driver.value_of(result(task, 2)) == b"oops"
    assert total(driver, task) == 2


def test_a_generator_whose_worker_dies_ends_with_an_error(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver)
    make(worker, task, 1)
    worker.leave()
    assert isinstance(driver.error_of(result(task, 2)), WorkerCrashedError)
    assert total(driver, task) == 2


def test_a_cancelled_generator_ends_with_an_error(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=m.STREAMING)
    driver.say(m.Cancel(task))
    assert isinstance(driver.error_of(result(task, 1)), TaskCancelledError)
    assert total(driver, task) == 1


def test_items_that_an_earlier_attempt_made_are_not_sent_again(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver, max_retries=1)
    make(worker, task, 1, b"first")
    driver.release(result(task, 1))
    worker.leave()
    again = world.start_worker()
    make(again, task, 1, b"second")
    assert not world.knows(result(task, 1)), "the reader has taken it, and would not release it again"
    make(again, task, 2, b"new")
    assert driver.value_of(result(task, 2)) == b"new"


def test_the_memory_of_an_item_made_twice_is_given_back(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver, max_retries=1)
    make(worker, task, 1)
    worker.leave()
    again = world.start_worker()
    granted = again.allocate(1)
    assert granted is not None
    again.say(m.Item(task, 1, m.Result(SHARED, segment=granted.segment, size=10)))
    assert world.machine.store._spare_bytes == 4096


def test_an_error_of_a_second_attempt_is_not_hidden_by_the_items_of_the_first(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver, max_retries=1)
    for index in (1, 2, 3):
        make(worker, task, index)
    worker.leave()
    again = world.start_worker()
    again.finish_with(task, m.Result(ERROR, b"oops"), count=0, failed="ValueError")
    assert driver.value_of(result(task, 4)) == b"oops"
    assert total(driver, task) == 4


def test_a_worker_learns_how_far_its_reader_has_come(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver, backpressure=2)
    driver.say(m.Consumed(task, 1))
    assert [moved.count for moved in worker.told(m.Consumed)] == [1]


def test_a_second_attempt_learns_how_far_the_reader_had_come(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver, backpressure=2, max_retries=1)
    make(worker, task, 1)
    driver.say(m.Consumed(task, 1))
    worker.leave()
    again = world.start_worker()
    assert [type(x) for x in again.heard if isinstance(x, m.Run | m.Consumed)] == [m.Run, m.Consumed]
    assert [moved.count for moved in again.told(m.Consumed)] == [1]


def test_a_reader_that_left_before_the_start_is_known_to_have_left(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=m.STREAMING, backpressure=2)
    driver.say(m.Consumed(task, 0, closed=True))
    worker = world.start_worker()
    assert [moved.closed for moved in worker.told(m.Consumed)] == [True]


def test_a_generator_whose_reader_died_is_told_so(world: World) -> None:
    driver = world.driver()
    parent = driver.submit()
    reader = world.start_worker()
    task = reader.submit(num_returns=m.STREAMING, backpressure=1, parent=parent)
    reader.block(task=parent)
    worker = world.start_worker()
    make(worker, task, 1)
    reader.leave()
    assert [moved.closed for moved in worker.told(m.Consumed)] == [True]
    make(worker, task, 2)
    assert not world.knows(result(task, 2))
    worker.finish_with(task, count=2)
    assert world.unfinished == []


def test_dynamic_returns_are_one_object_that_contains_the_others(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=m.DYNAMIC)
    worker = world.start_worker()
    inner = result(task, 2)
    worker.say(m.Register(inner, INLINE, b"inner"))
    worker.finish_with(task, m.Result(INLINE, b"all", contains=[inner]))
    worker.release(inner)
    assert driver.value_of(result(task)) == b"all"
    assert world.knows(inner)
    driver.release(result(task))
    assert not world.knows(inner)


def test_several_errors_of_a_generator_come_one_after_the_other(world: World) -> None:
    driver = world.driver()
    task, worker = stream(driver, per_yield=2)
    worker.finish_with(task, m.Result(ERROR, b"1"), m.Result(ERROR, b"2"), count=0, failed="ValueError")
    assert [driver.value_of(result(task, index)) for index in (1, 2)] == [b"1", b"2"]
    assert total(driver, task) == 2


def test_a_generator_that_can_never_run_says_why(world: World) -> None:
    driver = world.driver()
    task = driver.submit(num_returns=m.STREAMING, resources={"CPU": 9.0})
    data = driver.value_of(result(task, 1))
    assert data is not None
    assert "can never be met" in str(load_error(data))
