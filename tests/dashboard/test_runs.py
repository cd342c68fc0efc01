"""Runs of datasets, training and tuning, from their records, which tests/util/test_run_records.py tests."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

import skate
from skate.util._run_records import RunRecord
from tests.dashboard.support import Page

DIES = """
import os, sys, time, skate
from skate.util._run_records import RunRecord

skate.init(address=sys.argv[1], log_to_driver=False)
record = RunRecord("tune", "search", dict)
record.publish_if_due(time.monotonic() + 3600)
os.kill(os.getpid(), 9)
"""


async def test_runs_are_listed_the_latest_first(page: Page) -> None:
    record = RunRecord("train", "fit", lambda: {"summary": "loss 0.5", "metrics": {"time": [1.0]}})
    record.publish_if_due(time.monotonic() + 3600)
    other = RunRecord("data", "read", lambda: {"summary": "3 rows"})
    other.close("FINISHED")
    runs = (await page.get("/state/runs"))["runs"]
    assert [(run["id"], run["kind"], run["status"]) for run in runs[:2]] == [
        (other.id, "data", "FINISHED"),
        (record.id, "train", "RUNNING"),
    ]
    assert "metrics" not in runs[1]
    assert (await page.get(f"/state/runs/{record.id}"))["metrics"] == {"time": [1.0]}
    record.close("FAILED", ValueError("on purpose"))
    found = await page.get(f"/state/runs/{record.id}")
    assert found["status"] == "FAILED"
    assert "on purpose" in found["error"]


async def test_a_run_whose_process_is_gone_was_interrupted(page: Page) -> None:
    session = skate.get_runtime_context().get_session_dir()
    dying = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, session)
    await dying.wait()
    (run,) = [run for run in (await page.get("/state/runs"))["runs"] if run["kind"] == "tune"]
    assert run["status"] == "INTERRUPTED"


@pytest.mark.parametrize("id", ["nothing", "..%2Flock", "%2e%2e"])
async def test_an_unknown_run_does_not_exist(page: Page, id: str) -> None:
    await page.get(f"/state/runs/{id}", status=404)
