"""Starting processes while the system refuses: other work continues, and the start succeeds once it is allowed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skate
from tests.chaos.mailbox import Mailbox

# In every process that is started with a new interpreter, and in those forked from them.
REFUSING = """
import os

def refusing(start):
    def wrapper(*args, **kwargs):
        try:
            with open({flag!r}) as flag:
                number = int(flag.read())
        except FileNotFoundError:
            number = 0
        if number:
            with open({mailbox!r}, "w") as mailbox:
                mailbox.write(start.__name__ + "\\n")
            raise OSError(number, os.strerror(number))
        return start(*args, **kwargs)
    return wrapper

os.fork, os.posix_spawn = refusing(os.fork), refusing(os.posix_spawn)
"""


class System:
    """A system that can be told to refuse further processes."""

    def __init__(self, folder: Path) -> None:
        self._flag = folder / "refuse"
        self.mailbox = Mailbox(folder / "mailbox")
        (folder / "sitecustomize.py").write_text(
            REFUSING.format(flag=str(self._flag), mailbox=self.mailbox.path)
        )

    def refuse(self, number: int = errno.EAGAIN) -> None:
        draft = self._flag.with_name("draft")
        draft.write_text(str(number))
        draft.rename(self._flag)

    def allow(self) -> None:
        self._flag.unlink()

    def wait_for_refusal(self) -> str:
        """Return the name of the next function that was called in vain."""
        return self.mailbox.next()


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    (tmp_path / "heavy.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    system = System(tmp_path)
    yield system
    system.mailbox.close()


@pytest.fixture
def session(system: System) -> Iterator[None]:
    skate.init(engine="local", num_cpus=1)
    yield
    skate.shutdown()


@skate.remote(num_cpus=0)
class Here:
    def pids(self) -> tuple[int, int]:
        return os.getpid(), os.getppid()


def test_a_refused_start_is_attempted_again_and_harms_nobody(system: System, session: None) -> None:
    healthy = Here.remote()
    before = skate.get(healthy.pids.remote())
    preloading = Here.options(runtime_env={"preload": ["heavy"]})
    skate.get(preloading.remote().pids.remote())
    for number in (errno.EAGAIN, errno.ENOMEM):
        system.refuse(number)
        late = [Here.remote(), preloading.remote(), Here.options(runtime_env={"preload": ["os"]}).remote()]
        assert {system.wait_for_refusal() for _ in range(5)} == {"fork"}
        assert skate.get(healthy.pids.remote()) == before
        system.allow()
        assert len({skate.get(actor.pids.remote())[0] for actor in late}) == 3
    assert skate.get(healthy.pids.remote()) == before


def test_a_killed_template_is_replaced_once_the_system_allows_it(system: System, session: None) -> None:
    _, template = skate.get(Here.remote().pids.remote())
    system.refuse()
    os.kill(template, signal.SIGKILL)
    assert system.wait_for_refusal() == "posix_spawn"
    late = Here.remote()
    assert system.wait_for_refusal() == "posix_spawn"
    system.allow()
    assert skate.get(late.pids.remote())[1] != template


def test_a_session_begins_once_the_system_allows_it(system: System) -> None:
    system.refuse()
    driver = subprocess.Popen(
        [sys.executable, "-c", "import skate; skate.init(num_cpus=1); print(skate.get(skate.put(42)))"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert system.wait_for_refusal() == "posix_spawn"
    system.allow()
    output, _ = driver.communicate(timeout=60)
    assert (driver.returncode, output) == (0, "42\n")


def test_a_node_begins_although_signals_are_blocked_in_the_thread_that_starts_it() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    try:
        skate.init(engine="local", num_cpus=1)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with pytest.raises(skate.exceptions.WorkerCrashedError):
        skate.get(skate.remote(max_retries=0)(os._exit).remote(3))
    skate.shutdown()
