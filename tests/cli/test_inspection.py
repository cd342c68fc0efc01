from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate._api import nodes
from skate.util import rpdb
from tests.contract.support import Signal, eventually
from tests.plugins.command_line import PROGRAM_TIMEOUT_S, Cli


@skate.remote
class Talker:
    def say(self, text: str) -> int:
        print(text)
        return os.getpid()


@skate.remote
def wait_for(signal: Any, *_: Any) -> int:
    return int(skate.get(signal.wait.remote()) is None)


@skate.remote
def stop_here(value: int) -> int:
    rpdb.set_trace()
    return value


@pytest.fixture
def session(node: nodes.NodeRecord) -> Iterator[None]:
    skate.init(address="auto", log_to_driver=False)
    yield
    skate.shutdown()


def test_logs_are_named_and_shown(cli: Cli, session: None) -> None:
    actor = Talker.remote()
    pid = skate.get([actor.say.remote(f"line {i}") for i in range(3)])[0]
    eventually(lambda: "line 2" in cli("logs", "--pid", str(pid)).out)
    assert cli("logs", "--actor", actor._actor_id.hex(), "--tail", "1").out == "line 2\n"
    names = cli("logs").out.split()
    assert "node.log" in names
    (name,) = [name for name in names if name.startswith("worker")]
    assert cli("logs", name).out == cli("logs", "worker*").out == "line 0\nline 1\nline 2\n"
    assert "skate logs" in cli("logs", "nothing*", status=1).err
    assert "The log is empty" in cli("logs", "node.log").err


def test_a_log_is_followed_until_the_node_ends(cli: Cli, session: None) -> None:
    actor = Talker.remote()
    skate.get(actor.say.remote("first"))
    command = [sys.executable, "-m", "skate.cli", "logs", "--actor", actor._actor_id.hex(), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        skate.get(actor.say.remote("second"))
        assert follower.stdout.readline() == "second\n"
        nodes.stop()
        assert follower.wait(PROGRAM_TIMEOUT_S) == 0


def test_memory_shows_the_largest_objects_first(cli: Cli, session: None) -> None:
    kept = [skate.put(b"x" * size) for size in (200_000, 3_000_000)]
    found = json.loads(cli("memory", "--format", "json").out)
    assert found["used"] >= 3_200_000
    assert found["largest"][0]["object_id"] == kept[1].hex()
    assert "2.861 MiB" in cli("memory").out
    assert len(json.loads(cli("memory", "--limit", "1", "--format", "json").out)["largest"]) == 1


def test_the_timeline_is_written_for_a_viewer(cli: Cli, session: None, tmp_path: Path) -> None:
    actor = Talker.remote()
    skate.get(actor.say.remote("x"))
    events = json.loads(cli("timeline", "-o", "-").out)
    assert {event["name"] for event in events} == {"Talker.__init__", "Talker.say"}
    path = tmp_path / "t.json"
    assert cli("timeline", "-o", str(path)).out.strip() == str(path)
    assert json.loads(path.read_text()) == events


def test_the_stack_of_a_busy_worker_is_shown(cli: Cli, session: None) -> None:
    signal = Signal.remote()
    reference = wait_for.options(name="patient").remote(signal)
    skate.get(signal.wait_for_waiters.remote(1))
    text = cli.process("stack", PATH="/nowhere").out  # without py-spy
    assert "(patient) =====" in text
    assert "in wait_for" in text
    skate.get(signal.send.remote())
    assert skate.get(reference) == 1  # it has not been disturbed
    assert "No worker has the pid 1" in cli("stack", "--pid", "1", status=1).err


def test_why_says_what_something_waits_for(cli: Cli, session: None) -> None:
    signal = Signal.remote()
    first = wait_for.options(name="first").remote(signal)
    second = wait_for.options(name="second").remote(signal, first)
    skate.get(signal.wait_for_waiters.remote(1))
    for id in (second.hex(), second.task_id().hex()):
        lines = cli("why", id).out.splitlines()
        assert lines[0] == "task second waits for its arguments:"
        assert lines[1].startswith("  task first runs on pid")
    skate.get(signal.send.remote())
    skate.get(second)


def test_debug_attaches_the_terminal(cli: Cli, session: None) -> None:
    assert "No worker waits for a debugger" in cli("debug", status=1).err
    reference = stop_here.remote(41)
    folder = skate.get_runtime_context().get_session_dir()
    (stop,) = eventually(lambda: rpdb.breakpoints(folder))
    assert stop.id in cli("debug", "--list").out
    assert f"with the id x{stop.id}" in cli("debug", f"x{stop.id}", status=1).err
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "skate.cli", "debug"]
    with subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, text=True) as debugger:
        os.close(its)
        os.write(mine, b"p value + 1\nc\n")
        out, _ = debugger.communicate(timeout=PROGRAM_TIMEOUT_S)
        os.close(mine)
    assert "42" in out
    assert skate.get(reference, timeout=PROGRAM_TIMEOUT_S) == 41


def test_the_doctor_looks_at_the_machine(cli: Cli, node: nodes.NodeRecord) -> None:
    text = cli("doctor").out
    assert f"pid {node.pid} (long-lived)" in text
    assert skate.__version__ in text
    done = cli.process("doctor", status=1, SKATE_TMPDIR="/proc/nowhere/" + "x" * 100)
    assert "SKATE_TMPDIR" in done.out
    assert "SKATE_SHMDIR" in cli.process("doctor", status=1, SKATE_SHMDIR=__file__).out
    assert "Error: Skate cannot use" in cli.process("start", status=1, SKATE_TMPDIR=__file__).err


def test_the_version_is_one_word(cli: Cli) -> None:
    assert cli.process("version").out == cli("--version").out == f"{skate.__version__}\n"


def test_a_reader_who_has_seen_enough_is_no_error(cli: Cli, node: nodes.NodeRecord) -> None:
    command = f"{sys.executable} -m skate.cli list nodes --detail | head -n 1"
    done = cli.run(["bash", "-c", command])
    assert done.out.startswith("node_id")
    assert "Traceback" not in done.err
