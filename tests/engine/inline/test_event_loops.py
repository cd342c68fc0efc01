"""Loops in loops: the user's, the actors', and `get` in the middle of any of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import queue
import threading
import time
from typing import Any

import pytest

import skate
from skate._engine.inline.engine import InlineEngine

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
class Slow:
    """Answers after a moment, one call beside the other."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def echo(self, value: Any, seconds: float = 0.01) -> Any:
        await asyncio.sleep(seconds)
        return value

    async def same_loop(self) -> bool:
        return asyncio.get_running_loop() is self.loop


def test_the_constructor_and_the_calls_share_a_loop() -> None:
    assert skate.get(Slow.remote().same_loop.remote())


def test_calls_pass_each_other() -> None:
    slow = Slow.remote()
    refs = [slow.echo.remote("long", 0.05), slow.echo.remote("short", 0.01)]
    ready, _ = skate.wait(refs)
    assert skate.get(ready) == ["short"]
    assert skate.get(refs) == ["long", "short"]


async def test_awaiting_drives_the_actors() -> None:
    slow = Slow.remote()
    assert await slow.echo.remote(1) == 1
    assert await asyncio.gather(*[slow.echo.remote(i) for i in range(5)]) == [0, 1, 2, 3, 4]


async def test_awaiting_lets_the_users_loop_go_on() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    assert await Slow.remote().echo.remote("slept", 0.05) == "slept"
    ticking.cancel()
    assert ticks > 1


async def test_get_works_inside_the_users_loop() -> None:
    mine = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert skate.get(Slow.remote().echo.remote(2)) == 2
    assert asyncio.get_running_loop() is mine
    assert asyncio.current_task() is task


async def test_a_task_may_run_a_loop_of_its_own_inside_the_users() -> None:
    @skate.remote
    def runs_a_loop() -> str:
        async def main() -> str:
            await asyncio.sleep(0)
            return "ran"

        return asyncio.run(main())

    assert skate.get(runs_a_loop.remote()) == "ran"
    assert await runs_a_loop.remote() == "ran"


def test_get_works_inside_a_coroutine_of_an_actor() -> None:
    @skate.remote
    class Outer:
        async def ask(self, slow: Any) -> Any:
            mine, task = asyncio.get_running_loop(), asyncio.current_task()
            value = skate.get(slow.echo.remote("blocking"))
            assert asyncio.get_running_loop() is mine
            assert asyncio.current_task() is task
            return value, await slow.echo.remote("awaiting")

    assert skate.get(Outer.remote().ask.remote(Slow.remote())) == ("blocking", "awaiting")


def test_loops_run_in_loops_many_levels_deep() -> None:
    @skate.remote
    class Level:
        async def descend(self, depth: int) -> int:
            if depth == 0:
                return 0
            return 1 + int(skate.get(Level.remote().descend.remote(depth - 1)))

    assert skate.get(Level.remote().descend.remote(5)) == 5


def test_a_blocked_coroutine_blocks_its_own_loop_only() -> None:
    @skate.remote
    class Blocker:
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def background(self) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                self.seen.append("background")

        async def block(self, slow: Any) -> list[str]:
            before = list(self.seen)
            skate.get(slow.echo.remote(1))
            assert self.seen == before
            return before

    blocker = Blocker.remote()
    blocker.background.remote()
    skate.get(blocker.block.remote(Slow.remote()))


def test_a_coroutine_that_never_pauses_does_not_keep_remote_from_returning() -> None:
    @skate.remote
    class Spinner:
        def __init__(self) -> None:
            self.going = True

        async def spin(self) -> str:
            while self.going:  # noqa: ASYNC110 - that is what it is about
                await asyncio.sleep(0)
            return "stopped"

        async def stop(self) -> None:
            self.going = False

    spinner = Spinner.remote()
    ref = spinner.spin.remote()
    assert skate.wait([ref], timeout=0) == ([], [ref])
    spinner.stop.remote()
    assert skate.get(ref) == "stopped"


