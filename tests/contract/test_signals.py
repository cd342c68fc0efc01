"""Signals: processes that user code forks end as they do without Skate, and a driver that is asked to end cleans up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import skate
from tests.contract.support import EVENT_TIMEOUT_S, eventually
from tests.plugins.sessions import Arguments

pytestmark = pytest.mark.usefixtures("engine")


def end_children() -> list[bool]:
    """End forked processes, some before they have come to run anything; return which of them live on."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=time.sleep, args=(600,)) for _ in range(8)]
    for process in processes:
        process.start()
        process.terminate()
    for process in processes:
        process.join(10)
    alive = [process.is_alive() for process in processes]
    for process in processes:
        process.kill()
    return alive


def use_pool() -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2, -3])


@skate.remote(num_cpus=0)
class Actor:
    def run(self, function: object) -> object:
        return function()

    def run_with_handler(self) -> int:
        """Handle the signal here; return the exit code of a child that gets it."""
        before = signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        try:
            process = multiprocessing.get_context("fork").Process(target=signal.pause)
            process.start()
            process.terminate()
            process.join(10)
            return process.exitcode
        finally:
            signal.signal(signal.SIGTERM, before)


@skate.remote(num_cpus=0)
class AsyncActor:
    async def run(self, function: object) -> object:
        return function()


def test_a_process_that_a_task_has_forked_can_be_terminated() -> None:
    assert skate.get(skate.remote(end_children).remote()) == [False] * 8


@pytest.mark.parametrize("kind", [Actor, AsyncActor], ids=["plain", "asyncio"])
def test_a_process_that_an_actor_has_forked_can_be_terminated(kind: object) -> None:
    assert skate.get(kind.remote().run.remote(end_children)) == [False] * 8


def test_a_process_that_the_driver_has_forked_can_be_terminated() -> None:
    assert end_children() == [False] * 8


def test_a_pool_of_processes_in_an_actor_ends() -> None:
    assert skate.get(Actor.remote().run.remote(use_pool)) == [1, 2, 3]


def test_a_handler_of_the_users_own_is_inherited() -> None:
    assert skate.get(Actor.remote().run_with_handler.remote()) == 7


POLITE = """
    import atexit, sys, time, skate

    atexit.register(lambda: print("an exit handler ran"))
    skate.init()
    try:
        with open(sys.argv[1], "w"):
            time.sleep(600)
    finally:
        print("a finally block ran")
"""


def test_a_driver_that_is_asked_to_end_exits_in_order(
    engine_name: str, init_arguments: Arguments, tmp_path: Path
) -> None:
    variables = {**os.environ, "SKATE_ENGINE": engine_name}
    if engine_name == "ray":
        variables["SKATE_ADDRESS"] = init_arguments({})["address"]
    started = tmp_path / "started"
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(POLITE), str(started)],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: started.exists() or driver.poll() is not None)
    driver.terminate()
    output, _ = driver.communicate(timeout=EVENT_TIMEOUT_S)
    assert output.splitlines()[-2:] == ["a finally block ran", "an exit handler ran"]
    assert driver.returncode == signal.SIGTERM
