"""Faults: dying workers, exits, forks, unpicklable errors, and very many or very large things."""

from __future__ import annotations

import os
import signal as signals
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skate
from skate.exceptions import RayActorError, RayError, RayTaskError, WorkerCrashedError
from tests.contract.support import Counter, Log, Signal, eventually
from tests.plugins.sessions import Start

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
def echo(value: Any) -> Any:
    return value


def test_a_worker_killed_from_outside_fails_its_task() -> None:
    log, signal = Log.remote(), Signal.remote()

    @skate.remote(max_retries=0)
    def blocked() -> None:
        skate.get(log.append.remote(os.getpid()))
        skate.get(signal.wait.remote())

    ref = blocked.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    (pid,) = skate.get(log.items.remote())
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(WorkerCrashedError):
        skate.get(ref)


def test_a_worker_killed_from_outside_is_retried() -> None:
    log, signal = Log.remote(), Signal.remote()

    @skate.remote(max_retries=1)
    def blocked() -> str:
        skate.get(log.append.remote(os.getpid()))
        skate.get(signal.wait.remote())
        return "survived"

    ref = blocked.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    os.kill(skate.get(log.items.remote())[0], signals.SIGKILL)
    skate.get(signal.wait_for_waiters.remote(2))
    skate.get(signal.send.remote())
    assert skate.get(ref) == "survived"


def test_the_session_goes_on_after_many_crashes() -> None:
    @skate.remote(max_retries=0)
    def crash() -> None:
        os._exit(1)

    for ref in [crash.remote() for _ in range(6)]:
        with pytest.raises(WorkerCrashedError):
            skate.get(ref)
    assert skate.get([echo.remote(i) for i in range(10)]) == list(range(10))


@pytest.mark.parametrize("code", [0, 3])
def test_a_task_that_exits_the_interpreter_fails(code: int) -> None:
    @skate.remote(max_retries=0)
    def leave() -> None:
        sys.exit(code)

    with pytest.raises((WorkerCrashedError, SystemExit, RayTaskError)):
        skate.get(leave.remote())
    assert skate.get(echo.remote(1)) == 1


def test_an_actor_method_that_exits_the_interpreter_ends_the_actor() -> None:
    @skate.remote
    class Leaver:
        def leave(self) -> None:
            sys.exit(0)

        def ping(self) -> str:
            return "pong"

    leaver = Leaver.remote()
    with pytest.raises(RayActorError):
        skate.get(leaver.leave.remote())
    with pytest.raises(RayActorError):
        eventually(lambda: skate.get(leaver.ping.remote()) is None)


def test_a_segmentation_fault_is_a_worker_crash() -> None:
    @skate.remote(max_retries=0)
    def crash() -> None:
        os.kill(os.getpid(), signals.SIGSEGV)

    with pytest.raises(WorkerCrashedError):
        skate.get(crash.remote())


def test_keyboard_interrupt_in_a_task_is_an_error_of_that_task() -> None:
    @skate.remote(max_retries=0)
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises((RayError, KeyboardInterrupt)):
        skate.get(interrupt.remote())
    assert skate.get(echo.remote(1)) == 1


def test_an_exception_that_cannot_be_pickled_keeps_its_text() -> None:
    class Unpicklable(Exception):
        def __init__(self, message: str) -> None:
            super().__init__(message)
            self.lock = threading.Lock()

    @skate.remote(max_retries=0)
    def fail() -> None:
        raise Unpicklable("what happened")

    with pytest.raises(RayTaskError, match="what happened"):
        skate.get(fail.remote())


def test_an_exception_that_cannot_be_pickled_leaves_an_actor_alive() -> None:
    @skate.remote
    class Failing:
        def fail(self) -> None:
            error = ValueError("what happened")
            error.lock = threading.Lock()  # type: ignore[attr-defined]
            raise error

        def ping(self) -> str:
            return "pong"

    failing = Failing.remote()
    with pytest.raises(RayTaskError, match="what happened"):
        skate.get(failing.fail.remote())
    assert skate.get(failing.ping.remote()) == "pong"


def test_a_task_that_forks_returns_its_value() -> None:
    @skate.remote
    def forks() -> tuple[str, int]:
        child = os.fork()
        if child == 0:
            os._exit(5)
        _, status = os.waitpid(child, 0)
        return "parent", os.waitstatus_to_exitcode(status)

    assert skate.get(forks.remote()) == ("parent", 5)
    assert skate.get(echo.remote(1)) == 1


def test_a_task_that_uses_multiprocessing_returns_its_value() -> None:
    @skate.remote
    def pooled() -> list[int]:
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2, -3])

    assert skate.get(pooled.remote()) == [1, 2, 3]


def test_a_fork_of_the_driver_leaves_the_session_alone() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert skate.get(echo.remote(1)) == 1


def test_a_task_that_starts_a_subprocess_returns_its_output() -> None:
    @skate.remote
    def run() -> str:
        import subprocess

        return subprocess.run([sys.executable, "-c", "print('out')"], capture_output=True, text=True).stdout

    assert skate.get(run.remote()).strip() == "out"


def test_ten_thousand_tasks_at_once_all_return() -> None:
    @skate.remote
    def square(x: int) -> int:
        return x * x

    assert sum(skate.get([square.remote(i) for i in range(10_000)])) == sum(i * i for i in range(10_000))


