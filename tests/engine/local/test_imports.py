"""Modules that workers import when they load user code: later workers are forked from a process that has them."""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import skate
from skate._engine.local.worker import surroundings
from skate._engine.local.worker.imports import ImportWatch
from tests.chaos.arena import eventually

pytestmark = pytest.mark.linux_layer("the portable one cannot check that a fork is safe after imports")

# Takes longer than what each worker is left to import; notes who imports it, and in which surroundings.
SLOW = """
import os, time
with open({notes!r}, "a") as notes:
    notes.write(f"{{os.getpid()}}\\n")
with open({notes!r}) as notes:
    TIMES = len(notes.readlines())
KNOB, FOLDER = os.environ.get("KNOB"), os.getcwd()
end = time.thread_time() + 0.05
while time.thread_time() < end:
    pass
"""
TEMPLATE = 3  # the import by the template comes after those by the driver and a first worker


class Distribution:
    """A package in a folder of installed packages."""

    def __init__(self, folder: Path, name: str, then: str) -> None:
        self.name = name
        self._notes = folder.parent / f"{name}.txt"
        (folder / f"{name}.py").write_text(SLOW.format(notes=str(self._notes)) + then)
        importlib.invalidate_caches()

    def imports(self) -> int:
        """Return how many processes have imported it."""
        return len(self._notes.read_text().splitlines())


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Distribution]]:
    """Installs packages that all processes of a job can import."""
    made = []

    def make(name: str, then: str = "", folder: str = "site-packages") -> Distribution:
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.syspath_prepend(tmp_path / folder)
        made.append(name)
        return Distribution(tmp_path / folder, name, then)

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def session(install: Any) -> Iterator[Callable[[], None]]:
    """Starts a session, after the packages are installed."""
    yield lambda: skate.init(engine="local", num_cpus=2)
    skate.shutdown()


class Facts(NamedTuple):
    """What an actor tells about its process."""

    pid: int
    parent: int
    knob: str | None
    folder: str
    random: float


def user_of(name: str, **options: Any) -> Any:
    """Return a class of actors that needs a module when it is loaded."""
    module = importlib.import_module(name)
    facts = Facts

    class User:
        def facts(self) -> Any:
            numpy = sys.modules.get("numpy")
            number = float(numpy.random.random()) if numpy else 0.0
            knob, folder = getattr(module, "KNOB", None), getattr(module, "FOLDER", "")
            return facts(os.getpid(), os.getppid(), knob, folder, number)

    return skate.remote(num_cpus=0, **options)(User)


def facts_of(actor: Any) -> Facts:
    return Facts(*skate.get(actor.facts.remote()))


def wait_for_template(kind: Any) -> int:
    """Create actors until one is forked from a process that has imported its modules; return that process."""
    ordinary = facts_of(kind.remote()).parent
    found = [ordinary]

    def other() -> bool:
        found.append(facts_of(kind.remote()).parent)
        return found[-1] != ordinary

    eventually(other, "an actor has another parent")
    return found[-1]


def test_actors_are_forked_from_a_process_that_has_imported_their_modules(install: Any, session: Any) -> None:
    slow = install("slow_one")
    session()
    kind = user_of("slow_one")
    template = wait_for_template(kind)
    before = slow.imports()
    assert {facts_of(kind.remote()).parent for _ in range(3)} == {template}
    assert slow.imports() == before


def test_modules_of_the_user_are_imported_by_each_worker(install: Any, session: Any) -> None:
    own = install("own_module", folder="project")
    install("slow_two")
    session()
    module = importlib.import_module("own_module")
    kind = user_of("slow_two")
    wait_for_template(kind)
    before = own.imports()
    for _ in range(3):
        skate.get(kind.remote().__ray_call__.remote(lambda _: module.TIMES))
    assert own.imports() == before + 3


def test_global_random_numbers_differ_between_workers(session: Any) -> None:
    pytest.importorskip("numpy")
    session()
    kind = user_of("numpy.random")  # NumPy loads it when it is needed
    template = wait_for_template(kind)
    facts = [facts_of(kind.remote()) for _ in range(4)]
    assert {each.parent for each in facts} == {template}
    assert len({each.random for each in facts}) == 4


