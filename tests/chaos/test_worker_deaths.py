"""A worker that dies while it works: errors that give the cause, retries, restarts, and never a hang."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate import exceptions
from tests.chaos import attacks
from tests.chaos.arena import eventually
from tests.chaos.mailbox import Mailbox, tell
from tests.conftest import LeakWatch

LARGE = 300_000


@pytest.fixture(scope="module", autouse=True)
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=4):
        yield


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[Mailbox]:
    mailbox = Mailbox(tmp_path / "mailbox")
    yield mailbox
    mailbox.close()


def exit_with_code() -> None:
    sys.exit(3)


def exit_at_once() -> None:
    os._exit(4)


def exit_with_text() -> None:
    sys.exit("I have had enough")


def abort() -> None:
    os.abort()


def read_nowhere() -> None:
    ctypes.string_at(0)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


WAYS_TO_DIE: dict[str, tuple[Callable[[], None], int | None, int | None]] = {
    "sys.exit": (exit_with_code, 3, None),
    "sys.exit with a text": (exit_with_text, 1, None),
    "os._exit": (exit_at_once, 4, None),
    "os.abort": (abort, None, signal.SIGABRT),
    "a segmentation fault": (read_nowhere, None, signal.SIGSEGV),
    "kill -9": (kill_myself, None, signal.SIGKILL),
}
dies = pytest.mark.parametrize(("die", "code", "number"), WAYS_TO_DIE.values(), ids=WAYS_TO_DIE)


def check_death(
    error: exceptions.WorkerCrashedError | exceptions.ActorDiedError, code: int | None, number: int | None
) -> None:
    """Check that an error tells all about the end of a process."""
    assert (error.exit_code, error.signal) == (code, number)
    assert error.pid
    assert error.likely_cause
    assert any("the last words" in line for line in error.log_lines)
    text = str(error)
    assert "the last words" in text
    assert (signal.Signals(number).name if number else f"exit code {code}") in text


@dies
def test_the_error_of_a_task_says_how_its_worker_ended(
    die: Callable[[], None], code: int | None, number: int | None
) -> None:
    @skate.remote(max_retries=0)
    def fatal() -> None:
        print("the last words")
        die()

    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        skate.get(fatal.remote())
    check_death(caught.value, code, number)
    assert "fatal" in str(caught.value)


@dies
def test_the_error_of_an_actor_says_how_its_process_ended(
    die: Callable[[], None], code: int | None, number: int | None
) -> None:
    @skate.remote
    class Actor:
        def fatal(self) -> None:
            print("the last words")
            die()

        def ping(self) -> str:
            return "pong"

    actor = Actor.remote()
    with pytest.raises(exceptions.ActorDiedError) as caught:
        skate.get(actor.fatal.remote())
    check_death(caught.value, code, number)
    with pytest.raises(exceptions.ActorDiedError):
        skate.get(actor.ping.remote())


@dies
def test_the_error_of_an_asyncio_actor_says_how_its_process_ended(
    die: Callable[[], None], code: int | None, number: int | None
) -> None:
    @skate.remote
    class Actor:
        async def fatal(self) -> None:
            print("the last words")
            await asyncio.sleep(0)
            die()

    with pytest.raises(exceptions.ActorDiedError) as caught:
        skate.get(Actor.remote().fatal.remote())
    check_death(caught.value, code, number)


@dies
def test_the_error_of_a_threaded_actor_says_how_its_process_ended(
    die: Callable[[], None], code: int | None, number: int | None
) -> None:
    @skate.remote(max_concurrency=3)
    class Actor:
        def fatal(self) -> None:
            print("the last words")
            die()

    with pytest.raises(exceptions.ActorDiedError) as caught:
        skate.get(Actor.remote().fatal.remote())
    check_death(caught.value, code, number)


@dies
def test_a_constructor_that_ends_its_process_is_reported(
    die: Callable[[], None], code: int | None, number: int | None
) -> None:
    @skate.remote
    class Actor:
        def __init__(self) -> None:
            print("the last words")
            die()

        def ping(self) -> str:
            return "pong"

    with pytest.raises(exceptions.ActorDiedError) as caught:
        skate.get(Actor.remote().ping.remote())
    check_death(caught.value, code, number)


@dies
def test_a_task_is_tried_again_after_its_worker_died(
    die: Callable[[], None], code: int | None, number: int | None, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"

    @skate.remote(max_retries=2)
    def fatal_twice() -> int:
        with open(marks, "a") as file:
            file.write("x")
        if marks.stat().st_size <= 2:
            die()
        return marks.stat().st_size

    assert skate.get(fatal_twice.remote()) == 3


def test_a_task_that_is_asked_to_stop_stops(mailbox: Mailbox) -> None:
    path = mailbox.path

    @skate.remote(max_retries=0)
    def stuck() -> None:
        tell(path, os.getpid())
        signal.pause()

    ref = stuck.remote()
    os.kill(int(mailbox.next()), signal.SIGTERM)
    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        skate.get(ref)
    assert caught.value.signal == signal.SIGTERM


def test_retries_come_to_an_end(tmp_path: Path) -> None:
    marks = tmp_path / "marks"

    @skate.remote(max_retries=2)
    def fatal() -> None:
        with open(marks, "a") as file:
            file.write("x")
        os._exit(1)

    with pytest.raises(exceptions.WorkerCrashedError):
        skate.get(fatal.remote())
    assert marks.read_text() == "xxx"


def test_memory_that_is_not_there_is_an_exception_like_others() -> None:
    @skate.remote
    def greedy() -> int:
        return len(bytearray(1 << 62))

    @skate.remote
    class Greedy:
        def take(self) -> int:
            return len(bytearray(1 << 62))

        def ping(self) -> str:
            return "pong"

    with pytest.raises(MemoryError):
        skate.get(greedy.remote())
    actor = Greedy.remote()
    with pytest.raises(MemoryError):
        skate.get(actor.take.remote())
    assert skate.get(actor.ping.remote()) == "pong"


def test_recursion_without_end_is_an_exception_like_others() -> None:
    @skate.remote
    def descend(depth: int = 0) -> int:
        def deeper(depth: int) -> int:
            return deeper(depth + 1) + 1

        return deeper(depth)

    @skate.remote
    class Endless:
        def __init__(self) -> None:
            self.value: list[Any] = []

        def nest(self) -> list[Any]:
            for _ in range(100_000):
                self.value = [self.value]
            return self.value

        def ping(self) -> str:
            return "pong"

    with pytest.raises(RecursionError):
        skate.get(descend.remote())
    actor = Endless.remote()
    with pytest.raises(TypeError, match="deep recursion"):  # what it returns cannot be pickled
        skate.get(actor.nest.remote())
    assert skate.get(actor.ping.remote()) == "pong"


def test_tasks_that_wait_behind_a_fatal_one_run_elsewhere() -> None:
    @skate.remote(max_retries=0)
    def short(number: int) -> int:
        return number

    @skate.remote(max_retries=0)
    def fatal() -> None:
        os._exit(1)

    skate.get([short.remote(n) for n in range(200)])  # now the node knows that it is short, and sends ahead
    first = [short.remote(n) for n in range(300)]
    crash = fatal.remote()
    second = [short.remote(n) for n in range(300)]
    assert skate.get(first) == list(range(300))
    assert skate.get(second) == list(range(300))
    with pytest.raises(exceptions.WorkerCrashedError):
        skate.get(crash)


def test_a_killed_worker_takes_only_the_task_it_ran() -> None:
    @skate.remote(max_retries=0)
    def maybe_fatal(number: int) -> int:
        if number == 150:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    refs = [maybe_fatal.remote(n) for n in range(300)]
    results: list[int] = []
    crashes = 0
    for ref in refs:
        try:
            results.append(skate.get(ref))
        except exceptions.WorkerCrashedError:
            crashes += 1
    assert crashes == 1
    assert results == [n for n in range(300) if n != 150]


def test_everybody_who_waits_for_a_dead_worker_is_told(mailbox: Mailbox) -> None:
    path = mailbox.path

    @skate.remote(max_retries=0)
    def stuck() -> None:
        tell(path, os.getpid())
        signal.pause()

    ref = stuck.remote()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            skate.get(ref)
        except exceptions.WorkerCrashedError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for thread in threads:
        thread.start()

    @skate.remote(max_retries=0)
    def also_wait(refs: list[Any]) -> str:
        tell(path, "waiting")
        try:
            skate.get(refs[0])
        except exceptions.WorkerCrashedError:
            return "told"
        return "not told"

    other = also_wait.remote([ref])
    said = {mailbox.next(), mailbox.next()}
    (pid,) = said - {"waiting"}
    os.kill(int(pid), signal.SIGKILL)
    for thread in threads:
        thread.join(30)
    assert len(errors) == 8
    assert skate.get(other) == "told"


def test_what_a_dead_worker_had_put_and_returned_stays() -> None:
    @skate.remote
    def make() -> tuple[int, Any, bytes]:
        return os.getpid(), skate.put(b"p" * LARGE), b"r" * LARGE

    pid, inner, _ = skate.get(ref := make.remote())
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the worker is gone")
    assert skate.get(inner) == b"p" * LARGE
    assert skate.get(ref)[2] == b"r" * LARGE


def test_a_generator_whose_worker_dies_goes_on_in_another_one() -> None:
    @skate.remote(num_returns="streaming", max_retries=1)
    def numbers(marks: str) -> Iterator[Any]:
        for number in range(10):
            if number == 5 and not os.path.exists(marks):
                open(marks, "w").close()
                os._exit(1)
            yield number if number % 2 else bytes(LARGE)

    path = f"/tmp/skate-chaos-{os.getpid()}-{time.monotonic_ns()}"
    try:
        values = [skate.get(ref) for ref in numbers.remote(path)]
    finally:
        os.unlink(path)
    assert [v if isinstance(v, int) else len(v) for v in values] == [
        LARGE,
        1,
        LARGE,
        3,
        LARGE,
        5,
        LARGE,
        7,
        LARGE,
        9,
    ]


def test_a_generator_whose_worker_dies_for_good_ends_with_the_error() -> None:
    @skate.remote(num_returns="streaming", max_retries=0)
    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        os._exit(1)

    generator = numbers.remote()
    values = []

    def read_on() -> None:
        values.extend(skate.get(ref) for ref in generator)

    with pytest.raises(exceptions.WorkerCrashedError):
        read_on()
    # The last items may have been on their way to the socket when the process ended.
    assert values == [1, 2][: len(values)]
    with pytest.raises(StopIteration):
        next(generator)


def test_every_pending_call_of_a_killed_actor_fails(mailbox: Mailbox) -> None:
    path = mailbox.path

    @skate.remote(max_concurrency=100)
    class Sleeper:
        async def sleep(self) -> None:
            await asyncio.sleep(1000)

        async def tell_pid(self) -> None:
            tell(path, os.getpid())

    sleeper = Sleeper.remote()
    refs = [sleeper.sleep.remote() for _ in range(50)]
    sleeper.tell_pid.remote()
    os.kill(int(mailbox.next()), signal.SIGKILL)
    for ref in refs:
        with pytest.raises(exceptions.ActorDiedError) as caught:
            skate.get(ref)
        assert caught.value.signal == signal.SIGKILL


def test_a_killed_actor_is_restarted_and_its_calls_are_retried(mailbox: Mailbox, tmp_path: Path) -> None:
    path = mailbox.path

    @skate.remote(max_restarts=1, max_task_retries=1)
    class Phoenix:
        def stuck_once(self) -> int:
            is_first = not (tmp_path / "once").exists()
            (tmp_path / "once").touch()
            tell(path, os.getpid())
            if is_first:
                signal.pause()
            return os.getpid()

    phoenix = Phoenix.remote()
    ref = phoenix.stuck_once.remote()
    first = int(mailbox.next())
    os.kill(first, signal.SIGKILL)
    assert skate.get(ref) == int(mailbox.next()) != first


def test_a_call_without_retries_of_a_killed_actor_that_restarts_is_unavailable(mailbox: Mailbox) -> None:
    path = mailbox.path

    @skate.remote(max_restarts=1)
    class Phoenix:
        def stuck(self) -> None:
            tell(path, os.getpid())
            signal.pause()

        def ping(self) -> str:
            return "pong"

    phoenix = Phoenix.remote()
    ref = phoenix.stuck.remote()
    os.kill(int(mailbox.next()), signal.SIGKILL)
    with pytest.raises(exceptions.ActorUnavailableError):
        skate.get(ref)
    assert skate.get(phoenix.ping.options(max_task_retries=1).remote()) == "pong"


def test_a_worker_killed_in_a_nested_get_frees_what_it_waited_for(mailbox: Mailbox) -> None:
    path = mailbox.path

    @skate.remote(max_retries=0)
    def inner() -> None:
        tell(path, f"inner {os.getpid()}")
        signal.pause()

    @skate.remote(max_retries=0)
    def outer() -> None:
        tell(path, f"outer {os.getpid()}")
        skate.get(inner.remote())

    ref = outer.remote()
    pids = dict(mailbox.next().split() for _ in range(2))
    os.kill(int(pids["outer"]), signal.SIGKILL)
    with pytest.raises(exceptions.WorkerCrashedError):
        skate.get(ref)
    os.kill(int(pids["inner"]), signal.SIGKILL)
    eventually(lambda: skate.available_resources().get("CPU") == 4.0, "all CPUs are free again")


def random_kills(seed: int, tasks: int, kills: int) -> None:
    """Kill random workers while they work through many tasks and calls: every answer is right or a typed error."""
    rng = random.Random(seed)

    @skate.remote(max_retries=-1)
    def square(number: int) -> tuple[int, bytes]:
        time.sleep(0.002)
        return number * number, bytes(LARGE if number % 10 == 0 else 0)

    @skate.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
    class Adder:
        def add(self, number: int) -> int:
            return number + 1

    adders = [Adder.remote() for _ in range(2)]
    refs = [square.remote(n) for n in range(tasks)]
    calls = [adders[n % 2].add.remote(n) for n in range(tasks)]
    for _ in range(kills):
        workers = [row for row in skate.util.state.list_workers() if row.worker_type == "WORKER" and row.pid]
        if workers:
            try:
                attacks.kill(rng.choice(workers).pid)
            except ProcessLookupError:
                continue
        skate.wait(refs, num_returns=rng.randrange(1, len(refs)), timeout=0.05)
    assert [value for value, _ in skate.get(refs)] == [n * n for n in range(tasks)]
    assert skate.get(calls) == [n + 1 for n in range(tasks)]


def test_random_kills_of_workers_change_no_result() -> None:
    random_kills(0, tasks=150, kills=10)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(1, 6))
def test_random_kills_of_workers_change_no_result_many_times(seed: int) -> None:
    random_kills(seed, tasks=600, kills=60)
