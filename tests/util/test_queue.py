from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.exceptions import GetTimeoutError, RayActorError
from skate.util.queue import Empty, Full, Queue
from tests.contract.support import EVENT_TIMEOUT_S, eventually


@pytest.fixture
def q(any_engine: str) -> Iterator[Queue]:
    q = Queue()
    yield q
    q.shutdown(force=True)


@pytest.fixture
def small(any_engine: str) -> Iterator[Queue]:
    small = Queue(maxsize=2)
    yield small
    small.shutdown(force=True)


@skate.remote(num_cpus=0)
def take(q: Queue) -> Any:
    return q.get()


@skate.remote(num_cpus=0)
def add(q: Queue, item: Any) -> None:
    q.put(item)


def test_items_come_out_in_the_order_they_went_in(q: Queue) -> None:
    for item in (1, None, "three"):
        q.put(item)
    assert [q.get(), q.get(), q.get()] == [1, None, "three"]


def test_sizes_follow_the_items(small: Queue) -> None:
    assert (len(small), small.size(), small.qsize(), small.empty(), small.full()) == (0, 0, 0, True, False)
    small.put(1)
    assert (len(small), small.empty(), small.full()) == (1, False, False)
    small.put(2)
    assert (small.qsize(), small.full()) == (2, True)


def test_a_queue_without_a_size_is_never_full(q: Queue) -> None:
    q.put_nowait_batch(range(1000))
    assert not q.full()


def test_an_empty_queue_has_nothing_to_get(q: Queue) -> None:
    with pytest.raises(Empty):
        q.get_nowait()
    with pytest.raises(Empty):
        q.get(block=False)
    with pytest.raises(Empty):
        q.get(timeout=0.01)


def test_a_full_queue_takes_no_more(small: Queue) -> None:
    small.put_nowait_batch([1, 2])
    with pytest.raises(Full):
        small.put_nowait(3)
    with pytest.raises(Full):
        small.put(3, block=False)
    with pytest.raises(Full):
        small.put(3, timeout=0.01)
    assert small.get_nowait_batch(2) == [1, 2]


def test_the_errors_are_those_of_the_standard_library_too(small: Queue) -> None:
    with pytest.raises(queue.Empty) as empty:
        small.get_nowait()
    small.put_nowait_batch([1, 2])
    with pytest.raises(queue.Full) as full:
        small.put(3, timeout=0)
    assert (type(empty.value), type(full.value)) == (Empty, Full)


def test_a_timeout_of_zero_takes_what_is_there(q: Queue) -> None:
    q.put(1, timeout=0)
    assert q.get(timeout=0) == 1


def test_a_batch_goes_in_and_out_whole_or_not_at_all(small: Queue) -> None:
    small.put(0)
    with pytest.raises(Full, match="2 items: the queue holds 1 of at most 2"):
        small.put_nowait_batch([1, 2])
    with pytest.raises(Empty, match="holds only 1 of 2 items"):
        small.get_nowait_batch(2)
    assert small.get_nowait_batch(0) == []
    assert small.get_nowait_batch(1) == [0]


def test_a_batch_can_be_any_iterable(q: Queue) -> None:
    q.put_nowait_batch(x * x for x in range(3))
    assert q.get_nowait_batch(3) == [0, 1, 4]


def test_a_reference_is_put_as_its_value_and_stays_a_reference_in_a_batch(q: Queue) -> None:
    q.put(skate.put("value"))
    assert q.get() == "value"
    q.put_nowait_batch([skate.put("value")])
    (ref,) = q.get_nowait_batch(1)
    assert skate.get(ref) == "value"


def test_a_blocked_get_waits_for_the_next_item(local: None) -> None:
    q = Queue()
    taken = take.remote(q)
    with pytest.raises(GetTimeoutError):
        skate.get(taken, timeout=0.05)
    q.put("item")
    assert skate.get(taken) == "item"
    q.shutdown()


def test_a_blocked_put_waits_for_room(local: None) -> None:
    q = Queue(1)
    q.put(1)
    added = add.remote(q, 2)
    with pytest.raises(GetTimeoutError):
        skate.get(added, timeout=0.05)
    assert [q.get(), q.get()] == [1, 2]
    skate.get(added)
    q.shutdown()


def test_tasks_share_one_queue(local: None) -> None:
    q = Queue()
    skate.get([add.remote(q, x) for x in range(10)])
    assert sorted(skate.get([take.remote(q) for _ in range(10)])) == list(range(10))
    q.shutdown()


async def test_the_asynchronous_methods_do_what_the_others_do(local: None) -> None:
    q = Queue(1)
    await q.put_async(1)
    with pytest.raises(Full):
        await q.put_async(2, block=False)
    with pytest.raises(Full):
        await q.put_async(2, timeout=0.01)
    assert await q.get_async() == 1
    with pytest.raises(Empty):
        await q.get_async(block=False)
    with pytest.raises(Empty):
        await q.get_async(timeout=0.01)
    with pytest.raises(ValueError):
        await q.get_async(timeout=-1)
    q.shutdown()


async def test_a_blocked_get_leaves_the_event_loop_free(local: None) -> None:
    q = Queue()
    taken = asyncio.ensure_future(q.get_async())
    await q.put_async("item")
    assert await taken == "item"
    q.shutdown()


async def test_a_get_that_is_given_up_takes_no_item(local: None) -> None:
    q = Queue()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(q.get_async(), 0.05)
    await q.put_async("item")
    assert await q.get_async(timeout=EVENT_TIMEOUT_S) == "item"
    q.shutdown()


def test_the_actor_takes_the_options_it_is_given(local: None) -> None:
    free = skate.available_resources()["CPU"]
    q = Queue(actor_options={"num_cpus": 1, "name": "my-queue"})
    q.put(1)
    assert skate.available_resources()["CPU"] == free - 1
    assert skate.get_actor("my-queue") == q.actor
    q.shutdown()
    eventually(lambda: skate.available_resources()["CPU"] == free)


def test_the_actor_reserves_nothing_by_itself(local: None) -> None:
    free = skate.available_resources()["CPU"]
    q = Queue()
    q.put(1)
    assert skate.available_resources()["CPU"] == free
    q.shutdown()


@pytest.mark.parametrize("force", [False, True])
def test_shutdown_ends_the_queue_for_everyone(local: None, force: bool) -> None:
    q = Queue()
    actor = q.actor
    blocked = take.remote(q)
    q.shutdown(force=force)
    assert q.actor is None
    with pytest.raises(RayActorError):
        skate.get(actor.empty.remote())
    with pytest.raises(RayActorError):
        skate.get(blocked)


def test_a_queue_that_is_shut_down_says_so(any_engine: str) -> None:
    q = Queue()
    q.shutdown()
    q.shutdown()
    for use in (q.qsize, q.get_nowait, lambda: q.put(1), lambda: q.get_nowait_batch(1)):
        with pytest.raises(ValueError, match="shut down"):
            use()


def test_wrong_arguments_are_refused(q: Queue) -> None:
    with pytest.raises(TypeError, match="maxsize"):
        Queue("ten")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        q.get(timeout=-1)
    with pytest.raises(ValueError, match="timeout"):
        q.put(1, timeout=-1)
    with pytest.raises(TypeError, match="timeout"):
        q.get(timeout="soon")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Iterable"):
        q.put_nowait_batch(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="num_items"):
        q.get_nowait_batch("all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nonnegative"):
        q.get_nowait_batch(-1)
    with pytest.raises(ValueError, match="no_such_option"):
        Queue(actor_options={"no_such_option": 1})
