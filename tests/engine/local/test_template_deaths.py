"""A template that is killed while its workers start: they start again, and the program does not notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import skate
from skate._engine.local.state.starts import MAX_START_FAILURES
from tests.chaos.arena import eventually
from tests.chaos.mailbox import Mailbox

pytestmark = pytest.mark.linux_machine("it waits for a pidfd, and reads /proc")

# A forked process waits for the end of its parent before it asks the kernel to be told of it.
LATE = """
import os, select

def wait():
    if os.path.exists({flag!r}):
        parent = os.pidfd_open(os.getppid())
        with open({mailbox!r}, "w") as mailbox:
            mailbox.write(str(os.getppid()) + "\\n")
        select.select([parent], [], [])
        os.close(parent)

os.register_at_fork(after_in_child=wait)
"""


class Workers:
    """Workers that lose their template right after they were forked, for as long as they are told to."""

    def __init__(self, folder: Path) -> None:
        self._flag = folder / "wait"
        self.mailbox = Mailbox(folder / "mailbox")
        (folder / "late.py").write_text(LATE.format(flag=str(self._flag), mailbox=self.mailbox.path))

    def lose_templates(self) -> None:
        """Kill the templates of the next workers: more often than a worker may fail to start."""
        killed: set[int] = set()
        while len(killed) <= MAX_START_FAILURES:
            template = int(self.mailbox.next())
            if template in killed:
                continue  # several of its workers were starting
            killed.add(template)
            if len(killed) > MAX_START_FAILURES:
                self._flag.unlink()
            # Once it sleeps, it has reported the start of the worker, which counts from then on.
            eventually(lambda template=template: state_of(template) == "S", "the template waits")
            os.kill(template, signal.SIGKILL)

    def wait(self) -> None:
        self._flag.touch()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    workers = Workers(tmp_path)
    yield workers
    workers.mailbox.close()


@skate.remote(num_cpus=0)
class Here:
    def here(self) -> str:
        return "here"


@skate.remote(max_retries=0)
def echo(value: int) -> int:
    return value


def test_no_task_and_no_actor_fails_with_the_template(workers: Workers) -> None:
    workers.wait()
    skate.init(engine="local", num_cpus=1, preload=["late"])
    try:
        actor, task = Here.remote(), echo.remote(1)
        workers.lose_templates()
        assert skate.get([actor.here.remote(), task]) == ["here", 1]
    finally:
        skate.shutdown()


def test_no_task_and_no_actor_fails_with_a_warm_template(workers: Workers) -> None:
    skate.init(engine="local", num_cpus=1)
    try:
        workers.wait()
        environment = {"preload": ["late"]}
        actor = Here.options(runtime_env=environment).remote()
        task = echo.options(runtime_env=environment).remote(1)
        workers.lose_templates()
        assert skate.get([actor.here.remote(), task]) == ["here", 1]
    finally:
        skate.shutdown()