def test_modules_see_the_variables_and_the_folder_of_the_worker(
    install: Any, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("slow_three")
    monkeypatch.chdir(tmp_path)
    session()
    plain = user_of("slow_three")
    turned = user_of("slow_three", runtime_env={"env_vars": {"KNOB": "11"}})
    templates = {wait_for_template(kind) for kind in (plain, turned)}
    assert len(templates) == 2
    assert {facts_of(plain.remote())[2:4] for _ in range(2)} == {(None, str(tmp_path))}
    assert {facts_of(turned.remote())[2:4] for _ in range(2)} == {("11", str(tmp_path))}


@pytest.mark.parametrize(
    "fault",
    [
        "os._exit(7)",
        "raise ImportError('no')",
        "import signal; signal.pause()",
        "import threading; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "import socket; LEFT_OPEN = socket.socket()",
        "import random; NUMBERS = random.Random()",
        "import signal; signal.signal(signal.SIGUSR2, lambda *_: None)",
        "import subprocess; LEFT = subprocess.Popen(['sleep', '1000'])",
    ],
)
def test_a_template_that_cannot_be_used_stops_no_worker(install: Any, session: Any, fault: str) -> None:
    slow = install("faulty", f"if TIMES == {TEMPLATE}:\n    {fault}\n")
    session()
    kind = user_of("faulty")
    parents = {facts_of(kind.remote()).parent}
    eventually(lambda: slow.imports() >= TEMPLATE, "the template has imported it")
    parents |= {facts_of(kind.remote()).parent for _ in range(3)}
    assert len(parents) == 1
    assert slow.imports() == TEMPLATE + 3


def test_workers_start_although_their_template_is_killed(install: Any, session: Any) -> None:
    install("slow_four")
    session()
    kind = user_of("slow_four")
    template = wait_for_template(kind)
    os.kill(template, signal.SIGSTOP)  # the workers are asked for, and not forked
    waiting = [kind.remote() for _ in range(3)]
    references = [actor.facts.remote() for actor in waiting]
    assert not skate.wait(references, timeout=0.5)[0]
    os.kill(template, signal.SIGKILL)
    assert len({Facts(*each).pid for each in skate.get(references)}) == 3
    assert wait_for_template(kind) != template


def test_workers_end_with_their_template_and_start_again(install: Any, session: Any) -> None:
    install("slow_five")
    session()
    kind = user_of("slow_five", max_restarts=1, max_task_retries=1)
    template = wait_for_template(kind)
    actor = kind.remote()
    before = facts_of(actor)
    ended = os.pidfd_open(before.pid)
    os.kill(template, signal.SIGKILL)
    select.select([ended], [], [], 60)
    os.close(ended)
    assert facts_of(actor).pid != before.pid


def test_it_can_be_turned_off(install: Any, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKATE_AUTO_PRELOAD", "0")
    slow = install("slow_six")
    session()
    kind = user_of("slow_six")
    assert len({facts_of(kind.remote()).parent for _ in range(3)}) == 1
    assert slow.imports() == 4


# ------------------------------------------------------------ what is reported


@pytest.fixture
def adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "_adopted", None)
    surroundings.keep()


def test_installed_modules_are_listed_in_the_order_of_their_import(install: Any, adopted: None) -> None:
    install("inner")
    install("outer", "import inner, json")
    surroundings.keep()
    with ImportWatch() as watch:
        importlib.import_module("outer")
    assert watch.modules == ["outer", "inner"]
    assert watch.seconds > 0.05
    assert watch not in sys.meta_path


def test_modules_are_not_listed_after_the_program_has_set_a_variable(
    install: Any, adopted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("early")
    install("late")
    surroundings.keep()
    with ImportWatch() as watch:
        importlib.import_module("early")
        monkeypatch.setenv("KNOB", "1")
        importlib.import_module("late")
    assert watch.modules == ["early"]


def test_nothing_is_listed_if_a_library_changes_others(install: Any, adopted: None) -> None:
    install("gevent")
    install("requesting")
    surroundings.keep()
    with ImportWatch() as watch:
        importlib.import_module("gevent")
        importlib.import_module("requesting")
    assert watch.modules == []
