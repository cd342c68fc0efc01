"""The memory view: who holds which bytes, and where they were created."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import skate
from skate.util import state
from tests.dashboard.support import Page

pytestmark = pytest.mark.usefixtures("session")
SIZE = 2_000_000


@skate.remote
class Keeper:
    def keep(self, references: list[Any]) -> int:
        self.references = references
        return os.getpid()

    def map(self) -> int:
        self.value = skate.get(self.references[0])
        return int(self.value[0])


async def test_objects_are_shown_with_their_holders(page: Page) -> None:
    kept = skate.put(np.zeros(SIZE, np.uint8))
    keeper = Keeper.remote()
    pid = skate.get(keeper.keep.remote([kept]))
    skate.get(keeper.map.remote())
    found = await page.eventually(
        "/state/memory?limit=5",
        lambda data: any(
            holder["kind"] == "MAPPED" for each in data["objects"] for holder in each["holders"]
        ),
    )
    largest = found["objects"][0]
    assert largest["id"] == kept.hex()
    assert largest["size"] >= SIZE
    assert largest["owner_pid"] == os.getpid()
    assert largest["pinned"]
    assert not largest["spilled"]
    assert largest["created_at"] is None
    holders = {(each["pid"], each["kind"]) for each in largest["holders"]}
    assert {(os.getpid(), "LOCAL_REFERENCE"), (pid, "LOCAL_REFERENCE"), (pid, "MAPPED")} <= holders
    processes = {each["pid"]: each for each in found["processes"]}
    assert processes[pid]["title"] == "actor Keeper"
    assert processes[pid]["bytes"] >= SIZE
    assert processes[pid]["mapped"] >= SIZE
    assert processes[os.getpid()]["rss"] > processes[os.getpid()]["uss"] > 0
    assert found["mapped"] >= SIZE
    assert found["budget"] >= found["used"] >= SIZE


async def test_an_argument_of_a_waiting_task_is_held_by_it(page: Page) -> None:
    @skate.remote(resources={"missing": 0})
    def use(value: Any, after: Any) -> None: ...

    @skate.remote
    def never() -> None:
        import time

        time.sleep(100)

    before = never.remote()
    waiting = use.remote(skate.put(np.ones(SIZE, np.uint8)), before)
    found = await page.eventually(
        "/state/memory",
        lambda data: any(
            holder["kind"] == "USED_BY_PENDING_TASK"
            for each in data["objects"]
            if each["size"] >= SIZE
            for holder in each["holders"]
        ),
    )
    assert found["processes"]
    skate.cancel(before, force=True)
    with pytest.raises(skate.exceptions.RayError):
        skate.get(waiting)


async def test_the_state_api_and_the_page_agree(page: Page) -> None:
    kept = [skate.put(np.zeros(SIZE + n, np.uint8)) for n in range(3)]
    found = await page.get("/state/memory?limit=2")
    same = state.memory(limit=2)
    assert [each["id"] for each in found["objects"]] == [each["id"] for each in same["objects"]]
    assert len(same["objects"]) == 2
    assert same["total"] >= len(kept)


def test_the_line_that_created_an_object_is_recorded_on_request() -> None:
    program = """
import skate
from skate.util import state

skate.init(num_cpus=1, log_to_driver=False)

@skate.remote
def inner():
    return [skate.put(bytes(300_000))]

kept = skate.put(bytes(200_000))
made = inner.remote()
nested = skate.get(made)
for each in state.memory()["objects"]:
    print(each["size"] // 100_000, each["created_at"])
for row in state.list_objects():
    print(row.call_site)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "RAY_record_ref_creation_sites": "1"},
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "3 <string>:9"
    assert lines[1] == "2 <string>:11"
    assert "<string>:12" in lines
