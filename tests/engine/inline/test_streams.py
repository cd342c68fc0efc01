"""Generators run as they are read, and continue on their own only if something waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import skate
from skate.exceptions import ActorDiedError, TaskCancelledError
from tests.engine.inline.conftest import note

# Generators append to a list of an imported module.
pytestmark = pytest.mark.usefixtures("by_reference", "engine")


@skate.remote
def count(n: int) -> Iterator[int]:
    for i in range(n):
        note(f"make {i}")
        yield i
    note("end")


@skate.remote
class Source:
    def count(self, n: int) -> Iterator[int]:
        try:
            for i in range(n):
                note(f"make {i}")
                yield i
        finally:
            note("closed")

    def ping(self) -> str:
        note("ping")
        return "pong"


@skate.remote
class AsyncSource:
    async def count(self, n: int) -> AsyncIterator[int]:
        try:
            for i in range(n):
                note(f"make {i}")
                await asyncio.sleep(0)
                yield i
        finally:
            note("closed")

    def plain(self, n: int) -> Iterator[int]:
        yield from range(n)


def test_the_body_runs_as_items_are_asked_for(log: list[Any]) -> None:
    for ref in count.remote(2):
        note(f"got {skate.get(ref)}")
    assert log == ["make 0", "got 0", "make 1", "got 1", "end"]


def test_the_body_of_an_actors_generator_does_too(log: list[Any]) -> None:
    for ref in Source.remote().count.remote(2):
        note(f"got {skate.get(ref)}")
    assert log == ["make 0", "got 0", "make 1", "got 1", "closed"]


def test_the_body_of_an_asynchronous_generator_does_too(log: list[Any]) -> None:
    for ref in AsyncSource.remote().count.remote(2):
        note(f"got {skate.get(ref)}")
    assert log == ["make 0", "got 0", "make 1", "got 1", "closed"]


def test_a_plain_generator_of_an_asynchronous_actor_streams() -> None:
    assert skate.get(list(AsyncSource.remote().plain.remote(3))) == [0, 1, 2]


def test_a_later_call_lets_the_generator_before_it_end(log: list[Any]) -> None:
    source = Source.remote()
    stream = source.count.remote(2)
    assert skate.get(source.ping.remote()) == "pong"
    assert log == ["make 0", "make 1", "closed", "ping"]
    assert skate.get(list(stream)) == [0, 1]


def test_backpressure_keeps_the_generator_from_going_on_by_itself(log: list[Any]) -> None:
    source = Source.remote()
    stream = source.count.options(_generator_backpressure_num_objects=1).remote(3)
    with pytest.raises(skate.exceptions.DeadlockError):
        skate.get(source.ping.remote())
    assert log == ["make 0"]
    assert skate.get(list(stream)) == [0, 1, 2]


def test_completed_lets_the_generator_run_to_its_end(log: list[Any]) -> None:
    stream = count.remote(2)
    skate.get(stream.completed())
    assert log == ["make 0", "make 1", "end"]
    assert skate.get(list(stream)) == [0, 1]


def test_a_dropped_stream_closes_its_generator(log: list[Any]) -> None:
    stream = Source.remote().count.remote(5)
    next(stream)
    del stream
    assert log == ["make 0", "closed"]


def test_a_dropped_stream_closes_its_asynchronous_generator(log: list[Any]) -> None:
    source = AsyncSource.remote()
    stream = source.count.remote(5)
    next(stream)
    del stream
    skate.get(source.__ray_ready__.remote())
    assert log == ["make 0", "closed"]


def test_a_stream_that_nobody_reads_never_runs(log: list[Any]) -> None:
    count.remote(1)
    assert log == []


def test_next_ready_makes_the_item_that_it_is_asked_about() -> None:
    stream = count.remote(1)
    assert stream.next_ready()
    assert skate.get(next(stream)) == 0
    assert not stream.next_ready()
    assert stream.is_finished()


def test_a_cancelled_generator_stops_where_it_stands(log: list[Any]) -> None:
    stream = Source.remote().count.remote(5)
    next(stream)
    skate.cancel(stream)
    with pytest.raises(TaskCancelledError):
        skate.get(next(stream))
    with pytest.raises(StopIteration):
        next(stream)
    assert log == ["make 0", "closed"]


def test_a_retried_generator_does_not_repeat_its_items() -> None:
    attempts: list[int] = []

    @skate.remote(max_retries=1, retry_exceptions=True)
    def fails_once() -> Iterator[int]:
        note("attempt")
        yield 0
        yield 1
        if len(_attempts()) == 1:
            raise ValueError("once")
        yield 2

    _attempts().clear()
    assert skate.get(list(fails_once.remote())) == [0, 1, 2]
    assert _attempts() == ["attempt", "attempt"]
    assert attempts == []


def _attempts() -> list[Any]:
    from tests.engine.inline.conftest import events

    return events


def test_killing_the_actor_ends_its_streams() -> None:
    source = Source.remote()
    stream = source.count.remote(5)
    assert skate.get(next(stream)) == 0
    skate.kill(source)
    with pytest.raises(ActorDiedError):
        skate.get(next(stream))


def test_a_generator_holds_no_cpu_while_it_stands_still() -> None:
    stream = count.options(num_cpus=4).remote(2)
    next(stream)
    assert skate.available_resources()["CPU"] == 4
    assert skate.get(list(count.options(num_cpus=4).remote(1))) == [0]
    assert skate.get(list(stream)) == [1]


async def test_streams_are_read_with_async_for() -> None:
    source = AsyncSource.remote()
    assert [await ref async for ref in source.count.remote(3)] == [0, 1, 2]
    assert [await ref async for ref in count.remote(3)] == [0, 1, 2]


def test_a_generator_may_read_another() -> None:
    @skate.remote
    def doubled(n: int) -> Iterator[int]:
        for ref in count.remote(n):
            yield 2 * skate.get(ref)

    assert skate.get(list(doubled.remote(3))) == [0, 2, 4]
