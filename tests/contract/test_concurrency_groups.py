"""Concurrency groups: methods of one actor with limits of their own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import skate
from tests.contract.support import EVENT_TIMEOUT_S, Signal

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote(concurrency_groups={"io": 2, "compute": 1})
class Threaded:
    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)

    @skate.method(concurrency_group="io")
    def meet(self) -> int:
        return self.barrier.wait(EVENT_TIMEOUT_S)

    @skate.method(concurrency_group="compute")
    def wait(self, signal: Any) -> str:
        skate.get(signal.wait.remote())
        return "released"

    def ping(self) -> str:
        return "pong"


@skate.remote(concurrency_groups={"io": 3, "compute": 1})
class Async:
    def __init__(self) -> None:
        self.barrier = asyncio.Barrier(3)
        self.inside = 0
        self.most = 0

    @skate.method(concurrency_group="io")
    async def meet(self) -> int:
        return await self.barrier.wait()

    @skate.method(concurrency_group="compute")
    async def alone(self) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        return self.most

    @skate.method(concurrency_group="compute")
    async def wait(self, signal: Any) -> str:
        await signal.wait.remote()
        return "released"

    async def ping(self) -> str:
        return "pong"


@pytest.fixture(params=[Threaded, Async], ids=["threaded", "async"])
def actor(request: pytest.FixtureRequest, engine: str) -> Any:
    return request.param.remote()


def test_a_group_runs_as_many_calls_as_its_limit_in_threads() -> None:
    actor = Threaded.remote()
    assert sorted(skate.get([actor.meet.remote() for _ in range(2)])) == [0, 1]


def test_a_group_runs_as_many_calls_as_its_limit_in_a_loop() -> None:
    actor = Async.remote()
    assert sorted(skate.get([actor.meet.remote() for _ in range(3)])) == [0, 1, 2]


def test_a_full_group_does_not_block_another(actor: Any) -> None:
    signal = Signal.remote()
    ref = actor.wait.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    assert skate.get(actor.ping.remote()) == "pong"
    skate.get(signal.send.remote())
    assert skate.get(ref) == "released"


def test_a_group_of_one_runs_one_call_at_a_time() -> None:
    actor = Async.remote()
    assert max(skate.get([actor.alone.remote() for _ in range(10)])) == 1


def test_options_move_a_call_to_another_group(actor: Any) -> None:
    signal = Signal.remote()
    ref = actor.wait.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    moved = actor.wait.options(concurrency_group="io").remote(signal)
    skate.get(signal.wait_for_waiters.remote(2))
    skate.get(signal.send.remote())
    assert skate.get([ref, moved]) == ["released", "released"]


def test_max_concurrency_is_the_limit_of_the_default_group() -> None:
    @skate.remote(concurrency_groups={"io": 1}, max_concurrency=2)
    class Both:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(2)

        def meet(self) -> int:
            return self.barrier.wait(EVENT_TIMEOUT_S)

    actor = Both.remote()
    assert sorted(skate.get([actor.meet.remote(), actor.meet.remote()])) == [0, 1]


def test_groups_belong_in_the_decorator_and_not_in_options() -> None:
    class Plain:
        pass

    with pytest.raises(ValueError, match="concurrency_groups"):
        skate.remote(Plain).options(concurrency_groups={"io": 2})


def test_calls_of_one_group_of_one_keep_their_order() -> None:
    @skate.remote(concurrency_groups={"one": 1})
    class Ordered:
        def __init__(self) -> None:
            self.seen: list[int] = []

        @skate.method(concurrency_group="one")
        def see(self, i: int) -> list[int]:
            self.seen.append(i)
            return self.seen

    actor = Ordered.remote()
    assert skate.get([actor.see.remote(i) for i in range(10)])[-1] == list(range(10))


def test_a_thread_of_a_group_is_used_again() -> None:
    @skate.remote(concurrency_groups={"one": 1})
    class Local:
        @skate.method(concurrency_group="one")
        def ident(self) -> int:
            return threading.get_ident()

    actor = Local.remote()
    assert len(set(skate.get([actor.ident.remote() for _ in range(5)]))) == 1


def test_an_unknown_group_is_an_error(actor: Any) -> None:
    with pytest.raises((ValueError, skate.exceptions.RayError), match="nowhere"):
        skate.get(actor.ping.options(concurrency_group="nowhere").remote())