def test_ten_thousand_calls_of_one_actor_all_return() -> None:
    counter = Counter.remote()
    refs = [counter.increment.remote() for _ in range(10_000)]
    assert skate.get(refs[-1]) == 10_000
    assert skate.get(refs) == list(range(1, 10_001))


def test_a_hundred_actors_at_once_all_answer() -> None:
    counters = [Counter.remote(i) for i in range(100)]
    assert skate.get([counter.read.remote() for counter in counters]) == list(range(100))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_thousand_actors_all_answer() -> None:
    counters = [Counter.remote(i) for i in range(1000)]
    assert skate.get([counter.read.remote() for counter in counters]) == list(range(1000))


def test_a_deep_recursion_of_nested_tasks_returns() -> None:
    @skate.remote
    def descend(depth: int) -> int:
        return 0 if depth == 0 else 1 + skate.get(descend.remote(depth - 1))

    assert skate.get(descend.remote(30)) == 30


def test_endless_python_recursion_is_a_recursion_error() -> None:
    @skate.remote(max_retries=0)
    def endless(n: int) -> int:
        return endless_body(n)

    def endless_body(n: int) -> int:
        return 1 + endless_body(n + 1)

    with pytest.raises(RecursionError):
        skate.get(endless.remote(0))
    assert skate.get(echo.remote(1)) == 1


def test_a_deeply_nested_value_makes_the_round_trip_or_says_why() -> None:
    value: Any = None
    for _ in range(200):
        value = [value]
    assert skate.get(echo.remote(value)) == value


def test_a_long_chain_of_dependent_tasks_returns() -> None:
    @skate.remote
    def plus_one(x: int) -> int:
        return x + 1

    ref = skate.put(0)
    for _ in range(500):
        ref = plus_one.remote(ref)
    assert skate.get(ref) == 500


def test_a_task_with_a_thousand_arguments_returns() -> None:
    @skate.remote
    def total(*values: int) -> int:
        return sum(values)

    assert skate.get(total.remote(*[echo.remote(i) for i in range(1000)])) == 499500


def test_a_hundred_megabyte_argument_arrives_whole() -> None:
    @skate.remote
    def check(array: Any) -> tuple[int, int]:
        return array.size, int(array[-1])

    array = np.zeros(100_000_000, dtype=np.uint8)
    array[-1] = 7
    assert skate.get(check.remote(array)) == (100_000_000, 7)


@pytest.mark.slow
def test_a_gigabyte_argument_arrives_whole(fresh: Start) -> None:
    fresh(object_store_memory=1_500_000_000)

    @skate.remote
    def check(array: Any) -> tuple[int, int]:
        return array.size, int(array[-1])

    array = np.zeros(1_000_000_000, dtype=np.uint8)
    array[-1] = 7
    assert skate.get(check.remote(array)) == (1_000_000_000, 7)


def test_a_task_that_closes_every_descriptor_does_not_hang_the_session() -> None:
    @skate.remote(max_retries=0)
    def close_all() -> str:
        os.closerange(3, 256)
        return "closed"

    try:
        skate.get(close_all.remote())
    except RayError:
        pass  # Its worker is beyond help; the others are not.
    assert skate.get(echo.remote(1)) == 1


def test_a_worker_that_closes_its_descriptors_and_runs_on_is_ended() -> None:
    @skate.remote(max_retries=0)
    def close_all_and_wait() -> None:
        os.closerange(3, 256)
        signals.pause()

    with pytest.raises(WorkerCrashedError):
        skate.get(close_all_and_wait.remote())
    assert skate.get(echo.remote(1)) == 1


def test_a_task_that_changes_folder_and_environment_does_not_disturb_the_driver() -> None:
    @skate.remote(max_calls=1)
    def mess_up() -> str:
        os.chdir("/")
        os.environ["MESSED_UP"] = "1"
        return os.getcwd()

    before = os.getcwd()
    assert skate.get(mess_up.remote()) == "/"
    assert os.getcwd() == before
    assert "MESSED_UP" not in os.environ


def test_a_task_that_leaves_a_thread_running_returns(tmp_path: Path) -> None:
    @skate.remote
    def leave_thread(gate: str) -> str:
        threading.Thread(target=lambda: open(gate).close(), daemon=True).start()
        return "returned"

    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    assert skate.get(leave_thread.remote(gate)) == "returned"
    open(gate, "w").close()  # lets the thread end


def test_output_of_any_kind_does_not_disturb_a_task() -> None:
    @skate.remote
    def noisy() -> str:
        print("x" * 100_000)
        os.write(1, b"\xff\xfe not text \x00\n")
        sys.stderr.write("no newline at the end")
        return "done"

    assert skate.get(noisy.remote()) == "done"


def test_the_producer_of_a_large_object_may_die_afterwards() -> None:
    @skate.remote
    class Producer:
        def make(self) -> Any:
            return [skate.put(np.ones(1_000_000))]

        def pid(self) -> int:
            return os.getpid()

    producer = Producer.remote()
    (ref,) = skate.get(producer.make.remote())
    skate.wait([ref])
    array = skate.get(ref)
    os.kill(skate.get(producer.pid.remote()), signals.SIGKILL)
    assert array.sum() == 1_000_000
