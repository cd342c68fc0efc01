"""What the run record of a training run says: workers, curves and checkpoints."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate import train
from skate.train import Result, RunConfig
from skate.train._failures.errors import TrainingFailedError
from skate.train._reports.report_ledger import KeptCheckpoint
from skate.train._views.run_description import RunDescription, ThinnedSeries
from skate.train._views.run_progress import RunProgress
from skate.util import _session
from skate.util._run_records import read_run, read_runs
from tests.train.checkpoints import write_checkpoint


@given(count=st.integers(0, 500), most=st.integers(3, 40))
def test_a_series_keeps_its_ends_its_order_and_its_bound(count: int, most: int) -> None:
    series = ThinnedSeries[int](most)
    for number in range(count):
        series.add(number)
        points = series.points()
        assert (points[0], points[-1]) == (0, number)
        assert len(points) <= most
        assert points == sorted(set(points))
    kept = series.points()
    if count < most:
        assert kept == list(range(count))
    else:
        steps = {after - before for before, after in itertools.pairwise(kept[:-1])}
        assert len(steps) <= 1  # evenly spaced, but for the last point
        assert len(kept) >= most // 2


@given(count=st.integers(0, 200), limit=st.integers(0, 200))
def test_the_points_of_a_repeated_part_are_dropped(count: int, limit: int) -> None:
    series = ThinnedSeries[int](10)
    for number in range(count):
        series.add(number)
    expected = [each for each in series.points() if each < limit]
    series.truncate(lambda number: number < limit)
    assert series.points() == expected
    for number in range(limit, limit + 20):
        series.add(number)
        points = series.points()
        assert points[-1] == number
        assert points == sorted(set(points))
        assert len(points) <= 10


def test_a_series_can_be_read_while_points_are_added() -> None:
    series = ThinnedSeries[int](8)
    ended = threading.Event()

    def add() -> None:
        for number in range(20_000):
            series.add(number)
        ended.set()

    thread = threading.Thread(target=add)
    thread.start()
    while not ended.is_set():
        points = series.points()
        assert points == sorted(set(points))
    thread.join()


@pytest.fixture
def description() -> RunDescription:
    kept = [KeptCheckpoint(1, "checkpoint_000001", {"loss": 0.5, "note": "text"})]
    return RunDescription(RunProgress("run"), lambda: kept, lambda name: f"/runs/run/{name}")


def test_a_run_that_starts_says_so(description: RunDescription) -> None:
    assert description()["summary"] == "starting"
    assert description()["metrics"] == {"time": [], "iteration": [], "values": {}}


def test_the_metrics_of_rank_0_are_the_curves(description: RunDescription) -> None:
    description.reported(0, 0, {"loss": 1.0})
    description.reported(1, 0, {"loss": 9.0})
    description.reported(0, 1, {"loss": math.nan, "eval/loss": 2.0})
    found = description()
    assert found["metrics"]["iteration"] == [0, 1]
    assert found["metrics"]["values"] == {"loss": [1.0, None], "eval/loss": [None, 2.0]}
    assert found["summary"] == "report 1: loss nan, eval/loss 2"
    json.dumps(found, allow_nan=False)


def test_reports_that_are_made_again_replace_the_earlier_ones(description: RunDescription) -> None:
    for number in range(4):
        description.reported(0, number, {"loss": number})
    description.attempt_started(2)
    description.reported(0, 2, {"loss": 7})
    assert description()["metrics"]["values"] == {"loss": [0.0, 1.0, 7.0]}


def test_workers_have_a_status(description: RunDescription) -> None:
    description.workers_started([(0, 11, "node"), (1, 12, "node"), (2, 13, "node")])
    description.worker_ended(1, "failed")
    description.worker_ended(0, "finished")
    assert description()["workers"][0] == {"rank": 0, "pid": 11, "node": "node", "status": "finished"}
    description.group_ended()
    assert [each["status"] for each in description()["workers"]] == ["finished", "failed", "stopped"]


def test_checkpoints_have_their_paths_and_numbers(description: RunDescription) -> None:
    assert description()["checkpoints"] == [
        {"path": "/runs/run/checkpoint_000001", "iteration": 1, "metrics": {"loss": 0.5}}
    ]


def latest_run() -> dict[str, Any]:
    folder = _session.session_folder()
    assert folder is not None
    found = read_run(folder, read_runs(folder)[-1]["id"])
    assert found is not None
    return found


@pytest.mark.usefixtures("engine")
def test_a_run_leaves_a_record(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig], engine_name: str
) -> None:
    def function() -> None:
        for step in range(3):
            train.report({"loss": 1 / (step + 1)}, checkpoint=write_checkpoint(step=str(step)))

    result = fit(function, run=run_config("recorded"))
    if engine_name != "local":
        return
    found = latest_run()
    assert (found["kind"], found["name"], found["status"]) == ("train", "recorded", "FINISHED")
    assert [(each["rank"], each["status"]) for each in found["workers"]] == [
        (0, "finished"),
        (1, "finished"),
    ]
    assert found["metrics"]["iteration"] == [0, 1, 2]
    assert found["checkpoints"][-1]["path"] == result.checkpoint.path  # type: ignore[union-attr]


@pytest.mark.usefixtures("engine")
def test_a_run_that_fails_says_why_in_its_record(fit: Callable[..., Result], engine_name: str) -> None:
    def function() -> None:
        train.report({"loss": 1})
        raise ValueError("bad batch")

    with pytest.raises(TrainingFailedError):
        fit(function, 1)
    if engine_name == "local":
        found = latest_run()
        assert found["status"] == "FAILED"
        assert "bad batch" in found["error"]
        assert [each["status"] for each in found["workers"]] == ["failed"]


@pytest.mark.usefixtures("engine")
def test_a_run_in_this_process_leaves_a_record(fit: Callable[..., Result], engine_name: str) -> None:
    fit(lambda: train.report({"loss": 1}), 0)
    if engine_name == "local":
        found = latest_run()
        assert (found["status"], found["workers"][0]["status"]) == ("FINISHED", "finished")
        assert found["workers"][0]["pid"] == found["pid"]
