"""Cancelling tasks and actor calls, before they start and while they run."""

from __future__ import annotations

import asyncio
import os
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.exceptions import RayTaskError, TaskCancelledError, WorkerCrashedError
from tests.contract.support import EVENT_TIMEOUT_S, Log, Signal, eventually

pytestmark = pytest.mark.usefixtures("engine")


def sleep_forever() -> None:
    while True:
        time.sleep(0.001)


@skate.remote
def sleep_after(signal: Any) -> None:
    """Tell that it runs, then do nothing."""
    skate.get(signal.send.remote())
    sleep_forever()


@skate.remote
def wait_for(signal: Any) -> str:
    skate.get(signal.wait.remote())
    return "waited"


@skate.remote
def echo(value: Any) -> Any:
    return value


def test_a_running_task_is_cancelled() -> None:
    started = Signal.remote()
    ref = sleep_after.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)


def test_a_task_inside_one_long_system_call_is_cancelled() -> None:
    started = Signal.remote()

    @skate.remote
    def nap() -> None:
        skate.get(started.send.remote())
        time.sleep(10 * EVENT_TIMEOUT_S)

    ref = nap.remote()
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)


def test_a_task_blocked_in_get_is_cancelled() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)


def test_a_task_that_waits_for_its_argument_is_cancelled() -> None:
    signal, log = Signal.remote(), Log.remote()

    @skate.remote
    def record(_: Any) -> None:
        skate.get(log.append.remote("ran"))

    gate = wait_for.remote(signal)
    ref = record.remote(gate)
    skate.get(signal.wait_for_waiters.remote(1))
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    skate.get(signal.send.remote())
    assert skate.get(gate) == "waited"
    assert skate.get(log.items.remote()) == []


@pytest.mark.one_machine
def test_a_task_that_waits_for_resources_is_cancelled() -> None:
    # Holds the machine without blocking in get, which would give the CPUs back.
    @skate.remote
    class Holder:
        def hold(self) -> str:
            return "held"

    holder = Holder.options(num_cpus=4).remote()
    skate.get(holder.hold.remote())
    ref = echo.remote(1)
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    skate.kill(holder)


def test_cancelling_a_finished_task_changes_nothing() -> None:
    ref = echo.remote(1)
    assert skate.get(ref) == 1
    skate.cancel(ref)
    assert skate.get(ref) == 1


def test_cancelling_twice_is_the_same_as_once() -> None:
    started = Signal.remote()
    ref = sleep_after.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)


def test_a_cancelled_task_is_not_retried() -> None:
    log, started = Log.remote(), Signal.remote()

    @skate.remote(max_retries=5, retry_exceptions=True)
    def logged() -> None:
        skate.get(log.append.remote("run"))
        skate.get(started.send.remote())
        sleep_forever()

    ref = logged.remote()
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    assert skate.get(log.items.remote()) == ["run"]


def test_a_cancelled_task_runs_its_finally_blocks() -> None:
    started, cleaned = Signal.remote(), Signal.remote()

    @skate.remote
    def careful() -> None:
        try:
            skate.get(started.send.remote())
            sleep_forever()
        finally:
            skate.get(cleaned.send.remote())

    ref = careful.remote()
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    skate.get(cleaned.wait.remote())


@pytest.mark.one_machine
def test_the_worker_of_a_cancelled_task_is_free_again() -> None:
    started = Signal.remote()
    refs = [sleep_after.options(num_cpus=4).remote(started)]
    skate.get(started.wait.remote())
    skate.cancel(refs[0])
    assert skate.get(echo.options(num_cpus=4).remote(1)) == 1


def test_an_import_is_not_left_half_done(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        textwrap.dedent(
            f"""
            import os, pathlib, signal, sys

            folder = pathlib.Path({str(tmp_path)!r})
            if hasattr(sys, "slow_to_import_has_begun"):
                raise ImportError("cannot load module more than once per process")
            sys.slow_to_import_has_begun = True
            if not (folder / "process").exists():
                (folder / "process").write_text(str(os.getpid()))
                reading, writing = os.pipe()
                os.set_blocking(writing, False)
                signal.set_wakeup_fd(writing)
                (folder / "gate").open("w").close()
                os.read(reading, 1)  # until the interrupt is here
                signal.set_wakeup_fd(-1)
            """
        )
    )
    os.mkfifo(tmp_path / "gate")

    @skate.remote(max_retries=0)
    def use(folder: str, wait: bool) -> int:
        import sys

        sys.path.insert(0, folder)
        import slow_to_import  # type: ignore[import-not-found]

        if wait:
            sleep_forever()
        assert slow_to_import.folder.exists()
        return os.getpid()

    task = use.remote(str(tmp_path), wait=True)
    (tmp_path / "gate").open().close()  # opens when the import has come to its gate
    skate.cancel(task)
    with pytest.raises(TaskCancelledError):
        skate.get(task)
    process = int((tmp_path / "process").read_text())
    eventually(lambda: skate.get(use.remote(str(tmp_path), wait=False)) == process, "the same worker again")


