from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.util import _session, rpdb
from skate.util.rpdb import Breakpoint

PROGRAM = """
import sys
from skate.util import _session, rpdb
_session.worker_folder = lambda: sys.argv[1]

def fails(number):
    return 1 / (number - 42)

def work():
    answer = 41
    rpdb.set_trace()
    answer += 1
    return answer

def work_twice():
    return work(), work()

def autopsy():
    try:
        fails(42)
    except ZeroDivisionError:
        rpdb.post_mortem()
    return "survived"

print(eval(sys.argv[2]), flush=True)
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def start(session: Path) -> Iterator[Start]:
    """Run a function of PROGRAM in a process that takes itself for a worker."""
    running: list[subprocess.Popen[str]] = []

    script = session / "script.py"  # pdb wants to see the source
    script.write_text(PROGRAM)

    def run(expression: str, folder: Path = session) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(folder), expression]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def wait_for_stop(process: subprocess.Popen[str], session: Path) -> Breakpoint:
    """Wait until the process says that it has stopped, and return where."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("Stopped at "), line + process.stderr.read()
    [stop] = rpdb.breakpoints(session)
    return stop


class Terminal:
    """Somebody at a terminal who is attached to a breakpoint."""

    def __init__(self, stop: Breakpoint) -> None:
        reader, self._writer = os.pipe()
        self._stdin = os.fdopen(reader)
        self.screen = io.StringIO()
        self.thread = threading.Thread(target=self._run, args=(stop,))
        self.thread.start()

    def _run(self, stop: Breakpoint) -> None:
        with self._stdin:
            rpdb.attach(stop, self._stdin, self.screen)

    def type(self, text: str) -> None:
        os.write(self._writer, text.encode())

    def hang_up(self) -> None:
        os.close(self._writer)

    def seen(self) -> str:
        """Wait until the worker has hung up, and return all it said."""
        self.thread.join()
        return self.screen.getvalue()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a note in a folder, for which there is no event; the test's own time limit ends it."""
    while not condition():
        time.sleep(0.01)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    return process.communicate(timeout=60)


def test_a_worker_stops_and_tells_where(start: Start, session: Path) -> None:
    process = start("work()")
    stop = wait_for_stop(process, session)
    assert stop.function == "work"
    assert stop.pid == process.pid
    assert stop.line == 1 + PROGRAM[: PROGRAM.index("rpdb.set_trace()")].count("\n")
    assert f"in work (pid {process.pid}): set_trace()" in str(stop)
    assert (session / "debug").stat().st_mode & 0o777 == 0o700


def test_an_attached_terminal_can_look_change_and_continue(start: Start, session: Path) -> None:
    process = start("work()")
    terminal = Terminal(wait_for_stop(process, session))
    terminal.type("p answer\nanswer = 99\ncontinue\n")
    seen = terminal.seen()
    terminal.hang_up()
    assert "(Pdb) 41" in seen
    assert finish(process)[0] == "100\n"
    assert os.listdir(session / "debug") == []


def test_stepping_keeps_the_connection(start: Start, session: Path) -> None:
    process = start("work()")
    terminal = Terminal(wait_for_stop(process, session))
    terminal.type("next\np 'after', answer\nc\n")
    seen = terminal.seen()
    terminal.hang_up()
    assert "('after', 42)" in seen
    assert finish(process)[0] == "42\n"


def test_each_set_trace_is_a_breakpoint_of_its_own(start: Start, session: Path) -> None:
    process = start("work_twice()")
    ids = set()
    for _ in range(2):
        stop = wait_for_stop(process, session)
        ids.add(stop.id)
        terminal = Terminal(stop)
        terminal.type("c\n")
        terminal.seen()
        terminal.hang_up()
    assert len(ids) == 2
    assert finish(process)[0] == "(42, 42)\n"


