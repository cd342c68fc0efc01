"""Which trials share a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune.schedulers import FIFOScheduler, TrialScheduler

Fit = Callable[..., tune.ResultGrid]
ENGINES = ["local"]

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


class Pausing(FIFOScheduler):
    """Pauses a trial after each result."""

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return TrialScheduler.PAUSE


class Process(tune.Trainable):
    """Reports its process, twice."""

    def step(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "done": self.iteration == 1}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing has to be saved."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing was saved."""


def report_process(config: dict[str, Any]) -> None:
    tune.report({"pid": os.getpid()})
    tune.report({"pid": os.getpid(), "done": True})


def processes(results: tune.ResultGrid) -> list[int]:
    return [result.metrics["pid"] for result in results]


@pytest.mark.parametrize("trainable", [report_process, Process])
def test_without_reuse_each_trial_has_its_own_process(fit: Fit, trainable: Any) -> None:
    results = fit(trainable, {"x": tune.grid_search([1, 2, 3])}, reuse_actors=False, max_concurrent_trials=1)
    assert len(set(processes(results))) == 3


def test_without_reuse_a_paused_trial_continues_in_a_new_process(fit: Fit, tmp_path: Path) -> None:
    class Recording(Process):
        def step(self) -> dict[str, Any]:
            with open(tmp_path / "processes", "a", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
            return super().step()

    fit(Recording, reuse_actors=False, scheduler=Pausing())
    first, second = (tmp_path / "processes").read_text(encoding="utf-8").split()
    assert first != second


@pytest.mark.parametrize("reuse", [None, True])
def test_trials_one_after_another_share_a_process(fit: Fit, reuse: bool | None) -> None:
    results = fit(
        report_process,
        {"x": tune.grid_search([1, 2, 3, 4])},
        reuse_actors=reuse,
        max_concurrent_trials=1,
    )
    assert len(set(processes(results))) == 1


def test_a_trial_starts_after_the_cleanup_of_one_before_it(fit: Fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        running = tmp_path / "running"
        running.touch(exist_ok=False)
        try:
            tune.report({"x": config["x"], "done": True})
        finally:
            threading.Event().wait(0.1)  # a slow cleanup
            running.unlink()

    results = fit(function, {"x": tune.grid_search([1, 2, 3])}, max_concurrent_trials=1)
    assert not results.errors


def test_the_process_of_a_failed_trial_runs_no_other_trial(fit: Fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / f"process-{config['x']}").write_text(str(os.getpid()), encoding="utf-8")
        if config["x"] == 2:
            raise ValueError("two")
        return {"pid": os.getpid()}

    results = fit(function, {"x": tune.grid_search([1, 2, 3, 4])}, max_concurrent_trials=1)
    assert results.num_errors == 1
    first, failed, third, fourth = (
        (tmp_path / f"process-{x}").read_text(encoding="utf-8") for x in (1, 2, 3, 4)
    )
    assert first == failed
    assert third != failed
    assert third == fourth
