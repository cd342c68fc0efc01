"""The progress of `get` and `wait`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import skate
from skate._api.progress.waits import WHY_INTERVAL_S, LongWait
from skate._base.object_ref import INLINE, ObjectRef
from tests.pseudo_terminal import run_in_terminal

PROGRAM = """
import threading, skate
from skate._api.progress import display, waits

display.DELAY_S = display.LOG_DELAY_S = 0

@skate.remote
class Gate:
    def __init__(self):
        self.event = threading.Event()
    def open(self):
        self.event.set()
    def wait(self):
        self.event.wait()

@skate.remote
def task(gate):
    return 1

skate.init(num_cpus=2)
gate = Gate.options(max_concurrency=3).remote()
opened = gate.wait.remote()
done = [task.remote(None) for _ in range(3)]
skate.wait(done, num_returns=3)

# The gate opens when the display asks for the second view, and so has shown the first.
describe = waits.LongWait.view
views = []
def view(self):
    views.append(describe(self))
    if len(views) == 2:
        gate.open.remote()
    return views[-1]
waits.LongWait.view = view
"""


def references(count: int) -> list[ObjectRef[int]]:
    """Return references that are pending, of no session."""
    return [ObjectRef(bytes([index]) * 28) for index in range(count)]


def test_the_view_counts_ready_objects_and_explains_the_first_of_the_others() -> None:
    pending = references(3)
    wait = LongWait("get", pending, 3, 7, why=lambda reference: f"waits {pending.index(reference)}\n  cause")
    pending[0]._state = INLINE
    view = wait.view()
    assert (view.title, view.footer, view.summary) == ("get", "waits 1\n  cause", "waits 1")
    assert view.bar is not None
    assert view.bar.text() == "8 of 10 objects"


def test_a_wait_for_some_counts_those_that_it_needs() -> None:
    pending = references(5)
    wait = LongWait("wait", pending, 2, 0, why=lambda reference: "")
    for reference in pending[:3]:
        reference._state = INLINE
    bar = wait.view().bar
    assert bar is not None
    assert bar.text() == "2 of 2 objects"


def test_one_object_has_no_bar() -> None:
    assert LongWait("get", references(1), 1, 0, why=lambda reference: "").view().bar is None


def test_the_node_is_not_asked_with_each_view() -> None:
    now, asked = [0.0], []
    first, second = references(2)
    wait = LongWait("get", [first, second], 2, 0, why=lambda r: asked.append(r) or "", clock=lambda: now[0])
    wait.view()
    wait.view()
    assert asked == [first]
    now[0] += WHY_INTERVAL_S
    wait.view()
    assert asked == [first, first]
    first._state = INLINE
    wait.view()
    assert asked == [first, first, second]


def run(tmp_path: Path, *lines: str) -> Path:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "\n".join(lines) + "\n")
    return program


def test_a_terminal_shows_what_a_get_waits_for(tmp_path: Path) -> None:
    program = run(tmp_path, "print(len(skate.get([*done, opened])))")
    screens = list(run_in_terminal(program))
    shown = next(screen for screen in screens if "get  " in screen)
    assert "75%" in shown
    assert "3 of 4 objects" in shown
    assert "actor Gate (pid " in shown
    assert screens[-1] == "4\n"


def test_a_log_shows_what_a_wait_waits_for(tmp_path: Path) -> None:
    program = run(tmp_path, "skate.wait([opened])")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert "-- wait: 0s, actor Gate (pid " in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""


def test_waits_of_libraries_are_not_shown(tmp_path: Path) -> None:
    program = run(
        tmp_path,
        "from skate.util import ActorPool",
        "calls = []",
        "called_function = waits._called_function",
        "def record():",
        "    calls.append(called_function())",
        "    gate.open.remote()",
        "waits._called_function = record",
        "pool = ActorPool([gate])",
        "pool.submit(lambda actor, _: actor.wait.remote(), None)",
        "pool.get_next()",
        "print(calls)",
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == "[None]\n"


def test_a_short_get_imports_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, skate\n"
        "skate.init(num_cpus=1)\n"
        "skate.get(skate.remote(lambda: 1).remote())\n"
        "print([name for name in sys.modules if name.startswith('skate._api.progress')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_an_error_that_ends_a_long_wait_is_raised_as_usual(engine: str) -> None:
    @skate.remote
    def fail() -> None:
        raise KeyError("mine")

    with skate.init(engine=engine, num_cpus=1), pytest.raises(KeyError):
        skate.get(fail.remote())