def test_a_further_breakpoint_is_reached_over_the_same_connection(start: Start, session: Path) -> None:
    process = start("work(), fails(0)")
    terminal = Terminal(wait_for_stop(process, session))
    terminal.type("break fails\nc\np 'in fails', number\nclear 1\nc\n")
    seen = terminal.seen()
    terminal.hang_up()
    assert "('in fails', 0)" in seen
    assert finish(process)[0].startswith("(42, ")


def test_hanging_up_lets_the_worker_run_on(start: Start, session: Path) -> None:
    process = start("work()")
    terminal = Terminal(wait_for_stop(process, session))
    terminal.hang_up()
    terminal.seen()
    assert finish(process)[0] == "42\n"


def test_a_terminal_that_vanishes_lets_the_worker_run_on(start: Start, session: Path) -> None:
    process = start("work()")
    stop = wait_for_stop(process, session)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(stop.address)
        # A reset in the middle of a conversation, not an orderly end of input.
        connection.sendall(b"list\n" * 1000)
    assert finish(process)[0] == "42\n"


def test_quitting_ends_the_task_with_an_error(start: Start, session: Path) -> None:
    process = start("work()")
    terminal = Terminal(wait_for_stop(process, session))
    terminal.type("quit\n")
    terminal.seen()
    terminal.hang_up()
    assert "BdbQuit" in finish(process)[1]


def test_a_post_mortem_stands_where_the_exception_was_raised(start: Start, session: Path) -> None:
    process = start("autopsy()")
    stop = wait_for_stop(process, session)
    assert (stop.function, stop.reason) == ("fails", "ZeroDivisionError: division by zero")
    terminal = Terminal(stop)
    terminal.type("p 'number', number\nc\n")
    seen = terminal.seen()
    terminal.hang_up()
    assert "('number', 42)" in seen
    assert finish(process)[0] == "survived\n"


def test_a_post_mortem_needs_an_exception() -> None:
    with pytest.raises(ValueError, match="needs a traceback"):
        rpdb.post_mortem()


def test_the_note_of_a_killed_worker_is_removed(start: Start, session: Path) -> None:
    process = start("work()")
    stop = wait_for_stop(process, session)
    process.kill()
    process.communicate()
    assert rpdb.breakpoints(session) == []
    assert not list((session / "debug").glob("*.json"))
    with pytest.raises(ConnectionError, match="No process waits"):
        rpdb.attach(stop)


def test_a_session_without_breakpoints_has_none(tmp_path: Path) -> None:
    assert rpdb.breakpoints(tmp_path) == []


def test_a_session_folder_with_a_long_path_works_too(start: Any, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    process = start("work()", folder)
    stop = wait_for_stop(process, folder)
    terminal = Terminal(stop)
    terminal.type("c\n")
    terminal.seen()
    terminal.hang_up()
    assert finish(process)[0] == "42\n"
    assert not Path(stop.address).parent.exists()


def test_outside_of_a_worker_it_is_plain_pdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "worker_folder", lambda: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("p 'value', value\ncontinue\n"))
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    traced = sys.gettrace()
    value = 17
    try:
        rpdb.set_trace()
        value += 1
    finally:
        sys.settrace(traced)
    assert "('value', 17)" in screen.getvalue()
    assert value == 18


def test_a_task_of_a_session_can_be_debugged(capfd: pytest.CaptureFixture[str]) -> None:
    @skate.remote
    def work() -> int:
        answer = 41
        rpdb.set_trace()
        answer += 1
        return answer

    skate.init(num_cpus=1)
    try:
        result = work.remote()
        folder = Path(skate.get_runtime_context().get_session_dir())
        wait_until(lambda: bool(rpdb.breakpoints(folder)))
        [stop] = rpdb.breakpoints(folder)
        assert stop.function.endswith("work")
        terminal = Terminal(stop)
        terminal.type("answer = 9\nc\n")
        seen = terminal.seen()
        terminal.hang_up()
        assert "answer += 1" in seen
        assert skate.get(result) == 10
    finally:
        skate.shutdown()
