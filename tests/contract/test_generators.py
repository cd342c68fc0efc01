"""Streaming generators: tasks and actor methods that yield one object at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import skate
from tests.contract.support import Counter, Log, Signal, eventually

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
def count_to(n: int) -> Iterator[int]:
    for i in range(n):  # noqa: UP028 - `yield from` has a test of its own
        yield i


@skate.remote
class Source:
    def count_to(self, n: int) -> Iterator[int]:
        for i in range(n):  # noqa: UP028 - `yield from` has a test of its own
            yield i

    def ping(self) -> str:
        return "pong"


@skate.remote
class AsyncSource:
    async def count_to(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i


def test_a_generator_task_gives_an_object_ref_generator() -> None:
    stream = count_to.remote(2)
    assert isinstance(stream, skate.ObjectRefGenerator)
    assert skate.get(list(stream)) == [0, 1]


def test_iterating_gives_refs_in_order() -> None:
    refs = list(count_to.remote(5))
    assert all(isinstance(ref, skate.ObjectRef) for ref in refs)
    assert [skate.get(ref) for ref in refs] == [0, 1, 2, 3, 4]


def test_next_gives_one_ref_at_a_time_and_then_stops() -> None:
    stream = count_to.remote(2)
    assert skate.get(next(stream)) == 0
    assert skate.get(next(stream)) == 1
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_a_generator_may_delegate_to_any_iterable() -> None:
    @skate.remote
    def delegating() -> Iterator[int]:
        yield from range(3)

    assert skate.get(list(delegating.remote())) == [0, 1, 2]


def test_an_empty_generator_stops_at_once() -> None:
    assert list(count_to.remote(0)) == []


def test_num_returns_streaming_says_what_a_generator_does_anyway() -> None:
    stream = count_to.options(num_returns="streaming").remote(3)
    assert [skate.get(ref) for ref in stream] == [0, 1, 2]


def test_num_returns_streaming_needs_a_generator() -> None:
    def plain() -> int:
        return 1

    with pytest.raises(ValueError, match="generator"):
        skate.remote(num_returns="streaming")(plain)


def test_a_generator_with_fixed_num_returns_gives_that_many_refs() -> None:
    a, b = count_to.options(num_returns=2).remote(2)
    assert skate.get([a, b]) == [0, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_generator_with_dynamic_returns_gives_a_ref_to_its_refs() -> None:
    ref = count_to.options(num_returns="dynamic").remote(3)
    assert isinstance(ref, skate.ObjectRef)
    assert [skate.get(inner) for inner in skate.get(ref)] == [0, 1, 2]


def test_a_value_can_be_read_while_the_generator_runs() -> None:
    signal = Signal.remote()

    @skate.remote
    def two_steps() -> Iterator[str]:
        yield "before"
        skate.get(signal.wait.remote())
        yield "after"

    stream = two_steps.remote()
    assert skate.get(next(stream)) == "before"
    skate.get(signal.send.remote())
    assert skate.get(next(stream)) == "after"


def test_wait_tells_whether_the_next_item_is_there() -> None:
    signal = Signal.remote()

    @skate.remote
    def gated() -> Iterator[int]:
        skate.get(signal.wait.remote())
        yield 1

    stream = gated.remote()
    ready, not_ready = skate.wait([stream], timeout=0)
    assert (ready, not_ready) == ([], [stream])
    skate.get(signal.send.remote())
    ready, not_ready = skate.wait([stream])
    assert (ready, not_ready) == ([stream], [])
    assert skate.get(next(stream)) == 1


def test_an_exception_comes_after_the_items_before_it() -> None:
    @skate.remote(max_retries=0)
    def two_then_fail() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("no third")

    stream = two_then_fail.remote()
    assert [skate.get(next(stream)), skate.get(next(stream))] == [1, 2]
    with pytest.raises(ValueError, match="no third"):
        skate.get(next(stream))
    with pytest.raises(StopIteration):
        next(stream)


def test_a_generator_yields_large_arrays() -> None:
    @skate.remote
    def arrays() -> Iterator[np.ndarray[Any, Any]]:
        for i in range(4):
            yield np.full(200_000, i)

    for i, ref in enumerate(arrays.remote()):
        assert skate.get(ref).sum() == 200_000 * i


def test_an_item_can_be_passed_to_a_task() -> None:
    @skate.remote
    def double(x: int) -> int:
        return 2 * x

    assert skate.get([double.remote(ref) for ref in count_to.remote(3)]) == [0, 2, 4]


def test_items_outlive_the_generator() -> None:
    refs = list(count_to.remote(3))
    assert skate.get(refs) == [0, 1, 2]
    assert skate.get(refs) == [0, 1, 2]


def test_a_stream_is_read_inside_a_task() -> None:
    @skate.remote
    def total(n: int) -> int:
        return sum(skate.get(ref) for ref in count_to.remote(n))

    assert skate.get(total.remote(4)) == 6


def test_a_stream_dropped_half_way_leaves_the_session_usable() -> None:
    stream = count_to.remote(100)
    next(stream)
    del stream
    assert skate.get(list(count_to.remote(2))) == [0, 1]


async def test_a_stream_is_iterated_with_async_for() -> None:
    assert [await ref async for ref in count_to.remote(3)] == [0, 1, 2]


async def test_two_streams_are_read_side_by_side_with_asyncio() -> None:
    async def total(stream: Any) -> int:
        return sum([await ref async for ref in stream])

    assert await asyncio.gather(total(count_to.remote(3)), total(count_to.remote(4))) == [3, 6]


def test_backpressure_holds_the_generator_back() -> None:
    log = Log.remote()

    @skate.remote(_generator_backpressure_num_objects=2)
    def logged(n: int) -> Iterator[int]:
        for i in range(n):
            skate.get(log.append.remote(i))
            yield i

    stream = logged.remote(10)
    first = next(stream)
    eventually(lambda: len(skate.get(log.items.remote())) >= 2)
    assert skate.get(first) == 0
    assert len(skate.get(log.items.remote())) < 10
    assert [skate.get(ref) for ref in stream] == list(range(1, 10))


def test_backpressure_lets_every_item_through_in_order() -> None:
    stream = count_to.options(_generator_backpressure_num_objects=1).remote(20)
    assert [skate.get(ref) for ref in stream] == list(range(20))


def test_an_actor_method_streams() -> None:
    source = Source.remote()
    assert [skate.get(ref) for ref in source.count_to.remote(3)] == [0, 1, 2]
    assert skate.get(source.ping.remote()) == "pong"


def test_an_actor_method_streams_with_explicit_num_returns() -> None:
    source = Source.remote()
    stream = source.count_to.options(num_returns="streaming").remote(3)
    assert [skate.get(ref) for ref in stream] == [0, 1, 2]


def test_an_async_actor_method_streams() -> None:
    source = AsyncSource.remote()
    assert [skate.get(ref) for ref in source.count_to.remote(3)] == [0, 1, 2]


def test_an_async_actor_runs_two_streams_side_by_side() -> None:
    @skate.remote
    class Meeting:
        def __init__(self) -> None:
            self.barrier = asyncio.Barrier(2)

        async def stream(self) -> AsyncIterator[str]:
            await self.barrier.wait()
            yield "met"

    meeting = Meeting.remote()
    streams = [meeting.stream.remote(), meeting.stream.remote()]
    assert [skate.get(next(s)) for s in streams] == ["met", "met"]


def test_an_exception_in_an_async_generator_comes_after_its_items() -> None:
    @skate.remote
    class Failing:
        async def stream(self) -> AsyncIterator[int]:
            yield 1
            raise KeyError("second")

    failing = Failing.remote()
    stream = failing.stream.remote()
    assert skate.get(next(stream)) == 1
    with pytest.raises(KeyError, match="second"):
        skate.get(next(stream))


def test_a_cancelled_stream_ends_with_the_cancellation() -> None:
    signal = Signal.remote()

    @skate.remote
    def endless() -> Iterator[int]:
        yield 1
        skate.get(signal.wait.remote())
        yield 2

    stream = endless.remote()
    assert skate.get(next(stream)) == 1
    skate.get(signal.wait_for_waiters.remote(1))
    skate.cancel(stream)
    with pytest.raises(skate.exceptions.TaskCancelledError):
        skate.get(next(stream))
    with pytest.raises(StopIteration):
        next(stream)


def test_a_generator_whose_worker_dies_starts_over_without_repeating_items() -> None:
    attempts = Counter.remote()

    @skate.remote(max_retries=1)
    def dies_once() -> Iterator[int]:
        attempt = skate.get(attempts.increment.remote())
        yield 0
        yield 1
        if attempt == 1:
            os._exit(1)
        yield 2

    assert [skate.get(ref) for ref in dies_once.remote()] == [0, 1, 2]
    assert skate.get(attempts.read.remote()) == 2


def test_a_generator_that_starts_over_is_not_held_back_by_what_was_taken_before() -> None:
    attempts = Counter.remote()

    @skate.remote(max_retries=1, _generator_backpressure_num_objects=2)
    def dies_once() -> Iterator[int]:
        again = skate.get(attempts.increment.remote()) > 1
        for i in range(20):
            if i == 10 and not again:
                os._exit(1)
            yield i

    assert [skate.get(ref) for ref in dies_once.remote()] == list(range(20))


def test_a_generator_of_an_actor_that_starts_over_is_not_held_back_either() -> None:
    attempts = Counter.remote()

    @skate.remote(max_restarts=1, max_task_retries=1)
    class DiesOnce:
        def count(self) -> Iterator[int]:
            again = skate.get(attempts.increment.remote()) > 1
            for i in range(20):
                if i == 10 and not again:
                    os._exit(1)
                yield i

    method = DiesOnce.remote().count.options(num_returns="streaming", _generator_backpressure_num_objects=2)
    assert [skate.get(ref) for ref in method.remote()] == list(range(20))


def test_a_generator_whose_worker_dies_for_good_ends_with_the_crash() -> None:
    @skate.remote(max_retries=0)
    def dies() -> Iterator[int]:
        yield 0
        os._exit(1)

    refs = list(dies.remote())
    with pytest.raises(skate.exceptions.WorkerCrashedError):
        skate.get(refs[-1])


def test_retry_exceptions_restarts_a_generator() -> None:
    attempts = Counter.remote()

    @skate.remote(max_retries=1, retry_exceptions=True)
    def fails_once() -> Iterator[int]:
        attempt = skate.get(attempts.increment.remote())
        yield 0
        if attempt == 1:
            raise ValueError("once")
        yield 1

    assert [skate.get(ref) for ref in fails_once.remote()] == [0, 1]


@skate.remote(num_cpus=0)
class Mixed:
    """Yields small and large items, which may travel by different ways."""

    def items(self, sizes: list[int], friend: Any = None) -> Iterator[Any]:
        for size in sizes:
            yield np.full(size, size)


@skate.remote(num_cpus=0, max_concurrency=4)
class MixedThreads:
    def items(self, sizes: list[int], friend: Any = None) -> Iterator[Any]:
        for size in sizes:
            yield np.full(size, size)


@skate.remote(num_cpus=0)
class MixedAsync:
    async def items(self, sizes: list[int], friend: Any = None) -> AsyncIterator[Any]:
        for size in sizes:
            yield np.full(size, size)


@pytest.mark.parametrize("kind", [Mixed, MixedThreads, MixedAsync])
@pytest.mark.parametrize("sizes", [[1, 2, 3], [1, 100_000], [100_000, 1], [50_000, 1, 60_000, 2, 70_000]])
def test_small_and_large_items_of_an_actor_all_arrive(kind: Any, sizes: list[int]) -> None:
    source, friend = kind.remote(), Counter.remote()
    for _ in range(10):
        streams = [source.items.remote(sizes), source.items.remote(sizes, friend)]
        assert [[len(skate.get(ref)) for ref in stream] for stream in streams] == [sizes, sizes]


def test_an_async_generator_goes_on_whenever_its_reader_moves() -> None:
    @skate.remote(num_cpus=0, _actor_generator_backpressure_num_objects=2)
    class Source:
        async def count(self, log: Any) -> AsyncIterator[int]:
            for i in range(10):
                await log.append.remote(i)
                yield i

    source, log = Source.remote(), Log.remote()
    for _ in range(10):
        assert [skate.get(ref) for ref in source.count.remote(log)] == list(range(10))


def test_a_generator_that_a_plain_function_returns_is_refused_and_another_iterator_is_a_value() -> None:
    @skate.remote
    def squares() -> Iterator[int]:
        return (x * x for x in range(3))

    @skate.remote(num_returns=1)
    def one() -> Iterator[int]:
        yield 7

    @skate.remote
    class Actor:
        def squares(self) -> Iterator[int]:
            return (x * x for x in range(3))

    for call in (squares, Actor.remote().squares):
        with pytest.raises(
            TypeError, match="returned a generator, of which only the first item would arrive"
        ):
            skate.get(call.remote())
    assert skate.get(one.remote()) == 7
    assert list(skate.get(skate.remote(lambda: iter(range(3))).remote())) == [0, 1, 2]
