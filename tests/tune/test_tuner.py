"""Experiments from their start to their results: trials, reports, checkpoints, failures and budgets."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import skate
from skate import tune
from skate.exceptions import OutOfMemoryError, RayTaskError
from skate.tune.result_grid import ResultGrid
from skate.tune.schedulers import ASHAScheduler, PopulationBasedTraining

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("engine")]

Fit = Callable[..., ResultGrid]


def parabola(config: dict[str, Any]) -> dict[str, float]:
    return {"loss": (config["x"] - 3) ** 2}


def curve(config: dict[str, Any]) -> None:
    for step in range(1, 11):
        tune.report({"score": config["x"] * step})


class Counting(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.value = config.get("start", 0)

    def step(self) -> dict[str, Any]:
        self.value += self.config.get("by", 1)
        return {"value": self.value, "done": self.value >= self.config.get("end", 5)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "value").write_text(str(self.value), encoding="utf-8")

    def load_checkpoint(self, checkpoint: str) -> None:
        self.value = int(Path(checkpoint, "value").read_text(encoding="utf-8"))


def save(step: int) -> tune.Checkpoint:
    folder = tempfile.mkdtemp()
    Path(folder, "step").write_text(str(step), encoding="utf-8")
    return tune.Checkpoint.from_directory(folder)


def resumed() -> int:
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(Path(folder, "step").read_text(encoding="utf-8"))


def test_every_point_of_a_grid_is_a_trial(fit: Fit) -> None:
    results = fit(parabola, {"x": tune.grid_search([1, 2, 3, 4])}, metric="loss", mode="min")
    assert [result.config["x"] for result in results] == [1, 2, 3, 4]
    assert results.get_best_result().config == {"x": 3}
    assert (results.num_terminated, results.num_errors, results.errors) == (4, 0, [])


def test_a_function_reports_and_its_history_is_a_table(fit: Fit) -> None:
    (result,) = fit(curve, {"x": 2})
    assert result.metrics["score"] == 20
    assert result.metrics["training_iteration"] == 10
    assert result.metrics["config"] == {"x": 2}
    assert list(result.metrics_dataframe["score"]) == [2 * step for step in range(1, 11)]


def test_a_number_that_a_function_returns_is_its_metric(fit: Fit) -> None:
    (result,) = fit(lambda config: 0.5)
    assert result.metrics["_metric"] == 0.5


def test_a_class_is_trained_until_it_is_done(fit: Fit) -> None:
    (result,) = fit(Counting, {"start": 2})
    assert result.metrics["value"] == 5
    assert result.metrics["training_iteration"] == 3


def test_a_trial_stops_at_the_values_of_its_criterion(fit: Fit) -> None:
    (result,) = fit(curve, {"x": 1}, run={"stop": {"score": 4}})
    assert result.metrics["score"] == 4
    (result,) = fit(Counting, {"end": 1000}, run={"stop": {"training_iteration": 7}, "name": "other"})
    assert result.metrics["value"] == 7


def test_a_function_that_is_stopped_runs_its_cleanup(fit: Fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        try:
            for step in range(100):
                tune.report({"step": step})
        finally:
            (tmp_path / "cleaned").touch()

    fit(function, run={"stop": {"step": 2}})
    assert (tmp_path / "cleaned").exists()


def test_asha_ends_bad_trials_early_and_keeps_the_best(fit: Fit) -> None:
    results = fit(
        curve,
        {"x": tune.grid_search([8, 7, 6, 5, 4, 3, 2, 1])},
        metric="score",
        mode="max",
        scheduler=ASHAScheduler(max_t=10, grace_period=1, reduction_factor=2),
        max_concurrent_trials=1,
    )
    assert results.get_best_result().config == {"x": 8}
    assert results.get_best_result().metrics["training_iteration"] == 10
    assert sum(result.metrics["training_iteration"] for result in results) < 40


def test_population_based_training_copies_checkpoints_and_mutates(fit: Fit) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"by": [1, 10]},
        quantile_fraction=0.5,
        synch=True,
        seed=0,
    )
    results = fit(
        Counting,
        {"by": tune.grid_search([1, 10]), "end": 10_000},
        metric="value",
        mode="max",
        scheduler=scheduler,
        run={"stop": {"training_iteration": 12}},
    )
    assert results.num_errors == 0
    assert (
        min(result.metrics["value"] for result in results) > 12
    )  # more than 12 steps of 1: it was exploited
    assert [result.metrics["training_iteration"] for result in results] == [12, 12]


def test_the_exception_of_a_failed_trial_is_in_its_result_and_others_continue(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> dict[str, int]:
        if config["x"] == 2:
            raise ValueError("two")
        return {"x": config["x"]}

    results = fit(function, {"x": tune.grid_search([1, 2, 3])})
    assert (results.num_terminated, results.num_errors) == (2, 1)
    assert isinstance(results[1].error, RayTaskError)
    assert "two" in str(results[1].error)
    assert results[2].metrics["x"] == 3


def test_a_failed_trial_is_restarted_from_its_latest_checkpoint(fit: Fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        first = resumed()
        for step in range(first + 1, 6):
            if step == 4 and first == 0:
                raise ValueError("once")
            tune.report({"step": step, "first": first}, checkpoint=save(step))

    (result,) = fit(function, run={"failure_config": tune.FailureConfig(max_failures=1)})
    assert result.error is None
    assert (result.metrics["step"], result.metrics["first"]) == (5, 3)
    assert result.metrics["training_iteration"] == 5
    assert result.checkpoint is not None


def test_fail_fast_ends_the_experiment(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> None:
        raise ValueError("first")

    failing = tune.FailureConfig(fail_fast=True)
    results = fit(function, num_samples=50, max_concurrent_trials=1, run={"failure_config": failing})
    assert len(results) < 50
    with pytest.raises(ValueError, match="first"):
        fit(function, run={"failure_config": tune.FailureConfig(fail_fast="raise"), "name": "other"})


def test_a_metric_that_is_never_reported_is_named(fit: Fit) -> None:
    with pytest.raises(tune.TuneError, match=r"reported no 'accuracy'.*\['loss', "):
        fit(parabola, {"x": 1}, metric="accuracy", mode="max")


def test_a_trial_that_can_never_start_fails_with_what_there_is(fit: Fit) -> None:
    trainable = tune.with_resources(parabola, {"cpu": 1000})
    results = fit(trainable, {"x": 1})
    assert "needs {'CPU': 1000.0}, but the session has {'CPU': 4.0}" in str(results[0].error)


def test_large_objects_are_passed_to_every_trial(fit: Fit) -> None:
    def function(config: dict[str, Any], data: list[int], factor: int) -> dict[str, int]:
        return {"total": factor * sum(data)}

    results = fit(tune.with_parameters(function, data=list(range(10)), factor=2), num_samples=3)
    assert [result.metrics["total"] for result in results] == [90] * 3


def test_the_context_describes_the_trial(fit: Fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> dict[str, str]:
        context = tune.get_context()
        return {
            "id": context.get_trial_id(),
            "dir": context.get_trial_dir(),
            "name": context.get_trial_name(),
        }

    (result,) = fit(function)
    assert result.metrics["id"] == result.metrics["trial_id"]
    assert result.metrics["dir"] == result.path
    assert Path(result.path).parent == tmp_path / "experiment"
    assert json.loads(Path(result.path, "params.json").read_text(encoding="utf-8")) == {}


def test_callbacks_receive_the_events_in_order(fit: Fit) -> None:
    events: list[str] = []

    class Recording(tune.Callback):
        def on_trial_start(self, **info: Any) -> None:
            events.append("start")

        def on_trial_result(self, **info: Any) -> None:
            events.append(f"result {info['result']['value']}")

        def on_trial_complete(self, **info: Any) -> None:
            events.append("complete")

        def on_experiment_end(self, **info: Any) -> None:
            events.append("end")

    fit(Counting, {"end": 2}, run={"callbacks": [Recording()]})
    assert events == ["start", "result 1", "result 2", "complete", "end"]


def test_a_worker_that_is_killed_fails_its_trial_only(fit: Fit, engine: str) -> None:
    if engine == "inline":
        pytest.skip("trials run in this process")

    def function(config: dict[str, Any]) -> dict[str, int]:
        if config["x"] == 1:
            os.kill(os.getpid(), 9)
        return {"x": config["x"]}

    results = fit(function, {"x": tune.grid_search([0, 1, 2, 3])})
    assert [result.error is None for result in results] == [True, False, True, True]


@pytest.mark.parametrize("kind", ["function", "class"])
def test_only_the_checkpoints_that_are_asked_for_are_kept(fit: Fit, kind: str) -> None:
    def function(config: dict[str, Any]) -> None:
        for step, loss in enumerate([5, 1, 4, 3], 1):
            tune.report({"loss": loss}, checkpoint=save(step))

    class Stepping(Counting):
        def step(self) -> dict[str, Any]:
            super().step()
            return {"loss": [5, 1, 4, 3][self.value - 1], "done": self.value == 4}

    keep: dict[str, Any] = {
        "num_to_keep": 2,
        "checkpoint_score_attribute": "loss",
        "checkpoint_score_order": "min",
    }
    if kind == "class":
        keep["checkpoint_frequency"] = 1
    config = tune.CheckpointConfig(**keep)
    (result,) = fit(function if kind == "function" else Stepping, run={"checkpoint_config": config})
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [3, 1]  # the best is the last
    kept = sorted(path.name for path in Path(result.path).glob("checkpoint_*"))
    assert kept == ["checkpoint_000001", "checkpoint_000003"]
    assert Path(result.checkpoint.path).name == "checkpoint_000003"


def test_a_function_decides_itself_when_it_saves(fit: Fit) -> None:
    with pytest.raises(ValueError, match="`checkpoint_frequency` is for trainable classes"):
        fit(parabola, {"x": 1}, run={"checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=2)})


def test_the_only_result_is_the_best_without_a_metric(fit: Fit) -> None:
    assert fit(parabola, {"x": 1}).get_best_result().metrics["loss"] == 4


@pytest.mark.parametrize("changes", ["1", "0"])
def test_a_trial_works_in_its_folder(
    fit: Fit, engine: str, changes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", changes)

    def function(config: dict[str, Any]) -> dict[str, str | None]:
        return {"folder": os.getcwd(), "before": os.environ.get("TUNE_ORIG_WORKING_DIR")}

    results = fit(function, num_samples=2)
    for result in results:
        if engine == "inline" or changes == "0":
            assert result.metrics["folder"] == os.getcwd()
        else:
            assert result.metrics["folder"] == os.path.realpath(result.path)
            assert result.metrics["before"] == os.getcwd()


@pytest.mark.usefixtures("engine")
def test_an_action_at_the_end_of_a_function_learns_whether_it_failed(fit: Fit, tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        from skate.tune._workers.session import need_session

        need_session("test").at_end(lambda failed: (tmp_path / str(config["x"])).write_text(str(failed)))
        if config["x"] == 1:
            raise ValueError("no")
        tune.report({"x": config["x"]})
        tune.report({"x": config["x"]})

    fit(function, {"x": tune.grid_search([0, 1, 2])}, run={"stop": lambda trial_id, result: result["x"] == 2})
    assert [(tmp_path / str(x)).read_text() for x in range(3)] == ["False", "True", "False"]


@pytest.mark.usefixtures("engine")
def test_a_trial_whose_result_cannot_be_written_fails_and_the_others_go_on(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> None:
        if config["x"] == 1:
            path = Path(tune.get_context().get_trial_dir(), "result.json")
            while not path.is_dir():  # its worker creates the file about now
                path.unlink(missing_ok=True)
                with suppress(FileExistsError):
                    path.mkdir()
        for _ in range(3):
            tune.report({"x": config["x"]})

    results = fit(function, {"x": tune.grid_search(list(range(6)))}, max_concurrent_trials=1)
    assert [result.error is None for result in results] == [x != 1 for x in range(6)]
    assert "IsADirectoryError" in str(results.errors[0])


def test_a_worker_that_is_killed_for_its_memory_fails_its_trial_only(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = skate.get
    error = OutOfMemoryError("the node is low on memory")

    def get(reference: Any) -> Any:
        value = got(reference)
        if value.report.metrics["loss"] == 1:
            raise error
        return value

    monkeypatch.setattr("skate.tune._loop.controller.skate.get", get)
    results = fit(parabola, {"x": tune.grid_search([0, 2, 5])})
    assert [result.error for result in results] == [None, error, None]


def test_a_trial_whose_folder_was_deleted_fails_and_the_others_go_on(fit: Fit, tmp_path: Path) -> None:
    class DeleteNext(tune.Callback):
        def on_trial_complete(self, trial: Any, **info: Any) -> None:
            if trial.config["x"] == 0:
                (folder,) = (tmp_path / "experiment").glob("*x=1")
                shutil.rmtree(folder)

    one_at_a_time = tune.with_resources(parabola, tune.PlacementGroupFactory([{"CPU": 1}] * 4))
    results = fit(one_at_a_time, {"x": tune.grid_search([0, 1, 2])}, run={"callbacks": [DeleteNext()]})
    assert [result.error is None for result in results] == [True, False, True]
    assert "x=1 does not exist on" in str(results.errors[0])
