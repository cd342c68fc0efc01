"""Waiting for objects: get, wait, await and futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest

import skate
from tests.contract.support import EVENT_TIMEOUT_S, Signal

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
def identity(value: Any) -> Any:
    return value


@skate.remote(max_retries=0)
def fail(message: str) -> None:
    raise ValueError(message)


@skate.remote
def wait_for(signal: Any, result: Any) -> Any:
    skate.get(signal.wait.remote())
    return result


def test_get_of_a_list_keeps_its_order() -> None:
    signal = Signal.remote()
    late, early = wait_for.remote(signal, "late"), identity.remote("early")
    assert skate.get(early) == "early"
    signal.send.remote()
    assert skate.get([late, early]) == ["late", "early"]


def test_get_of_an_empty_list_is_an_empty_list() -> None:
    assert skate.get([]) == []


def test_get_of_a_list_may_repeat_a_ref() -> None:
    ref = skate.put(1)
    assert skate.get([ref, ref]) == [1, 1]


def test_get_may_be_called_again() -> None:
    ref = identity.remote([1])
    assert skate.get(ref) == skate.get(ref) == [1]


def test_get_with_timeout_raises_get_timeout_error() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal, 1)
    with pytest.raises(skate.exceptions.GetTimeoutError):
        skate.get(ref, timeout=0.01)
    signal.send.remote()
    assert skate.get(ref) == 1


def test_get_timeout_error_is_a_timeout_error() -> None:
    assert issubclass(skate.exceptions.GetTimeoutError, TimeoutError)


def test_get_with_timeout_zero_raises_for_what_is_not_there() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal, 1)
    with pytest.raises(skate.exceptions.GetTimeoutError):
        skate.get(ref, timeout=0)
    signal.send.remote()
    skate.get(ref)


def test_get_with_timeout_zero_returns_what_is_there() -> None:
    assert skate.get(skate.put(1), timeout=0) == 1


def test_get_of_a_list_times_out_when_one_is_missing() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal, 1)
    with pytest.raises(skate.exceptions.GetTimeoutError):
        skate.get([skate.put(0), ref], timeout=0.01)
    signal.send.remote()
    skate.get(ref)


def test_get_with_a_long_timeout_returns_as_soon_as_it_can() -> None:
    assert skate.get(identity.remote(1), timeout=EVENT_TIMEOUT_S) == 1


def test_get_of_a_list_raises_when_one_failed() -> None:
    with pytest.raises(ValueError, match="second"):
        skate.get([identity.remote(1), fail.remote("second")])


def test_get_raises_the_same_error_each_time() -> None:
    ref = fail.remote("again")
    for _ in range(2):
        with pytest.raises(ValueError, match="again"):
            skate.get(ref)


def test_threads_may_call_get_at_the_same_time() -> None:
    results: list[int] = []

    def work(n: int) -> None:
        results.append(sum(skate.get([identity.remote(n + i) for i in range(5)])))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [10 + 5 * n for n in range(6)]


def test_threads_may_get_one_ref_at_the_same_time() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal, "shared")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(skate.get, ref) for _ in range(4)]
        signal.send.remote()
        assert [answer.result(EVENT_TIMEOUT_S) for answer in answers] == ["shared"] * 4


def test_wait_returns_what_is_ready_and_what_is_not() -> None:
    signal = Signal.remote()
    early, late = identity.remote(1), wait_for.remote(signal, 2)
    ready, not_ready = skate.wait([late, early])
    assert (ready, not_ready) == ([early], [late])
    signal.send.remote()
    assert skate.wait([late]) == ([late], [])


def test_wait_returns_no_more_than_num_returns() -> None:
    refs = [identity.remote(i) for i in range(4)]
    skate.get(refs)
    ready, not_ready = skate.wait(refs, num_returns=2)
    assert len(ready) == 2
    assert len(not_ready) == 2
    assert set(ready) | set(not_ready) == set(refs)


def test_wait_keeps_the_order_of_its_argument() -> None:
    refs = [skate.put(i) for i in range(4)]
    ready, _ = skate.wait(refs, num_returns=4)
    assert ready == refs


def test_wait_with_timeout_returns_fewer_than_asked() -> None:
    signal = Signal.remote()
    early, late = skate.put(1), wait_for.remote(signal, 2)
    assert skate.wait([early, late], num_returns=2, timeout=0.05) == ([early], [late])
    signal.send.remote()
    skate.get(late)


def test_wait_with_timeout_zero_does_not_block() -> None:
    signal = Signal.remote()
    late = wait_for.remote(signal, 1)
    assert skate.wait([late], timeout=0) == ([], [late])
    signal.send.remote()
    skate.get(late)


def test_wait_counts_a_failed_task_as_ready() -> None:
    failed = fail.remote("ready")
    assert skate.wait([failed]) == ([failed], [])
    with pytest.raises(ValueError, match="ready"):
        skate.get(failed)


def test_wait_on_an_empty_list_returns_empty_lists() -> None:
    assert skate.wait([]) == ([], [])


def test_wait_with_fetch_local_off_returns_the_same() -> None:
    refs = [identity.remote(i) for i in range(3)]
    ready, not_ready = skate.wait(refs, num_returns=3, fetch_local=False)
    assert (ready, not_ready) == (refs, [])


def test_wait_handles_tasks_one_by_one_until_none_is_left() -> None:
    pending = [identity.remote(i) for i in range(20)]
    seen = []
    while pending:
        ready, pending = skate.wait(pending)
        seen += skate.get(ready)
    assert sorted(seen) == list(range(20))


def test_wait_works_inside_a_task() -> None:
    @skate.remote
    def first_of(refs: list[Any]) -> int:
        ready, _ = skate.wait(refs)
        return skate.get(ready[0])

    assert skate.get(first_of.remote([identity.remote(7)])) == 7


async def test_a_ref_can_be_awaited() -> None:
    assert await identity.remote(1) == 1
    assert await skate.put(2) == 2


async def test_a_ref_can_be_awaited_twice() -> None:
    ref = identity.remote(1)
    assert [await ref, await ref] == [1, 1]


async def test_awaiting_a_failed_ref_raises_its_error() -> None:
    with pytest.raises(ValueError, match="awaited"):
        await fail.remote("awaited")


async def test_refs_can_be_gathered() -> None:
    assert await asyncio.gather(*[identity.remote(i) for i in range(5)]) == [0, 1, 2, 3, 4]


async def test_awaiting_lets_other_coroutines_run() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal, "opened")

    async def opener() -> None:
        await signal.send.remote()

    answer, _ = await asyncio.gather(ref, opener())
    assert answer == "opened"


async def test_an_await_that_times_out_leaves_the_ref_usable() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal, 1)

    async def value() -> int:
        return await ref

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(value(), 0.05)
    await signal.send.remote()
    assert await ref == 1


async def test_refs_work_with_asyncio_wait() -> None:
    async def value(ref: Any) -> Any:
        return await ref

    tasks = [asyncio.create_task(value(identity.remote(i))) for i in range(3)]
    done, pending = await asyncio.wait(tasks)
    assert not pending
    assert sorted(task.result() for task in done) == [0, 1, 2]


def test_a_future_gives_the_value() -> None:
    future = identity.remote(1).future()
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(EVENT_TIMEOUT_S) == 1


def test_a_future_gives_the_error() -> None:
    with pytest.raises(ValueError, match="in future"):
        fail.remote("in future").future().result(EVENT_TIMEOUT_S)


def test_a_future_calls_back_when_it_is_done() -> None:
    called = threading.Event()
    signal = Signal.remote()
    future = wait_for.remote(signal, 1).future()
    future.add_done_callback(lambda _: called.set())
    signal.send.remote()
    assert called.wait(EVENT_TIMEOUT_S)


def test_futures_work_with_as_completed() -> None:
    futures = [identity.remote(i).future() for i in range(5)]
    done = concurrent.futures.as_completed(futures, timeout=EVENT_TIMEOUT_S)
    assert sorted(future.result() for future in done) == [0, 1, 2, 3, 4]


def test_util_as_completed_yields_values_as_they_come() -> None:
    from skate.util import as_completed

    assert sorted(as_completed([identity.remote(i) for i in range(5)])) == [0, 1, 2, 3, 4]


def test_util_map_unordered_yields_every_result() -> None:
    from skate.util import map_unordered

    assert sorted(map_unordered(identity, range(5))) == [0, 1, 2, 3, 4]


def test_a_callback_that_fails_does_not_harm_the_session() -> None:
    called = threading.Event()

    def fail_to_handle(_: Any) -> None:
        called.set()
        raise RuntimeError("of the callback")

    signal = Signal.remote()
    ref = signal.wait.remote()
    ref._on_completed(fail_to_handle)
    skate.get([signal.send.remote(), ref])
    assert called.wait(EVENT_TIMEOUT_S)
    assert skate.get(identity.remote(1)) == 1


def test_wait_refuses_a_list_with_duplicates_after_it_has_returned_one_of_that_length() -> None:
    first, second, third = (skate.put(number) for number in range(3))
    for _ in range(100):  # Python likes to put a new list where the last one lay
        _, rest = skate.wait([first, second, third])
        assert len(rest) == 2
        del rest
        with pytest.raises(ValueError, match="unique"):
            skate.wait([third, third])


def test_wait_goes_on_with_the_list_that_it_returned_and_that_was_added_to() -> None:
    first, second, third = (skate.put(number) for number in range(3))
    (ready,), rest = skate.wait([first, second])
    other = (
        second if ready == first else first
    )  # all are there: which of them comes first is for the engine to say
    rest.append(third)
    assert skate.wait(rest, num_returns=2) == ([other, third], [])
    rest.append(third)
    with pytest.raises(ValueError, match="unique"):
        skate.wait(rest, num_returns=2)
