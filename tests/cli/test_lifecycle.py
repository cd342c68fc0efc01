from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import skate
from skate._api import nodes
from tests.contract.support import eventually
from tests.plugins.command_line import PROGRAM_TIMEOUT_S, Cli

LOOK = """
import json, skate
skate.init(address="auto")
print(json.dumps([skate.cluster_resources(), skate.nodes()[0]["Labels"]]))
"""


def test_a_node_is_started_used_and_stopped(cli: Cli) -> None:
    folder = cli.process("start", "--head", "--num-cpus", "3").out.strip()
    assert os.path.isdir(folder)
    assert json.loads(cli.program(LOOK).out)[0]["CPU"] == 3
    assert "Stopped 1 node." in cli.process("stop").err
    assert not os.path.exists(folder)
    assert "No node was running." in cli("stop").err


def test_labels_are_read_from_a_file_too(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "labels.yaml"
    file.write_text('zone: a\nrack: "3"\n')
    cli("start", "--labels-file", str(file), "--labels", "zone=b")
    _, labels = json.loads(cli.program(LOOK).out)
    assert (labels["zone"], labels["rack"]) == ("b", "3")


def test_resources_and_labels_are_read_as_json_or_as_pairs(cli: Cli) -> None:
    cli(
        "start",
        "--resources",
        '{"disk": 2}',
        "--labels",
        "zone=a,rack=3",
        "--object-store-memory",
        "100000000",
    )
    resources, labels = json.loads(cli.program(LOOK).out)
    assert resources["disk"] == 2
    assert resources["object_store_memory"] == 100_000_000
    assert (labels["zone"], labels["rack"]) == ("a", "3")
    cli("stop")
    cli("start", "--resources", "disk=2.5,slot=1", "--labels", '{"zone": "b"}')
    resources, labels = json.loads(cli.program(LOOK).out)
    assert (resources["disk"], resources["slot"], labels["zone"]) == (2.5, 1, "b")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--resources", "{"], 2, "neither JSON"),
        (["--resources", "[1]"], 2, "neither JSON|not an object"),
        (["--num-cpus", "-1"], 1, "num_cpus must be a finite number that is not negative"),
        (["--resources", '{"CPU": 1}'], 1, "num_cpus"),
        (["--object-store-memory", "0"], 1, "object_store_memory must be a positive"),
        (["--address", "1.2.3.4:6379"], 2, "cannot join other nodes"),
        (["--labels", "a b=c"], 1, "label"),
    ],
)
def test_what_cannot_be_right_is_refused(cli: Cli, arguments: list[str], status: int, words: str) -> None:
    done = cli("start", *arguments, status=status)
    assert re.search(words, done.err), done.err
    assert "Traceback" not in done.err
    assert nodes.nodes() == []


def test_a_second_start_is_refused(cli: Cli, node: nodes.NodeRecord) -> None:
    assert "skate stop" in cli("start", status=1).err


def test_options_of_ray_without_a_meaning_are_accepted_and_named(cli: Cli) -> None:
    done = cli(
        "start", "--port", "6379", "--dashboard-host=0.0.0.0", "--disable-usage-stats", "--num-cpus", "1"
    )
    assert "--port is ignored" in done.err
    assert "--dashboard-host is ignored" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_a_signal_stops_the_node(cli: Cli, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "skate.cli", "start", "--block", "--num-cpus", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        folder = process.stdout.readline().strip()
        process.stderr.readline()  # it listens to signals soon after it has said how to attach
        (node,) = nodes.nodes()
        eventually(lambda: _handles(process.pid, number))
        process.send_signal(number)
        process.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert process.returncode == 0
    eventually(lambda: not psutil.pid_exists(node.pid), "init takes it off the table")
    assert not os.path.exists(folder)


def _handles(pid: int, number: int) -> bool:
    text = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:"))
    # Python handles SIGINT from the start, so look at one that only we handle.
    return bool(int(mask, 16) >> (signal.SIGHUP - 1) & 1)


def test_in_the_foreground_it_ends_with_the_node(cli: Cli) -> None:
    command = [sys.executable, "-m", "skate.cli", "start", "--block", "--num-cpus", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        cli("stop")
        process.communicate(timeout=PROGRAM_TIMEOUT_S)
        assert process.returncode == 0


@pytest.mark.parametrize("flags", [[], ["--force"], ["--grace-period", "0.1"]])
def test_stopping_leaves_no_process(cli: Cli, node: nodes.NodeRecord, flags: list[str]) -> None:
    cli.program("import skate; skate.init('auto'); skate.get(skate.remote(lambda: 1).remote())")
    everyone = [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]
    cli("stop", *flags)
    assert [p for p in everyone if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def test_stopping_everything_stops_programs_nodes_too(cli: Cli) -> None:
    skate.init(num_cpus=1)
    assert "No node was running." in cli("stop").err
    assert "Stopped 1 node." in cli("stop", "--all").err
    skate.shutdown()


def test_status_shows_resources_and_who_uses_them(cli: Cli, node: nodes.NodeRecord) -> None:
    skate.init(address="auto")

    @skate.remote(num_cpus=1)
    class Busy:
        def ping(self) -> int:
            return os.getpid()

    busy = Busy.remote()
    pid = skate.get(busy.ping.remote())
    text = cli.process("status").out
    assert f"pid {node.pid}, long-lived" in text
    assert "1 ALIVE" in text
    assert "CPU 1 2" in [" ".join(line.split()) for line in text.splitlines()]
    assert f"{pid} WORKER Busy (actor)" in [
        " ".join(line.split()) for line in cli("status", "-v").out.splitlines()
    ]


def test_without_a_node_a_command_says_how_to_get_one(cli: Cli) -> None:
    for command in (
        ["status"],
        ["list", "actors"],
        ["kill-actor", "x"],
        ["memory"],
        ["metrics"],
        ["timeline"],
        ["stack"],
        ["logs"],
        ["debug"],
    ):
        done = cli(*command, status=1)
        assert done.out == ""
        assert done.err.startswith("Error: No Skate node is running")
        assert "skate start" in done.err
        assert done.err.count("\n") == 1
