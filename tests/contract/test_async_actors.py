"""Actors with coroutine methods: one event loop, many calls at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import skate
from tests.contract.support import Counter, Signal

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
class Room:
    """Callers meet in it."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.door = asyncio.Event()
        self.changed = asyncio.Condition()

    async def enter(self) -> str:
        async with self.changed:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.changed.notify_all()
        await self.door.wait()
        self.inside -= 1
        return "left"

    async def open_when(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.inside >= count)
        self.door.set()

    async def open(self) -> None:
        self.door.set()

    async def highest(self) -> int:
        return self.most


def test_a_coroutine_method_returns_its_value() -> None:
    @skate.remote
    class Adder:
        async def add(self, a: int, b: int = 1) -> int:
            await asyncio.sleep(0)
            return a + b

    adder = Adder.remote()
    assert skate.get([adder.add.remote(1), adder.add.remote(1, b=5)]) == [2, 6]


def test_calls_run_side_by_side_in_one_loop() -> None:
    room = Room.remote()
    refs = [room.enter.remote() for _ in range(10)]
    skate.get(room.open_when.remote(10))
    assert skate.get(refs) == ["left"] * 10


def test_at_least_a_hundred_calls_run_at_once_by_default() -> None:
    room = Room.remote()
    refs = [room.enter.remote() for _ in range(99)]
    skate.get(room.open_when.remote(99))
    assert skate.get(refs) == ["left"] * 99


def test_max_concurrency_limits_the_calls_at_once() -> None:
    @skate.remote(max_concurrency=2)
    class Limited:
        def __init__(self) -> None:
            self.inside = 0
            self.most = 0

        async def visit(self) -> int:
            self.inside += 1
            self.most = max(self.most, self.inside)
            for _ in range(5):
                await asyncio.sleep(0)
            self.inside -= 1
            return self.most

    limited = Limited.remote()
    assert max(skate.get([limited.visit.remote() for _ in range(20)])) <= 2


def test_a_method_awaits_refs() -> None:
    @skate.remote
    def one() -> int:
        return 1

    @skate.remote
    class Waiter:
        async def total(self) -> int:
            return sum(await asyncio.gather(*[one.remote() for _ in range(3)]))

    assert skate.get(Waiter.remote().total.remote()) == 3


def test_a_method_awaits_other_actors() -> None:
    counter = Counter.remote(5)

    @skate.remote
    class Client:
        async def read(self) -> int:
            return await counter.read.remote()

    assert skate.get(Client.remote().read.remote()) == 5


def test_an_awaiting_call_does_not_block_the_others() -> None:
    signal = Signal.remote()

    @skate.remote
    class Mixed:
        async def blocked(self) -> str:
            await signal.wait.remote()
            return "released"

        async def ping(self) -> str:
            return "pong"

    mixed = Mixed.remote()
    ref = mixed.blocked.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    assert skate.get(mixed.ping.remote()) == "pong"
    signal.send.remote()
    assert skate.get(ref) == "released"


def test_a_plain_method_of_an_async_actor_runs_in_its_loop() -> None:
    @skate.remote
    class Mixed:
        async def coroutine_thread(self) -> int:
            return threading.get_ident()

        def plain_thread(self) -> int:
            return threading.get_ident()

    mixed = Mixed.remote()
    a, b = skate.get([mixed.coroutine_thread.remote(), mixed.plain_thread.remote()])
    assert a == b


def test_the_error_of_a_coroutine_keeps_its_type() -> None:
    @skate.remote
    class Failing:
        async def fail(self) -> None:
            await asyncio.sleep(0)
            raise KeyError("async")

        async def ping(self) -> str:
            return "pong"

    failing = Failing.remote()
    with pytest.raises(KeyError, match="async"):
        skate.get(failing.fail.remote())
    assert skate.get(failing.ping.remote()) == "pong"


def test_a_coroutine_method_may_have_several_returns() -> None:
    @skate.remote
    class Pair:
        @skate.method(num_returns=2)
        async def both(self) -> tuple[int, int]:
            return 1, 2

    a, b = Pair.remote().both.remote()
    assert skate.get([a, b]) == [1, 2]


def test_the_task_id_belongs_to_the_call_in_each_coroutine() -> None:
    @skate.remote
    class Ids:
        def __init__(self) -> None:
            self.barrier = asyncio.Barrier(2)

        async def task_id(self) -> tuple[str, str]:
            before = skate.get_runtime_context().get_task_id()
            await self.barrier.wait()
            return before, skate.get_runtime_context().get_task_id()

    ids = Ids.remote()
    (a, a_again), (b, b_again) = skate.get([ids.task_id.remote(), ids.task_id.remote()])
    assert a == a_again
    assert b == b_again
    assert a != b


def test_exit_actor_works_in_a_coroutine() -> None:
    @skate.remote
    class Quitter:
        async def quit(self) -> None:
            skate.actor.exit_actor()

        async def ping(self) -> str:
            return "pong"

    quitter = Quitter.remote()
    assert skate.get(quitter.ping.remote()) == "pong"
    with pytest.raises(skate.exceptions.RayActorError):
        skate.get(quitter.quit.remote())
    with pytest.raises(skate.exceptions.RayActorError):
        skate.get(quitter.ping.remote())