def test_force_ends_the_worker() -> None:
    started = Signal.remote()
    ref = sleep_after.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)):
        skate.get(ref)


def test_force_cancels_a_task_that_ignores_interrupts() -> None:
    started = Signal.remote()

    @skate.remote(max_retries=0)
    def stubborn() -> None:
        skate.get(started.send.remote())
        while True:
            try:
                sleep_forever()
            except KeyboardInterrupt:
                pass  # What force is for.

    ref = stubborn.remote()
    skate.get(started.wait.remote())
    skate.cancel(ref, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)):
        skate.get(ref)


def test_a_task_that_depends_on_a_cancelled_one_fails() -> None:
    signal = Signal.remote()
    first = wait_for.remote(signal)
    second = echo.remote(first)
    skate.cancel(first)
    with pytest.raises(TaskCancelledError):
        skate.get(second)


def test_wait_counts_a_cancelled_task_as_ready() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal)
    skate.cancel(ref)
    assert skate.wait([ref]) == ([ref], [])


def test_cancel_reaches_the_tasks_that_a_task_submitted() -> None:
    started, interrupted = Signal.remote(), Signal.remote()

    @skate.remote
    def child() -> None:
        try:
            skate.get(started.send.remote())
            sleep_forever()
        finally:
            skate.get(interrupted.send.remote())

    @skate.remote
    def parent() -> None:
        skate.get(child.remote())

    ref = parent.remote()
    skate.get(started.wait.remote())
    skate.cancel(ref, recursive=True)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    skate.get(interrupted.wait.remote())


def test_a_task_that_waits_for_a_child_sees_its_own_cancellation() -> None:
    @skate.remote
    class Sleeper:
        def __init__(self) -> None:
            self.calls = 0

        async def sleep(self) -> None:
            self.calls += 1
            await asyncio.sleep(10 * EVENT_TIMEOUT_S)

        async def count(self) -> int:
            return self.calls

    @skate.remote
    def wait(sleeper: Any) -> bool:
        try:
            skate.get(sleeper.sleep.remote())
        except KeyboardInterrupt:
            return skate.get_runtime_context().is_canceled()
        return False

    sleeper = Sleeper.remote()
    for calls in range(1, 11):
        ref = wait.remote(sleeper)
        while skate.get(sleeper.count.remote()) < calls:
            pass
        skate.cancel(ref)
        assert skate.get(ref) is True


def test_cancel_without_recursion_leaves_children_alone() -> None:
    started, gate, finished = Signal.remote(), Signal.remote(), Signal.remote()

    @skate.remote
    def child() -> None:
        skate.get(started.send.remote())
        skate.get(gate.wait.remote())
        skate.get(finished.send.remote())

    @skate.remote
    def parent() -> None:
        skate.get(child.remote())

    ref = parent.remote()
    skate.get(started.wait.remote())
    skate.cancel(ref, recursive=False)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    skate.get(gate.send.remote())
    skate.get(finished.wait.remote())


def test_a_task_can_be_cancelled_by_another_task() -> None:
    signal = Signal.remote()

    @skate.remote
    def canceller(refs: list[Any]) -> None:
        skate.cancel(refs[0])

    ref = wait_for.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    skate.get(canceller.remote([ref]))
    with pytest.raises(TaskCancelledError):
        skate.get(ref)


def test_cancelled_error_names_the_cancellation() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal)
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError, match=r"(?i)cancel"):
        skate.get(ref)


async def test_a_cancelled_ref_can_be_awaited() -> None:
    signal = Signal.remote()
    ref = wait_for.remote(signal)
    await signal.wait_for_waiters.remote(1)
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        await ref


