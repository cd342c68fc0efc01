"""Runs of datasets, training and tuning, from the records that they leave."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import skate
from tests.dashboard.support import Page


@pytest.fixture
def folder(session: None) -> Path:
    folder = Path(skate.get_runtime_context().get_session_dir()) / "runs"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    return folder


def write(folder: Path, id: str, **fields: Any) -> None:
    record = {
        "kind": "train",
        "name": "fit",
        "status": "RUNNING",
        "started": 1.0,
        "ended": None,
        "pid": os.getpid(),
        "summary": "loss 0.5",
        **fields,
    }
    (folder / f"{id}.json").write_text(json.dumps(record))


async def test_runs_are_listed_the_latest_first(page: Page, folder: Path) -> None:
    write(folder, "a", started=1.0, metrics={"time": [1.0]})
    write(folder, "b", started=2.0, kind="data", status="FINISHED", ended=3.0)
    runs = (await page.get("/state/runs"))["runs"]
    assert [(run["id"], run["kind"], run["status"]) for run in runs] == [
        ("b", "data", "FINISHED"),
        ("a", "train", "RUNNING"),
    ]
    assert "metrics" not in runs[1]
    assert (await page.get("/state/runs/a"))["metrics"] == {"time": [1.0]}


async def test_a_run_whose_process_is_gone_was_interrupted(page: Page, folder: Path) -> None:
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await done.wait()
    write(folder, "a", pid=done.pid)
    assert (await page.get("/state/runs/a"))["status"] == "INTERRUPTED"


async def test_a_record_that_cannot_be_read_is_left_out(page: Page, folder: Path) -> None:
    (folder / "half.json").write_text('{"kind": "da')
    (folder / "list.json").write_text("[]")
    write(folder, "a")
    assert [run["id"] for run in (await page.get("/state/runs"))["runs"]] == ["a"]
    await page.get("/state/runs/half", status=404)


@pytest.mark.parametrize("id", ["nothing", "..%2Flock", "%2e%2e"])
async def test_an_unknown_run_does_not_exist(page: Page, folder: Path, id: str) -> None:
    await page.get(f"/state/runs/{id}", status=404)
