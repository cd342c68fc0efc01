"""What the run record of an experiment says: trials, parameters and the best result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from skate import tune
from skate.tune._views import run_description
from skate.tune._views.run_description import RunDescription
from skate.tune.experiment import Trial
from skate.util import _session
from skate.util._run_records import read_run, read_runs


def make(number: int, status: str = Trial.RUNNING, **result: Any) -> Trial:
    trial = Trial(
        "train",
        trial_id=str(number),
        config={"model": {"lr": number / 10}, "data": object()},
        evaluated_params={"model/lr": number / 10},
    )
    trial.set_status(status)
    if result:
        trial.update_last_result({"training_iteration": 3, "time_total_s": 1.5, "pid": 7, **result})
    return trial


def describe(*trials: Trial, mode: str = "min") -> dict[str, Any]:
    found = RunDescription(lambda: trials, "loss", mode)()
    json.dumps(found, allow_nan=False)
    return found


def test_an_experiment_without_trials_is_described() -> None:
    found = describe()
    assert (found["summary"], found["trials"], found["best"]) == ("no trials yet", [], None)


def test_a_trial_has_its_parameters_and_its_own_metrics() -> None:
    [row] = describe(make(1, loss=0.5, eval={"loss": 2}, note="text", good=True))["trials"]
    assert row == {
        "id": "1",
        "status": "RUNNING",
        "config": {"model/lr": 0.1, "data": "object"},
        "iteration": 3,
        "time_total_s": 1.5,
        "metrics": {"loss": 0.5, "eval/loss": 2},
        "error": None,
    }


def test_a_failed_trial_has_the_last_line_of_its_error() -> None:
    trial = make(1, Trial.ERROR)
    trial.error = ValueError("Traceback\n  somewhere\nValueError: bad batch")
    assert describe(trial)["trials"][0]["error"] == "ValueError: bad batch"


@pytest.mark.parametrize(("mode", "best"), [("min", "2"), ("max", "1")])
def test_the_best_trial_has_the_best_last_result(mode: str, best: str) -> None:
    trials = [make(1, loss=0.5), make(2, Trial.TERMINATED, loss=0.25), make(3, loss=math.nan), make(4)]
    found = describe(*trials, mode=mode)
    assert found["best"] == best
    assert found["summary"].startswith("3 running, 1 terminated; best loss 0.")


def test_the_parameters_are_those_that_were_sampled() -> None:
    assert describe(make(1))["parameters"] == ["model/lr"]
    fixed = Trial("train", config={"lr": 1, "depth": 2})
    assert describe(fixed)["parameters"] == ["lr", "depth"]


def test_the_latest_trials_are_kept_and_the_best_of_all_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_description, "_MAX_TRIALS", 3)
    found = describe(*(make(number, loss=number) for number in range(10)))
    assert [row["id"] for row in found["trials"]] == ["7", "8", "9"]
    assert (found["best"], found["trials_total"]) == ("0", 10)


def test_a_trial_that_has_changed_is_described_anew() -> None:
    trial = make(1, loss=0.5)
    description = RunDescription(lambda: [trial], "loss", "min")
    before = description()["trials"][0]
    assert description()["trials"][0] is before
    trial.update_last_result({"loss": 0.25})
    assert description()["trials"][0]["metrics"] == {"loss": 0.25}
    trial.set_status(Trial.TERMINATED)
    assert description()["trials"][0]["status"] == "TERMINATED"
    trial.set_config({"lr": 3})
    assert description()["trials"][0]["config"] == {"lr": 3}


@pytest.mark.usefixtures("engine")
def test_an_experiment_leaves_a_record(fit: Callable[..., tune.ResultGrid], engine_name: str) -> None:
    def function(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"]})

    results = fit(function, {"x": tune.grid_search([3, 1, 2])}, metric="loss", mode="min")
    assert results.get_best_result().metrics["loss"] == 1  # type: ignore[index]
    folder = _session.session_folder()
    if engine_name != "local":
        assert folder is None
        return
    assert folder is not None
    [row] = read_runs(folder)
    assert (row["kind"], row["name"], row["status"]) == ("tune", "experiment", "FINISHED")
    assert row["summary"] == "3 terminated; best loss 1"
    found = read_run(folder, row["id"])
    assert found is not None
    assert sorted(each["config"]["x"] for each in found["trials"]) == [1, 2, 3]
    assert found["parameters"] == ["x"]