def test_an_async_actor_call_is_cancelled_at_its_await() -> None:
    @skate.remote
    class Sleeper:
        def __init__(self) -> None:
            self.events: list[str] = []

        async def sleep(self, started: Any) -> None:
            try:
                await started.send.remote()
                await asyncio.sleep(10 * EVENT_TIMEOUT_S)
            except asyncio.CancelledError:
                self.events.append("cancelled")
                raise

        async def seen(self) -> list[str]:
            return self.events

    sleeper, started = Sleeper.remote(), Signal.remote()
    ref = sleeper.sleep.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    assert skate.get(sleeper.seen.remote()) == ["cancelled"]


def test_a_queued_actor_call_is_cancelled_before_it_runs() -> None:
    @skate.remote
    class Worker:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def wait(self, signal: Any) -> None:
            skate.get(signal.wait.remote())

        def record(self, name: str) -> None:
            self.calls.append(name)

        def recorded(self) -> list[str]:
            return self.calls

    worker, signal = Worker.remote(), Signal.remote()
    blocked = worker.wait.remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    dropped, kept = worker.record.remote("dropped"), worker.record.remote("kept")
    skate.cancel(dropped)
    with pytest.raises(TaskCancelledError):
        skate.get(dropped)
    skate.get(signal.send.remote())
    skate.get([blocked, kept])
    assert skate.get(worker.recorded.remote()) == ["kept"]


def test_a_sync_actor_call_sees_that_it_is_cancelled() -> None:
    @skate.remote
    class Worker:
        def work(self, started: Any) -> str:
            skate.get(started.send.remote())
            while not skate.get_runtime_context().is_canceled():
                time.sleep(0.001)
            return "stopped"

    worker, started = Worker.remote(), Signal.remote()
    ref = worker.work.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)


def test_the_actor_lives_on_after_a_cancelled_call() -> None:
    @skate.remote
    class Worker:
        async def sleep(self, started: Any) -> None:
            await started.send.remote()
            await asyncio.sleep(10 * EVENT_TIMEOUT_S)

        async def ping(self) -> str:
            return "pong"

    worker, started = Worker.remote(), Signal.remote()
    ref = worker.sleep.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError):
        skate.get(ref)
    assert skate.get(worker.ping.remote()) == "pong"


def test_force_is_refused_for_an_actor_call() -> None:
    signal = Signal.remote()
    ref = signal.wait.remote()
    with pytest.raises(ValueError, match="force"):
        skate.cancel(ref, force=True)
    skate.get(signal.send.remote())


def test_cancel_takes_only_refs() -> None:
    with pytest.raises(TypeError):
        skate.cancel("not a ref")


def test_the_error_of_a_running_task_shows_where_it_was() -> None:
    started = Signal.remote()
    ref = sleep_after.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(RayTaskError, match="sleep_after") as raised:
        skate.get(ref)
    assert isinstance(raised.value, TaskCancelledError)


def test_the_error_of_a_cancelled_async_call_is_a_task_error_too() -> None:
    @skate.remote
    class Sleeper:
        async def sleep(self, started: Any) -> None:
            await started.send.remote()
            await asyncio.sleep(10 * EVENT_TIMEOUT_S)

    sleeper, started = Sleeper.remote(), Signal.remote()
    ref = sleeper.sleep.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(RayTaskError, match="TaskCancelledError") as raised:
        skate.get(ref)
    assert isinstance(raised.value, TaskCancelledError)


def test_the_error_of_a_call_that_swallows_its_cancellation_is_a_task_error_too() -> None:
    @skate.remote
    class Sleeper:
        async def sleep(self, started: Any) -> str:
            try:
                await started.send.remote()
                await asyncio.sleep(10 * EVENT_TIMEOUT_S)
            except asyncio.CancelledError:
                return "swallowed"
            return "not cancelled"

    sleeper, started = Sleeper.remote(), Signal.remote()
    ref = sleeper.sleep.remote(started)
    skate.get(started.wait.remote())
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError) as raised:
        skate.get(ref)
    assert isinstance(raised.value, RayTaskError)


def test_the_error_of_a_call_that_is_cancelled_before_its_actor_exists_is_a_task_error_too() -> None:
    @skate.remote
    class Late:
        def __init__(self, argument: None) -> None:
            self.argument = argument

        def ping(self) -> str:
            return "pong"

    signal = Signal.remote()
    ref = Late.remote(signal.wait.remote()).ping.remote()
    skate.cancel(ref)
    with pytest.raises(TaskCancelledError) as raised:
        skate.get(ref)
    assert isinstance(raised.value, RayTaskError)
    skate.get(signal.send.remote())
