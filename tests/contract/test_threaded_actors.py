"""Actors with plain methods and max_concurrency above one: a pool of threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import skate
from tests.contract.support import EVENT_TIMEOUT_S, Counter, Signal

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote(max_concurrency=3)
class Meeting:
    def __init__(self) -> None:
        self.barrier = threading.Barrier(3)
        self.lock = threading.Lock()
        self.inside = 0
        self.most = 0

    def meet(self) -> int:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        index = self.barrier.wait(EVENT_TIMEOUT_S)
        with self.lock:
            self.inside -= 1
        return index

    def highest(self) -> int:
        return self.most

    def ping(self) -> str:
        return "pong"

    def fail(self) -> None:
        raise ValueError("in a thread")


def test_calls_run_side_by_side_in_threads() -> None:
    meeting = Meeting.remote()
    assert sorted(skate.get([meeting.meet.remote() for _ in range(3)])) == [0, 1, 2]


def test_max_concurrency_limits_the_threads() -> None:
    meeting = Meeting.remote()
    skate.get([meeting.meet.remote() for _ in range(9)])
    assert skate.get(meeting.highest.remote()) == 3


def test_options_set_max_concurrency() -> None:
    @skate.remote
    class Pair:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(2)

        def meet(self) -> int:
            return self.barrier.wait(EVENT_TIMEOUT_S)

    pair = Pair.options(max_concurrency=2).remote()
    assert sorted(skate.get([pair.meet.remote(), pair.meet.remote()])) == [0, 1]


def test_one_call_at_a_time_is_the_default() -> None:
    @skate.remote
    class Single:
        def __init__(self) -> None:
            self.busy = threading.Lock()

        def work(self) -> bool:
            if not self.busy.acquire(blocking=False):
                return False
            try:
                threading.Event().wait(0.001)
                return True
            finally:
                self.busy.release()

    single = Single.remote()
    assert all(skate.get([single.work.remote() for _ in range(10)]))


def test_a_blocked_thread_does_not_block_the_others() -> None:
    signal = Signal.remote()

    @skate.remote(max_concurrency=2)
    class Mixed:
        def blocked(self) -> str:
            skate.get(signal.wait.remote())
            return "released"

        def ping(self) -> str:
            return "pong"

    mixed = Mixed.remote()
    ref = mixed.blocked.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    assert skate.get(mixed.ping.remote()) == "pong"
    signal.send.remote()
    assert skate.get(ref) == "released"


def test_a_thread_calls_back_into_its_own_actor() -> None:
    @skate.remote(max_concurrency=2)
    class Reentrant:
        def outer(self, me: Any) -> str:
            return skate.get(me.inner.remote())

        def inner(self) -> str:
            return "inner"

    actor = Reentrant.remote()
    assert skate.get(actor.outer.remote(actor)) == "inner"


def test_an_error_in_a_thread_keeps_its_type() -> None:
    meeting = Meeting.remote()
    with pytest.raises(ValueError, match="in a thread"):
        skate.get(meeting.fail.remote())
    assert skate.get(meeting.ping.remote()) == "pong"


def test_threads_submit_tasks_at_the_same_time() -> None:
    @skate.remote
    def double(x: int) -> int:
        return 2 * x

    @skate.remote(max_concurrency=4)
    class Submitter:
        def run(self, x: int) -> int:
            return skate.get(double.remote(x))

    submitter = Submitter.remote()
    assert skate.get([submitter.run.remote(i) for i in range(12)]) == [2 * i for i in range(12)]


def test_each_thread_sees_its_own_task_id() -> None:
    @skate.remote(max_concurrency=2)
    class Ids:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(2)

        def task_id(self) -> str:
            self.barrier.wait(EVENT_TIMEOUT_S)
            return skate.get_runtime_context().get_task_id()

    ids = Ids.remote()
    assert len(set(skate.get([ids.task_id.remote(), ids.task_id.remote()]))) == 2


def test_a_thread_started_by_user_code_uses_the_api() -> None:
    counter = Counter.remote()

    @skate.remote
    class Starter:
        def run(self) -> list[int]:
            results: list[int] = []

            def work() -> None:
                results.append(skate.get(counter.increment.remote()))

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sorted(results)

    assert skate.get(Starter.remote().run.remote()) == [1, 2, 3]


def test_killing_a_threaded_actor_fails_the_calls_in_flight() -> None:
    signal = Signal.remote()

    @skate.remote(max_concurrency=2)
    class Blocked:
        def wait(self) -> None:
            skate.get(signal.wait.remote())

    blocked = Blocked.remote()
    refs = [blocked.wait.remote() for _ in range(2)]
    skate.get(signal.wait_for_waiters.remote(2))
    skate.kill(blocked)
    for ref in refs:
        with pytest.raises(skate.exceptions.RayActorError):
            skate.get(ref)


def test_exit_actor_works_in_a_thread() -> None:
    @skate.remote(max_concurrency=2)
    class Quitter:
        def quit(self) -> None:
            skate.actor.exit_actor()

    quitter = Quitter.remote()
    with pytest.raises(skate.exceptions.RayActorError):
        skate.get(quitter.quit.remote())
