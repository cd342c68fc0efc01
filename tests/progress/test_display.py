"""Where and when running work is shown."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import skate
from skate._api import progress
from skate._api.progress import Bar, View, display
from skate._api.progress.display import SWITCH
from tests.pseudo_terminal import Screen, run_in_terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Work:
    """Work whose view counts how often it was asked for."""

    def __init__(self) -> None:
        self.views = 0
        self._changed = threading.Condition()

    def view(self) -> View:
        with self._changed:
            self.views += 1
            self._changed.notify_all()
        return View("work", 7, bar=Bar(self.views, 100, "steps"))

    def wait_for(self, views: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.views >= views, 30)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "DELAY_S", 0.0)
    monkeypatch.setattr(display, "INTERVAL_S", 0.01)
    monkeypatch.setattr(display, "LOG_DELAY_S", 0.0)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, at_once: None) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr(
        display, "sys", SimpleNamespace(stderr=stream)
    )  # pytest changes `sys.stderr` after this
    monkeypatch.setenv("TERM", "xterm")
    return stream


@pytest.fixture
def work() -> Iterator[Work]:
    yield Work()
    for thread in threading.enumerate():
        if thread.name == "skate-background-progress":
            thread.join(30)  # it ends when it finds no work
            assert not thread.is_alive()


def show(work: Work, **options: bool) -> progress.Shown:
    shown = progress.show(work.view, **options)
    assert shown is not None
    return shown


# ------------------------------------------------------------ the switch


@pytest.mark.parametrize("word", ["0", "off", "False", "no"])
def test_one_variable_turns_everything_off(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv(SWITCH, word)
    assert progress.show(lambda: None) is None


def test_a_wrong_value_of_the_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "maybe")
    with pytest.raises(ValueError, match="SKATE_PROGRESS is 'maybe': set it to 1, 0 or ranks"):
        progress.show(lambda: None)


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_workers_show_nothing(engine: str) -> None:
    @skate.remote
    def is_wanted() -> bool:
        return progress.is_wanted()

    with skate.init(engine=engine, num_cpus=1):
        assert progress.is_wanted()
        assert not skate.get(is_wanted.remote())


# ------------------------------------------------------------ a terminal


def test_a_block_is_redrawn_in_place_and_removed_at_the_end(terminal: Terminal, work: Work) -> None:
    shown = show(work)
    work.wait_for(3)
    shown.close()
    shown.close()
    screen = Screen(80)
    screen.feed(terminal.getvalue().replace("\n", "\r\n"))
    assert terminal.getvalue().count("of 100 steps") >= 2
    assert screen.text == ""


def test_short_work_writes_nothing(terminal: Terminal, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "DELAY_S", 3600)
    show(work).close()
    assert work.views == 0
    assert terminal.getvalue() == ""
    assert progress.show(work.view) is not None  # the same thread
    display._screen.remove_all()
    assert work.views == 0


def test_text_of_the_program_appears_above_the_block(terminal: Terminal, work: Work) -> None:
    handler = logging.StreamHandler(terminal)  # made before the block is shown, as by `skate.init`
    shown = show(work)
    work.wait_for(2)
    terminal.write("one\n")
    work.wait_for(work.views + 2)
    handler.emit(logging.makeLogRecord({"msg": "two"}))
    work.wait_for(work.views + 2)
    screen = Screen(80)
    screen.feed(terminal.getvalue().replace("\n", "\r\n"))
    shown.close()
    assert [line.strip() for line in screen.lines[:2]] == ["one", "two"]
    screen = Screen(80)
    screen.feed(terminal.getvalue().replace("\n", "\r\n"))
    assert screen.text == "one\ntwo\n"


def test_an_incomplete_line_stays_as_it_is(terminal: Terminal, work: Work) -> None:
    shown = show(work)
    work.wait_for(2)
    terminal.write("name? ")
    at = len(terminal.getvalue())
    work.wait_for(work.views + 3)
    assert terminal.getvalue()[at:] == ""
    shown.close()
    assert terminal.getvalue().endswith("name? ")


def test_all_running_work_is_in_one_block(terminal: Terminal, work: Work) -> None:
    first, second = show(work), show(work)
    work.wait_for(4)
    first.close()
    at = work.views
    work.wait_for(at + 4)
    second.close()
    text = terminal.getvalue()
    blocks = [block.count("work") for block in text.split("\x1b[J")]
    assert 2 in blocks
    assert blocks[-2:] == [1, 0]


def test_the_write_method_of_the_stream_is_restored(terminal: Terminal, work: Work) -> None:
    show(work).close()
    shown = show(work)
    work.wait_for(1)
    shown.close()
    assert "write" not in vars(terminal)


def test_a_forked_process_that_prints_does_not_wait_for_a_lock_of_its_parent(tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(
        "import os, threading\n"
        "from skate._api.progress import View, display, show\n"
        "display.DELAY_S, display.INTERVAL_S = 0, 0.001\n"
        "asked = threading.Semaphore(0)\n"
        "def view():\n"
        "    asked.release()\n"
        "    return View('work', 1)\n"
        "shown = show(view)\n"
        "for _ in range(3): asked.acquire()\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        print('child', flush=True)\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0\n"
        "shown.close()\n"
    )
    assert list(run_in_terminal(program, timeout=30))  # which fails if the program does not end


def test_output_that_goes_to_a_file_stays_there(tmp_path: Path) -> None:
    """Only the terminal has a block: `python program.py > file` has the same content with and without progress."""
    program, file = tmp_path / "program.py", tmp_path / "file"
    program.write_text(
        "import sys, threading\n"
        f"sys.stdout = open({str(file)!r}, 'w')\n"
        "from skate._api.progress import View, display, show\n"
        "display.DELAY_S = 0\n"
        "asked = threading.Event()\n"
        "def view():\n"
        "    asked.set()\n"
        "    return View('work', 1)\n"
        "shown = show(view)\n"
        "asked.wait()\n"
        "print('result')\n"
        "shown.close()\n"
    )
    *_, last = run_in_terminal(program)
    assert last == ""
    assert file.read_text() == "result\n"


def test_a_program_that_ends_leaves_no_block(tmp_path: Path) -> None:
    program = tmp_path / "ends.py"
    program.write_text(
        "import threading\n"
        "from skate._api.progress import View, display, show\n"
        "display.DELAY_S = 0\n"
        "asked = threading.Semaphore(0)\n"
        "def view():\n"
        "    asked.release()\n"
        "    return View('work', 1)\n"
        "shown = show(view)\n"
        "asked.acquire(); asked.acquire()\n"
        "raise SystemExit\n"
    )
    screens = list(run_in_terminal(program))
    assert any("work" in screen for screen in screens)
    assert screens[-1] == ""


def test_a_debugger_keeps_its_prompt(tmp_path: Path) -> None:
    program = tmp_path / "stops.py"
    program.write_text(
        "import sys, threading\n"
        "from skate._api.progress import View, display, show\n"
        "display.DELAY_S, display.INTERVAL_S = 0, 0.01\n"
        "views = 0\n"
        "asked = threading.Semaphore(0)\n"
        "def view():\n"
        "    asked.release()\n"
        "    return View('work', 1)\n"
        "shown = show(view)\n"
        "asked.acquire(); asked.acquire()\n"
        "breakpoint()\n"
        "shown.close()\n"
    )
    typed = False
    for screen in (screens := run_in_terminal(program)):
        if not typed and screen.endswith("(Pdb)"):
            typed = True
            screens.send("p 6 * 7\ncontinue\n")
    assert typed
    assert "42" in screen


# ------------------------------------------------------------ a log


def test_a_log_gets_plain_lines_at_growing_intervals(
    at_once: None, work: Work, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    caplog.set_level(logging.INFO, logger="skate.progress")
    monkeypatch.setattr(display, "LOG_DELAY_S", 1.0)
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    shown = show(work)
    for second in (0.0, 1.0, 1.5, 2.0, 3.9, 4.0, 8.0, 16.0, 32.0, 61.0, 62.0):
        now[0] = second
        work.wait_for(work.views + 2)
    shown.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 8  # after 1, 2, 4, 8, 16, 32 and 62 seconds, and at the end
    assert all(line.startswith("work: ") and "\x1b" not in line for line in lines)
    assert lines[-1].startswith("work: ended after 7s, ")


def test_without_handlers_the_lines_go_to_standard_error(tmp_path: Path) -> None:
    program = (
        "import threading\n"
        "from skate._api.progress import View, display, show\n"
        "display.DELAY_S = display.LOG_DELAY_S = 0\n"
        "asked = threading.Semaphore(0)\n"
        "def view():\n"
        "    asked.release()\n"
        "    return View('work', 1)\n"
        "shown = show(view)\n"
        "asked.acquire(); asked.acquire()\n"
        "shown.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "work: 1s"
    assert done.stderr.splitlines()[-1] == "work: ended after 1s"
    assert "\x1b" not in done.stderr
