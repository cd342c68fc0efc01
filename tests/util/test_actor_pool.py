from __future__ import annotations

import os
import signal
from typing import Any

import pytest

import skate
from skate.exceptions import RayActorError
from skate.util.actor_pool import ActorPool
from tests.contract.support import Signal


@skate.remote(num_cpus=0)
class Worker:
    def double(self, x: int) -> int:
        return 2 * x

    @skate.method(num_returns=2)
    def twice(self, x: int) -> tuple[int, int]:
        return x, x

    def fail(self, x: int) -> None:
        raise ValueError(x)

    def wait_for(self, event: Any) -> str:
        skate.get(event.wait.remote())
        return "waited"

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def call_dead(self, other: Any) -> None:
        skate.get(other.double.remote(1))


def double(actor: Any, value: int) -> Any:
    return actor.double.remote(value)


def fail(actor: Any, value: int) -> Any:
    return actor.fail.remote(value)


def wait_for(actor: Any, event: Any) -> Any:
    return actor.wait_for.remote(event)


def pool_of(size: int) -> ActorPool:
    return ActorPool([Worker.remote() for _ in range(size)])


def test_map_gives_results_in_order(any_engine: str) -> None:
    assert list(pool_of(2).map(double, range(10))) == [2 * x for x in range(10)]


def test_map_unordered_gives_every_result_once(any_engine: str) -> None:
    assert sorted(pool_of(2).map_unordered(double, range(10))) == [2 * x for x in range(10)]


def test_map_takes_any_iterable_and_submits_before_it_returns(any_engine: str) -> None:
    seen: list[int] = []

    def values() -> Any:
        for x in range(3):
            seen.append(x)
            yield x

    results = pool_of(1).map(double, values())
    assert seen == [0, 1, 2]
    assert list(results) == [0, 2, 4]


def test_results_come_one_at_a_time_in_the_order_of_submission(any_engine: str) -> None:
    pool = pool_of(2)
    for x in range(5):
        pool.submit(double, x)
    assert [pool.get_next() for _ in range(5)] == [0, 2, 4, 6, 8]
    assert not pool.has_next()


def test_ordered_and_unordered_fetching_can_be_mixed(any_engine: str) -> None:
    pool = pool_of(2)
    for x in range(4):
        pool.submit(double, x)
    found = [pool.get_next_unordered(), pool.get_next(), pool.get_next_unordered(), pool.get_next()]
    assert sorted(found) == [0, 2, 4, 6]


def test_several_returns_come_as_a_list(any_engine: str) -> None:
    pool = pool_of(2)
    for x in range(3):
        pool.submit(lambda actor, x: actor.twice.remote(x), x)
    assert [pool.get_next() for _ in range(2)] == [[0, 0], [1, 1]]
    assert pool.get_next_unordered() == [2, 2]


def test_asking_for_more_than_there_is_stops_the_iteration(any_engine: str) -> None:
    pool = pool_of(1)
    for get in (pool.get_next, pool.get_next_unordered):
        with pytest.raises(StopIteration, match="No more results"):
            get()


def test_a_failed_call_raises_and_its_actor_goes_on(any_engine: str) -> None:
    pool = pool_of(1)
    pool.submit(fail, 7)
    pool.submit(double, 7)
    with pytest.raises(ValueError, match="7"):
        pool.get_next()
    assert pool.get_next() == 14


def test_unordered_gives_what_is_ready_while_another_call_blocks(local: None) -> None:
    event = Signal.remote()
    pool = pool_of(2)
    pool.submit(wait_for, event)
    pool.submit(double, 1)
    assert pool.get_next_unordered() == 2
    skate.get(event.send.remote())
    assert pool.get_next_unordered() == "waited"


@pytest.mark.parametrize("method", ["get_next", "get_next_unordered"])
def test_a_result_that_is_late_times_out_and_can_be_fetched_later(local: None, method: str) -> None:
    event = Signal.remote()
    pool = pool_of(1)
    pool.submit(wait_for, event)
    with pytest.raises(TimeoutError):
        getattr(pool, method)(timeout=0.01)
    skate.get(event.send.remote())
    assert getattr(pool, method)() == "waited"


@pytest.mark.parametrize("method", ["get_next", "get_next_unordered"])
def test_a_late_result_can_be_ignored(local: None, method: str) -> None:
    event = Signal.remote()
    pool = pool_of(1)
    pool.submit(wait_for, event)
    pool.submit(double, 3)
    with pytest.raises(TimeoutError, match="gnored"):
        getattr(pool, method)(timeout=0.01, ignore_if_timedout=True)
    skate.get(event.send.remote())
    assert getattr(pool, method)() == 6
    assert not pool.has_next()


def test_map_drops_what_was_submitted_before(local: None) -> None:
    pool = pool_of(2)
    pool.submit(fail, 1)
    pool.submit(double, 100)
    pool.submit(double, 200)
    assert list(pool.map(double, [1, 2, 3])) == [2, 4, 6]


def test_actors_can_be_taken_out_and_put_in(any_engine: str) -> None:
    first, second = Worker.remote(), Worker.remote()
    pool = ActorPool([first])
    pool.submit(double, 1)
    assert not pool.has_free()
    assert pool.pop_idle() is None
    with pytest.raises(ValueError, match="already belongs"):
        pool.push(first)
    pool.submit(double, 2)
    pool.push(second)
    assert [pool.get_next(), pool.get_next()] == [2, 4]
    assert pool.has_free()
    assert {pool.pop_idle(), pool.pop_idle()} == {first, second}
    assert not pool.has_free()


def test_a_dead_actor_leaves_the_pool(local: None) -> None:
    good, bad = Worker.remote(), Worker.remote()
    pool = ActorPool([good, bad])
    with pytest.raises(RayActorError):
        skate.get(bad.die.remote())
    pool.submit(double, 1)
    pool.submit(double, 2)
    found = []
    while pool.has_next():
        try:
            found.append(pool.get_next())
        except RayActorError:
            found.append("dead")
    assert sorted(map(str, found)) in (["2", "dead"], ["4", "dead"])
    assert pool.pop_idle() == good
    assert pool.pop_idle() is None


def test_an_actor_that_met_a_dead_one_stays_in_the_pool(local: None) -> None:
    actor, dead = Worker.remote(), Worker.remote()
    skate.kill(dead)
    pool = ActorPool([actor])
    pool.submit(lambda a, other: a.call_dead.remote(other), dead)
    with pytest.raises(RayActorError):
        pool.get_next()
    assert pool.pop_idle() == actor


def test_work_that_no_actor_is_left_for_is_reported(any_engine: str) -> None:
    pool = ActorPool([])
    pool.submit(double, 1)
    assert pool.has_next()
    with pytest.raises(RuntimeError, match=r"no actor left for 1 .*push"):
        pool.get_next()
    pool.push(Worker.remote())
    assert pool.get_next() == 2


def test_a_pool_takes_only_actor_handles(any_engine: str) -> None:
    with pytest.raises(TypeError, match=r"remote\("):
        ActorPool([Worker])  # the class instead of an actor
    with pytest.raises(TypeError, match="actor handles"):
        pool_of(1).push(3)  # type: ignore[arg-type]


def test_a_function_that_forgets_remote_is_told_so(any_engine: str) -> None:
    pool = pool_of(1)
    with pytest.raises(TypeError, match=r"actor\.method\.remote"):
        pool.submit(lambda actor, x: x, 1)
    assert pool.has_free()
