"""Waits that can never end raise an error that names what was awaited."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import skate
from skate.exceptions import DeadlockError, GetTimeoutError

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote(num_cpus=0)
class Gate:
    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def open(self) -> None:
        self.opened.set()

    async def passed(self) -> str:
        await self.opened.wait()
        return "passed"


def test_get_says_where_the_coroutine_stands() -> None:
    gate = Gate.remote()
    with pytest.raises(DeadlockError, match=r"(?s)Gate.passed waits at .*test_deadlocks.py:\d+"):
        skate.get(gate.passed.remote())


def test_wait_raises_too() -> None:
    gate = Gate.remote()
    with pytest.raises(DeadlockError, match="wait"):
        skate.wait([gate.passed.remote()])


def test_a_task_that_waits_for_its_callers_next_step_says_so() -> None:
    gate = Gate.remote()

    @skate.remote
    def task() -> str:
        return str(skate.get(gate.passed.remote()))

    ref = task.remote()
    gate.open.remote()
    with pytest.raises(DeadlockError, match=r"after `\.remote"):
        skate.get(ref)


def test_a_deadlock_is_not_retried() -> None:
    gate = Gate.remote()

    @skate.remote(max_retries=-1, retry_exceptions=True)
    def task() -> Any:
        return skate.get(gate.passed.remote())

    with pytest.raises(DeadlockError):
        skate.get(task.remote())


def test_what_is_waited_for_may_come_later_where_nothing_waits_on_the_stack() -> None:
    @skate.remote
    def task(value: str) -> str:
        return value.upper()

    gate = Gate.remote()
    ref = task.remote(gate.passed.remote())
    assert skate.wait([ref], timeout=0) == ([], [ref])
    gate.open.remote()
    assert skate.get(ref) == "PASSED"


def test_a_timeout_is_kept_though_nothing_can_come() -> None:
    ref = Gate.remote().passed.remote()
    before = time.monotonic()
    with pytest.raises(GetTimeoutError):
        skate.get(ref, timeout=0.05)
    assert time.monotonic() - before >= 0.05


def test_an_actor_that_waits_for_its_own_next_call_is_told() -> None:
    @skate.remote
    class Actor:
        def outer(self) -> Any:
            return skate.get(skate.get_runtime_context().current_actor.inner.remote())

        def inner(self) -> int:
            return 1

    actor = Actor.remote()
    with pytest.raises(DeadlockError, match=r"Actor.inner waits until the actor is done with Actor.outer"):
        skate.get(actor.outer.remote())
    assert skate.get(actor.inner.remote()) == 1


def test_a_coroutine_that_blocks_its_own_loop_is_told() -> None:
    @skate.remote
    class Actor:
        async def outer(self) -> Any:
            return skate.get(skate.get_runtime_context().current_actor.inner.remote())

        async def inner(self) -> int:
            return 1

    actor = Actor.remote()
    with pytest.raises(DeadlockError):
        skate.get(actor.outer.remote())
    assert skate.get(actor.inner.remote()) == 1


def test_a_call_that_waited_in_vain_for_its_argument_runs_when_it_comes() -> None:
    @skate.remote
    class Actor:
        def shout(self, text: str) -> str:
            return text.upper()

    gate, actor = Gate.remote(), Actor.remote()
    ref = actor.shout.remote(gate.passed.remote())
    with pytest.raises(
        DeadlockError, match=r"(?s)call Actor.shout waits for its arguments.*Gate.passed waits"
    ):
        skate.get(ref)
    gate.open.remote()
    assert skate.get(ref) == "PASSED"


def test_a_task_that_waits_for_resources_names_their_holder() -> None:
    @skate.remote
    class Holder:
        def ping(self) -> None: ...

    @skate.remote
    def task() -> int:
        return 1

    holder = Holder.options(num_cpus=4).remote()
    skate.get(holder.ping.remote())
    ref = task.remote()
    with pytest.raises(DeadlockError, match=r"(?s)task task waits for resources.*held by actor Holder"):
        skate.get(ref)
    skate.kill(holder)
    assert skate.get(ref) == 1


def test_a_group_that_cannot_be_reserved_now_is_told() -> None:
    first = skate.util.placement_group([{"CPU": 4}])
    second = skate.util.placement_group([{"CPU": 1}])
    assert first.wait(0)
    assert not second.wait(0)
    with pytest.raises(DeadlockError):
        skate.get(second.ready())
    skate.util.remove_placement_group(first)
    assert second.wait(0)


def test_the_next_item_of_a_stream_that_cannot_start_is_told() -> None:
    @skate.remote
    def echo(value: str) -> Any:
        yield value

    gate = Gate.remote()
    stream = echo.remote(gate.passed.remote())
    with pytest.raises(DeadlockError, match="next item of echo"):
        next(stream)
    gate.open.remote()
    assert skate.get(next(stream)) == "passed"


def test_another_thread_may_still_help() -> None:
    gate = Gate.remote()
    ref = gate.passed.remote()
    waiting = threading.Event()

    def help_out() -> None:
        waiting.wait()
        gate.open.remote()

    thread = threading.Thread(target=help_out)
    thread.start()
    waiting.set()
    assert skate.get(ref) == "passed"
    thread.join()


def test_threads_that_have_nothing_to_do_cannot_help() -> None:
    never = threading.Event()
    thread = threading.Thread(target=never.wait)
    thread.start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with pytest.raises(DeadlockError):
            skate.get(Gate.remote().passed.remote())
    never.set()
    thread.join()


def test_a_job_in_a_thread_of_the_loop_may_still_help() -> None:
    @skate.remote
    class Actor:
        async def work(self) -> str:
            return await asyncio.to_thread(lambda: "worked")

    assert skate.get(Actor.remote().work.remote()) == "worked"
    with pytest.raises(DeadlockError):  # the idle thread that is left does not count
        skate.get(Gate.remote().passed.remote())
