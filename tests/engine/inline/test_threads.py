"""Threads of the program may use the engine as they like."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import skate

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
class Counter:
    def __init__(self) -> None:
        self.value = 0
        self.inside = 0

    def increment(self) -> int:
        self.inside += 1
        assert self.inside == 1
        value = self.value
        for _ in range(100):
            pass
        self.value = value + 1
        self.inside -= 1
        return self.value

    async def increment_slowly(self) -> int:
        self.value += 1
        return self.value


def test_calls_from_many_threads_run_one_at_a_time() -> None:
    counter = Counter.remote()
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(lambda _: counter.increment.remote(), range(200)))
        assert sorted(pool.map(skate.get, refs)) == list(range(1, 201))


def test_a_coroutine_is_never_run_by_two_threads() -> None:
    counter = Counter.remote()
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda _: skate.get(counter.increment_slowly.remote()), range(200)))
    assert sorted(values) == list(range(1, 201))


def test_a_task_may_use_threads_that_use_the_engine() -> None:
    @skate.remote
    def square(x: int) -> int:
        return x * x

    @skate.remote
    def spread() -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda x: skate.get(square.remote(x)), range(8)))

    assert skate.get(spread.remote()) == [x * x for x in range(8)]


def test_a_thread_waits_for_a_call_that_another_thread_runs() -> None:
    entered, leave = threading.Event(), threading.Event()
    _events.update(entered=entered, leave=leave)

    @skate.remote
    class Busy:
        def first(self) -> str:
            from tests.engine.inline.test_threads import _events

            _events["entered"].set()
            _events["leave"].wait(30)
            return "first"

        def second(self) -> str:
            return "second"

    busy = Busy.remote()
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(skate.get(busy.first.remote())))
    thread.start()
    entered.wait(30)
    ref = busy.second.remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    leave.set()
    assert skate.get(ref) == "second"
    thread.join()
    assert results == ["first"]


@skate.remote
class Mixed:
    def __init__(self) -> None:
        self.value = 0

    async def increment(self) -> int:
        await asyncio.sleep(0)
        self.value += 1
        return self.value

    async def of(self, other: Any) -> Any:
        return await other.increment.remote()

    async def count(self, n: int) -> AsyncIterator[int]:
        for i in range(n):
            await asyncio.sleep(0)
            yield i


def test_threads_that_do_everything_at_once_all_get_their_answers() -> None:
    @skate.remote
    def add(x: int, y: int = 0) -> int:
        return x + y

    actors = [Mixed.remote() for _ in range(3)]

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(30):
            actor, other = chosen.sample(actors, 2)
            match chosen.randrange(5):
                case 0:
                    assert skate.get(add.remote(1, add.remote(2))) == 3
                case 1:
                    skate.get([actor.increment.remote() for _ in range(3)])
                case 2:
                    skate.get(actor.of.remote(other))
                case 3:
                    assert skate.get(list(actor.count.remote(3))) == [0, 1, 2]
                case 4:
                    actor.increment.remote().future().result(30)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(work, seed) for seed in range(6)]:
            done.result()


_events: dict[str, threading.Event] = {}
