"""Workers that are forked from a process which has imported their modules."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.runtime_env import RuntimeEnv


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules every process of the session can import."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


@pytest.fixture
def session(modules: Path) -> Iterator[None]:
    skate.init(engine="local", num_cpus=4)
    yield
    skate.shutdown()


@skate.remote
class Here:
    """Tells about its process."""

    def __init__(self) -> None:
        self.parent = os.getppid()

    def pids(self) -> tuple[int, int]:
        return os.getpid(), self.parent

    def has(self, name: str) -> bool:
        return name in sys.modules


def preloading(*names: str) -> Any:
    return Here.options(runtime_env={"preload": list(names)})


def counting(modules: Path, name: str) -> Path:
    """Write a module that notes who imports it."""
    notes = modules / f"{name}.txt"
    (modules / f"{name}.py").write_text(
        f"import os\nopen({str(notes)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    )
    return notes


def test_modules_are_imported_once_for_all_workers(modules: Path, session: None) -> None:
    notes = counting(modules, "heavy")
    actors = [preloading("heavy").remote() for _ in range(3)]
    assert skate.get([actor.has.remote("heavy") for actor in actors]) == [True] * 3
    for actor in actors:
        skate.kill(actor)
    again = preloading("heavy").remote()
    assert skate.get(again.has.remote("heavy"))
    assert len(notes.read_text().split()) == 1


def test_others_do_not_get_them(modules: Path, session: None) -> None:
    counting(modules, "heavy")
    skate.get(preloading("heavy").remote().pids.remote())
    assert not skate.get(Here.remote().has.remote("heavy"))


def test_each_set_of_modules_has_a_process_of_its_own(modules: Path, session: None) -> None:
    counting(modules, "one")
    counting(modules, "two")
    parents = {
        skate.get(preloading(*names).remote().pids.remote())[1]
        for names in (("one",), ("two",), ("one", "two"))
    }
    assert len(parents) == 3


@pytest.mark.parametrize("fault", ["raise ImportError('no')", "import os; os._exit(7)"])
def test_a_module_that_cannot_be_imported_stops_no_worker(modules: Path, session: None, fault: str) -> None:
    (modules / "broken.py").write_text(fault)
    assert not skate.get(preloading("broken").remote().has.remote("broken"))


@pytest.mark.linux_machine("it waits for a pidfd")
def test_when_the_process_is_killed_its_workers_end_and_others_start(modules: Path, session: None) -> None:
    notes = counting(modules, "heavy")
    first = preloading("heavy").remote()
    restarted = preloading("heavy").options(max_restarts=1, max_task_retries=1).remote()
    pid, parent = skate.get(first.pids.remote())
    before, _ = skate.get(restarted.pids.remote())
    ended = os.pidfd_open(pid)
    os.kill(parent, signal.SIGKILL)
    select.select([ended], [], [], 60)
    os.close(ended)
    with pytest.raises(skate.exceptions.ActorDiedError):
        skate.get(first.pids.remote())
    after, _ = skate.get(restarted.pids.remote())
    assert after != before
    assert skate.get(restarted.has.remote("heavy"))
    assert len(notes.read_text().split()) == 2


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match="'a b', which is not a module name"):
        RuntimeEnv(preload=["a b"])
    with pytest.raises(TypeError, match="preload"):
        RuntimeEnv(preload="torch")


def test_a_module_may_reset_the_wake_up_of_signals_in_every_child(modules: Path, session: None) -> None:
    (modules / "resetting.py").write_text(
        "import os, signal\nos.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))\n"
    )
    actors = [preloading("resetting").remote() for _ in range(2)]
    parents = {parent for _, parent in skate.get([actor.pids.remote() for actor in actors])}
    assert len(parents) == 1
    assert skate.get(actors[0].has.remote("resetting"))
