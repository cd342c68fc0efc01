"""Memory that runs short: the monitor sees it, and ends the newest task that can run again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import skate
from skate._engine.local.driver.launcher import monitor_settings
from skate._engine.local.node.memory_monitor import processes
from tests.chaos.mailbox import Mailbox, tell

# In every process that is started with a new interpreter: memory is used as a file says.
MEASURED = """
import json, os
from skate._base import memory

memory.usage = lambda: memory.Usage(*json.load(open({path!r})), "")
"""


class Memory:
    """The memory of a machine of a test's own."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "usage.json"
        self.use(0.5)
        (folder / "sitecustomize.py").write_text(MEASURED.format(path=str(self._path)))

    def use(self, share: float) -> None:
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps([int(share * 1e10), int(1e10)]))
        draft.rename(self._path)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return Memory(tmp_path)


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[Mailbox]:
    mailbox = Mailbox(tmp_path / "mailbox")
    yield mailbox
    mailbox.close()


def test_tasks_run_again_or_fail_when_memory_runs_short(
    memory: Memory, mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, plenty = mailbox.path, tmp_path / "plenty"

    @skate.remote
    def wait(name: str) -> str:
        tell(path, name)
        while not plenty.exists():
            time.sleep(0.01)
        return name

    skate.init(num_cpus=2, _system_config={"memory_usage_threshold": 0.8, "memory_monitor_refresh_ms": 20})
    try:
        fatal = wait.options(max_retries=0).remote("fatal")
        assert mailbox.next() == "fatal"
        retried = wait.remote("retried")
        assert mailbox.next() == "retried"
        memory.use(0.9)
        with pytest.raises(skate.exceptions.OutOfMemoryError, match=r"the threshold is 80\.0%") as caught:
            skate.get(fatal)
        memory.use(0.5)
        plenty.touch()
        assert caught.value.task_name.endswith("wait")
        assert f"pid {os.getpid()}, the driver" in str(caught.value)
        assert mailbox.next() == "retried"
        assert skate.get(retried) == "retried"
    finally:
        skate.shutdown()
    assert "Skate ends task" in capfd.readouterr().err


def test_the_memory_of_a_worker_is_that_of_its_process_group() -> None:
    sizes, others = processes({os.getpgid(0): 1, os.getpid(): 2})
    assert sizes[2] > 1 << 20
    assert len(others) <= 10


def test_settings_come_from_the_call_then_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert monitor_settings(None)["memory_usage_threshold"] == 0.95
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.7")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")
    assert monitor_settings({}) == {
        "memory_usage_threshold": 0.7,
        "memory_monitor_refresh_ms": 0,
        "task_oom_retries": -1,
    }
    assert monitor_settings({"memory_usage_threshold": 0.6})["memory_usage_threshold"] == 0.6


@pytest.mark.parametrize(
    ("value", "why"), [("much", "must be a number, not 'much'"), (95, "from 0 to 1, not 95")]
)
def test_what_is_no_share_is_refused(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        skate.init(_system_config={"memory_usage_threshold": value})
