"""Limits on processes and memory that the kernel enforces: what runs continues, and a refused start names the limit."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.chaos import attacks
from tests.chaos.control_groups import ControlGroup, control_group

PROGRAM_TIMEOUT_S = 120.0


def run(body: str, group: ControlGroup) -> Any:
    """Run a program in a control group; return what it reports as JSON on its last line."""
    attacks.record()
    program = "import json, os, sys, time\nimport skate\n" + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=True,
        preexec_fn=group.enter,
    )
    return json.loads(done.stdout.splitlines()[-1])


CROWD = """
    skate.init(num_cpus=2)

    @skate.remote(num_cpus=0)
    class Actor:
        def pid(self):
            return os.getpid()

    @skate.remote
    def double(number):
        return 2 * number

    first = Actor.remote()
    before = skate.get(first.pid.remote())
    crowd = [Actor.remote() for _ in range(40)]
    calls = [actor.pid.remote() for actor in crowd]
    outcomes = []
    for call in calls:
        try:
            outcomes.append(skate.get(call))
        except skate.exceptions.ActorDiedError as error:
            outcomes.append(str(error))
    texts = [outcome for outcome in outcomes if isinstance(outcome, str)]
    pids = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    same = skate.get(first.pid.remote()) == before
    for actor, outcome in zip(crowd, outcomes):
        if outcome in pids:
            skate.kill(actor)
    del actor, crowd, calls
    doubled = skate.get([double.remote(number) for number in range(20)])
    again = skate.get(Actor.remote().pid.remote())
    print(json.dumps(dict(texts=texts, pids=pids, same=same, doubled=doubled, again=again)))
"""


def check_crowd(report: dict[str, Any], limit: str) -> None:
    assert report["same"], "the actor that was there first has suffered"
    assert report["texts"], "the limit was not reached"
    assert len(set(report["pids"])) == len(report["pids"]) > 0
    for text in report["texts"]:
        assert "no further process or thread" in text
        assert "out-of-memory" not in text
        assert limit in text
    assert report["doubled"] == [2 * number for number in range(20)]
    assert report["again"]


@pytest.mark.chaos
def test_a_limit_on_processes_fails_only_the_actors_beyond_it() -> None:
    with control_group("pids", 24) as group:
        check_crowd(run(CROWD, group), f"{group.folder}/pids.max = 24")


@pytest.mark.chaos
def test_a_session_without_room_for_its_node_says_so() -> None:
    program = """
        try:
            skate.init(num_cpus=1)
            print(json.dumps("started"))
        except Exception as error:
            print(json.dumps(repr(error)))
    """
    with control_group("pids", 1) as group:
        text = run(program, group)
        assert f"{group.folder}/pids.max = 1" in text


HOGS = """
    skate.init(num_cpus=4, _system_config={"memory_usage_threshold": 0.8, "memory_monitor_refresh_ms": 50})

    @skate.remote(max_retries=0)
    def hog(megabytes):
        held = [b"x" * (1 << 20) for _ in range(megabytes)]
        time.sleep(600)

    @skate.remote
    def modest(number):
        time.sleep(0.05)
        return number

    @skate.remote(num_cpus=0)
    class Keeper:
        def __init__(self):
            self.kept = b"x" * (20 << 20)

        def size(self):
            return len(self.kept)

    keeper = Keeper.remote()
    size = skate.get(keeper.size.remote())
    kinds, texts = [], []
    for _ in range(3):
        numbers = [modest.remote(number) for number in range(40)]
        try:
            skate.get(hog.remote(2000))
        except skate.exceptions.RayError as error:
            kinds.append(type(error).__name__)
            texts.append(str(error))
        assert skate.get(numbers) == list(range(40))
    same = skate.get(keeper.size.remote()) == size
    print(json.dumps(dict(kinds=kinds, texts=texts, same=same)))
"""


@pytest.mark.chaos
def test_a_task_that_takes_all_memory_ends_alone() -> None:
    with control_group("memory", 1 << 30) as group:
        report = run(HOGS, group)
        assert report["kinds"] == ["OutOfMemoryError"] * 3
        assert report["same"]
        for text in report["texts"]:
            assert f"the control group {group.folder} allows" in text
            assert "task hog" in text
