"""Trials that take milliseconds: a second one waits for a busy worker, and is not lost or blamed there."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune._loop.worker_pool import WorkerPool

Fit = Callable[..., tune.ResultGrid]
ENGINES = ["local"]

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The workers that a second trial was sent to."""
    found: list[Any] = []
    queue = WorkerPool.queue

    def record(pool: WorkerPool, resources: Any, kind: int) -> Any:
        worker = queue(pool, resources, kind)
        if worker is not None:
            found.append(worker)
        return worker

    monkeypatch.setattr(WorkerPool, "queue", record)
    return found


def test_trials_wait_for_fast_workers(fit: Fit, queued: list[Any]) -> None:
    results = fit(lambda config: {"x": config["x"]}, {"x": tune.grid_search(list(range(60)))})
    assert [result.metrics["x"] for result in results] == list(range(60))
    assert queued


def test_a_trial_that_waits_for_one_that_reports_starts_elsewhere(fit: Fit, queued: list[Any]) -> None:
    def function(config: dict[str, Any]) -> None:
        for step in range(1 if config["x"] < 30 else 3):
            tune.report({"x": config["x"], "step": step})

    results = fit(function, {"x": tune.grid_search(list(range(40)))})
    assert [(r.metrics["x"], r.metrics["training_iteration"]) for r in results] == [
        (x, 1 if x < 30 else 3) for x in range(40)
    ]


def test_a_trial_that_waits_for_a_worker_that_dies_is_not_failed(
    fit: Fit, queued: list[Any], tmp_path: Path
) -> None:
    def function(config: dict[str, Any]) -> dict[str, int]:
        if config["x"] == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"x": config["x"]}

    results = fit(function, {"x": tune.grid_search(list(range(60)))})
    assert len(results.errors) == 1
    assert sorted(result.metrics["x"] for result in results if result.error is None) == [
        x for x in range(60) if x != 30
    ]
    assert queued


def test_a_search_that_learns_from_results_is_not_asked_ahead(fit: Fit, queued: list[Any]) -> None:
    pytest.importorskip("optuna")
    from skate.tune.search.optuna import OptunaSearch

    search = OptunaSearch(seed=1)
    fit(
        lambda config: {"loss": config["x"]},
        {"x": tune.uniform(0, 1)},
        num_samples=30,
        search_alg=search,
        metric="loss",
        mode="min",
    )
    assert not queued


def test_the_last_result_in_the_file_is_marked_as_done(fit: Fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        for step in range(5):
            tune.report({"step": step})

    results = fit(function, {"x": tune.grid_search([0, 1])}, run={"stop": {"training_iteration": 3}})
    for result in results:
        lines = Path(result.path, "result.json").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        assert [(row["step"], row["done"], row["trial_id"], row["config"]) for row in rows] == [
            (step, step == 2, result.metrics["trial_id"], result.config) for step in range(3)
        ]
        assert json.loads(Path(result.path, "params.json").read_text(encoding="utf-8")) == result.config


def test_the_files_of_a_trial_are_created_while_its_function_runs(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> dict[str, int]:
        folder = Path(tune.get_context().get_trial_dir())
        while not {"params.json", "result.json"} <= set(os.listdir(folder)):
            time.sleep(0.001)
        return {"x": config["x"]}

    results = fit(function, {"x": tune.grid_search([0, 1])})
    assert [result.error for result in results] == [None, None]


def test_the_result_of_a_trial_that_deletes_its_file_is_stored(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> dict[str, int]:
        path = Path(tune.get_context().get_trial_dir(), "result.json")
        while not path.exists():
            time.sleep(0.001)
        path.unlink()
        return {"x": config["x"]}

    (result,) = fit(function, {"x": tune.grid_search([7])})
    assert json.loads(Path(result.path, "result.json").read_text(encoding="utf-8"))["x"] == 7