def test_a_background_task_of_the_loop_keeps_running() -> None:
    @skate.remote
    class Background:
        def __init__(self) -> None:
            self.ticked = asyncio.Event()

        async def start(self) -> None:
            async def tick() -> None:
                await asyncio.sleep(0)
                self.ticked.set()

            self.task = asyncio.create_task(tick())

        async def wait(self) -> str:
            await self.ticked.wait()
            return "ticked"

    background = Background.remote()
    background.start.remote()
    assert skate.get(background.wait.remote()) == "ticked"


async def test_the_driver_awaits_many_calls_of_an_actor() -> None:
    counter = Counter.remote()
    values = await asyncio.gather(*[counter.increment.remote() for _ in range(20)])
    assert values == list(range(1, 21))


def test_killing_an_async_actor_fails_the_calls_in_flight() -> None:
    room = Room.remote()
    refs = [room.enter.remote() for _ in range(3)]
    skate.get(room.highest.remote())
    skate.kill(room)
    for ref in refs:
        with pytest.raises(skate.exceptions.RayActorError):
            skate.get(ref)


def test_get_inside_a_coroutine_still_returns_the_value() -> None:
    @skate.remote
    class Blocking:
        async def read(self, refs: list[Any]) -> Any:
            return skate.get(refs[0])

    assert skate.get(Blocking.remote().read.remote([skate.put(3)])) == 3


def test_a_thread_gets_a_value_while_the_event_loop_waits_for_the_thread() -> None:
    @skate.remote
    def double(x: int) -> int:
        return 2 * x

    @skate.remote(max_concurrency=3)
    class Blocking:
        def _in_a_thread(self, x: int) -> int:
            values: list[int] = []
            thread = threading.Thread(target=lambda: values.append(skate.get(double.remote(x))))
            thread.start()
            thread.join()
            return values[0]

        async def from_a_coroutine(self, x: int) -> int:
            return self._in_a_thread(x)

        def from_a_method(self, x: int) -> int:
            return self._in_a_thread(x)

    actor = Blocking.remote()
    assert skate.get([actor.from_a_coroutine.remote(i) for i in range(5)]) == [0, 2, 4, 6, 8]
    assert skate.get([actor.from_a_method.remote(i) for i in range(5)]) == [0, 2, 4, 6, 8]


@skate.remote(max_concurrency=2)
class Pairs:
    """Calls that leave in pairs: the second lets the first go."""

    def __init__(self) -> None:
        self.both = asyncio.Event()
        self.inside = 0
        self.left: set[int] = set()

    async def meet(self, number: int, *, nested: bool) -> None:
        self.inside += 1
        if self.inside == 2:
            self.both.set()
        else:
            # A nested wait takes the event loop several turns to come back from.
            await (asyncio.gather(self.both.wait()) if nested else self.both.wait())
            self.both.clear()
            self.inside = 0
        self.left.add(number)

    async def all_who_left(self) -> set[int]:
        return self.left


@pytest.mark.parametrize("nested", [False, True])
def test_a_call_that_is_awake_continues_before_a_waiting_call_starts(nested: bool) -> None:
    pairs = Pairs.remote()
    # Else a third call would come in before the first has left, and some would wait for a partner without end.
    skate.get([pairs.meet.remote(number, nested=nested) for number in range(8)])
    assert skate.get(pairs.all_who_left.remote()) == set(range(8))


def test_waiting_calls_start_although_another_call_is_never_idle() -> None:
    @skate.remote(max_concurrency=2)
    class Restless:
        def __init__(self) -> None:
            self.stopped = False

        async def spin(self) -> None:
            while not self.stopped:  # noqa: ASYNC110 - it keeps the loop busy
                await asyncio.sleep(0)

        async def ping(self) -> None:
            await asyncio.sleep(0)

        async def stop(self) -> None:
            self.stopped = True

    restless = Restless.remote()
    spinning = restless.spin.remote()
    skate.get([restless.ping.remote() for _ in range(4)])
    skate.get([restless.stop.remote(), spinning])


def test_an_asynchronous_constructor_is_awaited_before_the_first_call() -> None:
    @skate.remote
    class Client:
        async def __init__(self, signal: Any) -> None:
            await signal.wait.remote()
            self.state = "connected"

        def read(self) -> str:
            return self.state

    signal = Signal.remote()
    client = Client.remote(signal)
    state = client.read.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    skate.get(signal.send.remote())
    assert skate.get(state) == "connected"


def test_the_error_of_an_asynchronous_constructor_reaches_the_callers() -> None:
    @skate.remote
    class Broken:
        async def __init__(self) -> None:
            await asyncio.sleep(0)
            raise ValueError("no connection")

        async def read(self) -> None:
            return None

    with pytest.raises(skate.exceptions.ActorDiedError, match="no connection"):
        skate.get(Broken.remote().read.remote())


def test_an_actor_is_killed_while_its_asynchronous_constructor_waits() -> None:
    @skate.remote
    class Client:
        async def __init__(self, signal: Any) -> None:
            await signal.wait.remote()

        async def read(self) -> None:
            return None

    signal = Signal.remote()
    client = Client.remote(signal)
    reading = client.read.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    skate.kill(client)
    with pytest.raises(skate.exceptions.ActorDiedError):
        skate.get(reading)


def test_an_asynchronous_constructor_works_with_concurrency_groups() -> None:
    @skate.remote(concurrency_groups={"io": 1})
    class Client:
        async def __init__(self) -> None:
            await asyncio.sleep(0)
            self.state = "connected"

        @skate.method(concurrency_group="io")
        async def read(self) -> str:
            return self.state

    assert skate.get(Client.remote().read.remote()) == "connected"
