"""Waits that can never end raise DeadlockError; waits that can end never do."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import skate
from skate.exceptions import ActorDiedError, DeadlockError, GetTimeoutError
from skate.util import placement_group, remove_placement_group
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def no_alarm() -> Iterator[None]:
    """Stop the timer signal by which a test times out: it could end a wait, which so is no deadlock."""
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, left, interval)


@skate.remote
def one() -> int:
    return 1


@skate.remote(resources={"x": 1}, num_cpus=0)
def needs_x() -> int:
    return 1


@skate.remote(resources={"x": 1}, num_cpus=0)
def holds_x_and_waits() -> int:
    return skate.get(needs_x.remote())


@skate.remote
class Polite:
    def after_you(self, other: Any, me: Any) -> int:
        (ready,), _ = skate.wait([other.no_after_you.remote(me)])
        return skate.get(ready)

    def no_after_you(self, other: Any) -> int:
        return skate.get(other.now.remote())

    def now(self) -> int:
        return 1


@skate.remote(max_concurrency=1)
class PoliteCoroutines:
    async def after_you(self, other: Any, me: Any) -> int:
        return await other.no_after_you.remote(me)

    async def no_after_you(self, other: Any) -> int:
        return await other.now.remote()

    async def now(self) -> int:
        return 1


# ------------------------------------------------------------ deadlocks


def test_a_task_that_waits_for_a_resource_it_holds_is_reported(fresh: Start) -> None:
    fresh(resources={"x": 1})
    with pytest.raises(DeadlockError, match=r"(?s)needs_x.*x: 1|needs_x.*'x': 1"):
        skate.get(holds_x_and_waits.remote())
    assert skate.get(needs_x.remote()) == 1  # the resource is free again


def test_an_actor_that_holds_all_cpus_and_waits_for_a_task_is_reported(fresh: Start) -> None:
    fresh(num_cpus=1)

    @skate.remote(num_cpus=1)
    class Greedy:
        def work(self) -> int:
            return skate.get(one.remote())

    greedy = Greedy.remote()
    with pytest.raises(DeadlockError, match=r"(?s)task one.*Greedy.*holds"):
        skate.get(greedy.work.remote())


def test_actors_that_need_more_cpus_than_their_owners_leave_are_reported(fresh: Start) -> None:
    fresh(num_cpus=2)

    @skate.remote(num_cpus=1)
    class Leaf:
        def fit(self) -> int:
            return 1

    @skate.remote(num_cpus=1)
    class Tree:
        def __init__(self) -> None:
            self.leaves = [Leaf.remote() for _ in range(3)]

        def fit(self) -> list[int]:
            return skate.get([leaf.fit.remote() for leaf in self.leaves])

    trees = [Tree.remote(), Tree.remote()]
    with pytest.raises(DeadlockError, match="Leaf"):
        skate.get([tree.fit.remote() for tree in trees])


def test_a_cycle_through_wait_is_reported() -> None:
    a, b = Polite.remote(), Polite.remote()
    with pytest.raises(DeadlockError, match="Polite"):
        skate.get(a.after_you.remote(b, a))


def test_a_cycle_of_coroutines_is_reported() -> None:
    a, b = PoliteCoroutines.remote(), PoliteCoroutines.remote()
    with pytest.raises(DeadlockError, match="PoliteCoroutines"):
        skate.get(a.after_you.remote(b, a))


def test_a_cycle_through_a_task_is_reported() -> None:
    @skate.remote
    def through(actors: list[Any]) -> int:
        return skate.get(actors[0].now.remote())

    @skate.remote
    class Caller:
        def start(self, me: Any) -> int:
            return skate.get(through.remote([me]))

        def now(self) -> int:
            return 1

    caller = Caller.remote()
    with pytest.raises(DeadlockError, match="Caller"):
        skate.get(caller.start.remote(caller))


def test_a_constructor_that_calls_its_own_actor_is_reported() -> None:
    @skate.remote
    class Eager:
        def __init__(self) -> None:
            self.value = skate.get(skate.get_actor("eager").give.remote())

        def give(self) -> int:
            return 1

    eager = Eager.options(name="eager").remote()
    with pytest.raises(ActorDiedError, match="DeadlockError"):
        skate.get(eager.give.remote())


@pytest.mark.usefixtures("no_alarm")
def test_a_second_placement_group_that_its_owner_waits_for_is_reported(fresh: Start) -> None:
    fresh(num_cpus=2)
    first, second = placement_group([{"CPU": 2}]), placement_group([{"CPU": 1}])
    skate.get(first.ready())
    with pytest.raises(DeadlockError, match=r"(?s)placement group.*holds"):
        skate.get(second.ready())
    with pytest.raises(DeadlockError, match=r"(?s)placement group.*holds"):
        skate.wait([second.ready()])
    remove_placement_group(first)
    assert skate.get(second.ready()) is not None


# ------------------------------------------------------------ what is none


def test_a_get_with_a_timeout_times_out(fresh: Start) -> None:
    fresh(resources={"x": 1})

    @skate.remote(resources={"x": 1}, num_cpus=0)
    def patient() -> str:
        try:
            skate.get(needs_x.remote(), timeout=3)
        except GetTimeoutError:
            return "timed out"
        return "returned"

    assert skate.get(patient.remote()) == "timed out"


def test_a_wait_that_another_thread_ends_is_none(fresh: Start) -> None:
    fresh(resources={"x": 1})

    @skate.remote(resources={"x": 1}, num_cpus=0)
    class Holder:
        def hold(self) -> int:
            return 1

    holder = Holder.remote()
    assert skate.get(holder.hold.remote()) == 1
    timer = threading.Timer(3, skate.kill, [holder])
    timer.start()
    assert skate.get(needs_x.remote()) == 1
    timer.join()


def test_a_wait_that_a_coroutine_ends_is_none() -> None:
    @skate.remote
    class Meeting:
        def __init__(self) -> None:
            self.over = asyncio.Event()

        async def wait(self) -> int:
            await self.over.wait()
            return 1

        async def end_later(self) -> None:
            await asyncio.sleep(3)
            self.over.set()

    meeting = Meeting.remote()
    ended = meeting.end_later.remote()
    assert skate.get(meeting.wait.remote()) == 1
    skate.get(ended)


def test_an_actor_with_room_for_a_second_call_may_call_itself() -> None:
    @skate.remote(max_concurrency=2)
    class Recursive:
        def start(self, me: Any) -> int:
            return skate.get(me.later.remote())

        def later(self) -> int:
            threading.Event().wait(2)
            return 1

    recursive = Recursive.remote()
    assert skate.get(recursive.start.remote(recursive)) == 1


def test_a_long_chain_of_tasks_that_wait_for_each_other_returns() -> None:
    @skate.remote
    def nested(depth: int) -> int:
        if not depth:
            threading.Event().wait(2)
            return 0
        return skate.get(nested.remote(depth - 1)) + 1

    assert skate.get(nested.remote(8)) == 8