def test_timers_that_passed_while_nobody_waited_have_run_at_the_next_look() -> None:
    ref = Slow.remote().echo.remote("there", 0.001)
    time.sleep(0.01)
    assert skate.get(ref, timeout=0) == "there"


def test_an_actor_may_use_the_network() -> None:
    @skate.remote
    class Server:
        async def start(self) -> int:
            self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
            return int(self.server.sockets[0].getsockname()[1])

        async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()

        async def stop(self) -> None:
            self.server.close()

    @skate.remote
    class Client:
        async def ask(self, port: int, text: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{text}\n".encode())
            answer = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return answer.decode().strip()

    server = Server.remote()
    port = skate.get(server.start.remote())
    assert skate.get(Client.remote().ask.remote(port, "hello")) == "HELLO"
    skate.get(server.stop.remote())


def test_a_call_cancelled_before_it_began_says_so() -> None:
    @skate.remote(max_concurrency=1)
    class One:
        async def sleep(self) -> None:
            await asyncio.sleep(60)

    one = One.remote()
    first, second = one.sleep.remote(), one.sleep.remote()
    skate.cancel(second)
    skate.cancel(first)
    for ref in (first, second):
        with pytest.raises(skate.exceptions.TaskCancelledError):
            skate.get(ref)


def test_a_future_is_filled_by_a_thread_that_ends_with_it() -> None:
    future = Slow.remote().echo.remote("later", 0.02).future()
    assert future.result(10) == "later"
    assert not [t for t in threading.enumerate() if t.name.startswith("skate-inline-driver") and _lives(t)]


def _lives(thread: threading.Thread) -> bool:
    thread.join(5)
    return thread.is_alive()


def test_futures_may_be_waited_for_together() -> None:
    slow = Slow.remote()
    futures = [slow.echo.remote(i).future() for i in range(3)]
    assert sorted(f.result() for f in concurrent.futures.as_completed(futures, 30)) == [0, 1, 2]


class Heard(logging.Handler):
    """Waits for a line of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put(self.format(record))


def test_a_callback_that_fails_disturbs_nobody() -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("of the callback")

    heard = Heard()
    logging.getLogger("skate").addHandler(heard)
    try:
        ref = Slow.remote().echo.remote(1)
        ref._on_completed(fail)
        assert skate.get(ref) == 1
        assert "of the callback" in heard.lines.get(timeout=30)
    finally:
        logging.getLogger("skate").removeHandler(heard)


def test_a_stray_exit_in_a_coroutine_ends_the_actor() -> None:
    @skate.remote
    class Actor:
        async def start(self) -> None:
            async def leave() -> None:
                raise SystemExit(3)

            self.task = asyncio.create_task(leave())

        async def ping(self) -> str:
            return "pong"

    actor = Actor.remote()
    skate.get(actor.start.remote())
    with pytest.raises(skate.exceptions.ActorDiedError):
        skate.get(actor.ping.remote())


def test_shutdown_ends_what_the_users_loop_awaits(engine: InlineEngine) -> None:
    async def main() -> None:
        awaiting = asyncio.ensure_future(_value(Slow.remote().echo.remote(1, 60)))
        await asyncio.sleep(0)
        skate.shutdown()
        with pytest.raises(skate.exceptions.ActorDiedError):
            await awaiting

    asyncio.run(main())
    assert not engine.progress.loop_drivers


async def _value(ref: Any) -> Any:
    return await ref


def test_a_loop_that_is_closed_while_it_awaits_is_forgotten(engine: InlineEngine) -> None:
    slow = Slow.remote()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_value(ref), 0.001)

    ref = slow.echo.remote("later", 0.05)
    asyncio.run(give_up())
    assert skate.get(ref) == "later"
    assert not engine.progress.loop_drivers
