"""What a debugger sees: the caller's frames below the task's, and no frames that disturb in between."""

from __future__ import annotations

import bdb
import contextvars
import inspect
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.exceptions import TaskCancelledError

pytestmark = pytest.mark.usefixtures("engine")


def functions_on_the_stack() -> list[str]:
    return [frame.function for frame in inspect.stack()]


def test_the_caller_is_on_the_stack_of_a_task() -> None:
    @skate.remote
    def task() -> list[str]:
        return functions_on_the_stack()

    assert "test_the_caller_is_on_the_stack_of_a_task" in skate.get(task.remote())


def test_the_caller_is_on_the_stack_of_a_method() -> None:
    @skate.remote
    class Actor:
        def method(self) -> list[str]:
            return functions_on_the_stack()

        async def coroutine(self) -> list[str]:
            return functions_on_the_stack()

    actor = Actor.remote()
    for found in skate.get([actor.method.remote(), actor.coroutine.remote()]):
        assert "test_the_caller_is_on_the_stack_of_a_method" in found


def test_everything_runs_in_the_process_and_thread_that_asks() -> None:
    @skate.remote
    def where() -> tuple[int, int]:
        return os.getpid(), threading.get_ident()

    assert skate.get(where.remote()) == (os.getpid(), threading.get_ident())


def test_a_task_has_run_when_remote_returns(log: list[Any]) -> None:
    @skate.remote
    def task() -> None:
        from tests.engine.inline.conftest import note

        note("ran")

    task.remote()
    assert log == ["ran"]


def test_pdb_stops_in_a_task_and_goes_up_to_the_caller(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import skate

            @skate.remote
            def average(numbers):
                breakpoint()
                return sum(numbers) / len(numbers)

            def caller():
                where_i_am = "in the caller"
                return skate.get(average.remote([1, 2, 3]))

            print(caller())
            """
        )
    )
    commands = "p numbers\n" + "up\n" * 12 + "p where_i_am\ncontinue\n"
    done = subprocess.run(
        [sys.executable, str(program)],
        input=commands,
        capture_output=True,
        text=True,
        env={**os.environ, "SKATE_ENGINE": "inline"},
        check=True,
    )
    assert "[1, 2, 3]" in done.stdout
    assert "in the caller" in done.stdout
    assert done.stdout.rstrip().endswith("2.0")


def test_ctrl_c_in_a_task_reaches_the_caller_and_the_session_goes_on() -> None:
    @skate.remote
    def interrupted() -> None:
        raise KeyboardInterrupt

    @skate.remote
    def fine() -> int:
        return 1

    with pytest.raises(KeyboardInterrupt):
        interrupted.remote()
    assert skate.get(fine.options(num_cpus=4).remote()) == 1


def test_quitting_the_debugger_ends_the_program_from_a_coroutine_too() -> None:
    @skate.remote
    class Actor:
        async def quit(self) -> None:
            raise bdb.BdbQuit

        async def ping(self) -> str:
            return "pong"

    actor = Actor.remote()
    with pytest.raises(bdb.BdbQuit):
        actor.quit.remote()
    assert skate.get(actor.ping.remote()) == "pong"


def test_ctrl_c_in_a_generator_leaves_an_error_in_the_stream() -> None:
    @skate.remote
    def numbers() -> Any:
        yield 1
        raise KeyboardInterrupt

    stream = numbers.remote()
    assert skate.get(next(stream)) == 1
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    with pytest.raises(TaskCancelledError):
        skate.get(next(stream))


def test_a_task_does_not_see_the_callers_context_variables() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")
    holder = {"name": name}
    threading.current_thread().holder = holder  # type: ignore[attr-defined]

    @skate.remote
    def who() -> str:
        return str(threading.current_thread().holder["name"].get())  # type: ignore[attr-defined]

    name.set("the caller")
    assert skate.get(who.remote()) == "nobody"


def test_an_error_does_not_mention_what_its_caller_was_handling() -> None:
    @skate.remote
    def fail() -> None:
        raise ValueError("of the task")

    try:
        raise KeyError("of the caller")
    except KeyError:
        ref = fail.remote()
    with pytest.raises(ValueError, match="of the task") as caught:
        skate.get(ref)
    assert "of the caller" not in str(caught.value)


def test_an_error_comes_at_get_and_not_at_remote() -> None:
    @skate.remote
    def fail() -> None:
        raise ValueError("later")

    ref = fail.remote()
    with pytest.raises(ValueError, match="later"):
        skate.get(ref)
