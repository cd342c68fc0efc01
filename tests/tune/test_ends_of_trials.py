"""When trials end, what their last results say, and which metrics are required."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate import tune
from skate.tune.experiment import Experiment
from skate.tune.result_grid import ResultGrid
from skate.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler
from skate.tune.stopper import Stopper

pytestmark = pytest.mark.usefixtures("engine")
Fit = Callable[..., ResultGrid]


def test_a_report_may_say_that_it_is_the_last_one(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> None:
        tune.report({"step": 1})
        tune.report({"step": 2, "done": True})
        raise AssertionError("the function continues")

    (result,) = fit(function)
    assert result.error is None
    assert (result.metrics["step"], result.metrics["done"]) == (2, True)


def test_a_generator_reports_what_it_yields(fit: Fit) -> None:
    def numbers(config: dict[str, Any]) -> Iterator[Any]:
        for step in range(config["steps"]):
            yield {"step": step} if step else 7

    results = fit(numbers, {"steps": tune.grid_search([1, 4])})
    assert [result.metrics["training_iteration"] for result in results] == [1, 4]
    assert (results[0].metrics["_metric"], results[1].metrics["step"]) == (7, 3)


def test_the_last_result_of_a_function_is_done(fit: Fit) -> None:
    class Recording(FIFOScheduler):
        def __init__(self) -> None:
            super().__init__()
            self.last: list[Any] = []

        def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
            self.last.append((result["step"], result["done"]))

    def function(config: dict[str, Any]) -> None:
        for step in range(3):
            tune.report({"step": step})

    scheduler = Recording()
    (result,) = fit(function, scheduler=scheduler)
    assert scheduler.last == [(2, True)]
    assert result.metrics["done"] is True
    assert [row["step"] for _, row in result.metrics_dataframe.iterrows()] == [0, 1, 2]


def test_results_after_the_one_that_stops_all_do_not_count(fit: Fit) -> None:
    class StopAfter(Stopper):
        def __init__(self) -> None:
            self.results = 0

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.results += 1
            return False

        def stop_all(self) -> bool:
            return self.results >= 3

    stopper = StopAfter()
    results = fit(lambda config: {"x": 1}, run={"stop": stopper}, num_samples=30)
    assert stopper.results == 3
    assert sum("x" in (result.metrics or {}) for result in results) == 3


@pytest.mark.parametrize("stop", [{"eval": {"top": {"score": 3}}}, {"eval/top/score": 3}])
def test_criteria_may_be_nested(fit: Fit, stop: dict[str, Any]) -> None:
    def function(config: dict[str, Any]) -> None:
        for score in range(10):
            tune.report({"eval": {"top": {"score": score}}})

    (result,) = fit(function, run={"stop": stop})
    assert result.metrics["eval"]["top"]["score"] == 3


def test_a_stopping_function_of_other_arguments_is_refused(fit: Fit) -> None:
    with pytest.raises(tune.TuneError, match="must be a function of a trial's id and result"):
        fit(lambda config: None, run={"stop": lambda result: True})


class TestMetrics:
    def test_that_of_the_scheduler_is_required(self, fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
        def scheduler() -> AsyncHyperBandScheduler:
            return AsyncHyperBandScheduler(metric="acc", mode="max")

        with pytest.raises(tune.TuneError, match="reported no 'acc'"):
            fit(lambda config: {"val": 1}, scheduler=scheduler())
        assert fit(lambda config: {"acc": 1}, scheduler=scheduler(), run={"name": "good"}).num_terminated == 1
        monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
        results = fit(lambda config: {"val": 1}, metric="acc", mode="max", run={"name": "lenient"})
        assert results.num_terminated == 1

    def test_a_nested_metric_may_be_named_by_its_path(self, fit: Fit) -> None:
        results = fit(
            lambda config: {"eval": {"loss": config["x"]}},
            {"x": tune.grid_search([1, 2])},
            metric="eval/loss",
            mode="min",
        )
        assert results.get_best_result().config == {"x": 1}


class TestFolders:
    def test_trials_with_the_same_custom_folder_have_different_ones(self, fit: Fit) -> None:
        results = fit(
            lambda config: {"x": config["x"]},
            {"x": tune.grid_search([1, 2, 3])},
            trial_dirname_creator=lambda trial: "same",
        )
        names = [os.path.basename(result.path) for result in results]
        assert names[0] == "same"
        assert len(set(names)) == 3
        assert all(name.startswith("same") for name in names)
        assert [list(result.metrics_dataframe["x"]) for result in results] == [[1], [2], [3]]

    def test_the_name_of_an_experiment_may_have_no_date(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def objective(config: dict[str, Any]) -> float:
            return 1.0

        monkeypatch.setenv("TUNE_DISABLE_DATED_SUBDIR", "1")
        tune.run(objective, storage_path=str(tmp_path), verbose=0)
        assert os.listdir(tmp_path) == ["objective"]


class TestParameters:
    def test_parameters_and_resources_may_be_set_in_any_order(self, fit: Fit) -> None:
        def function(config: dict[str, Any], data: list[int]) -> dict[str, Any]:
            resources = tune.get_context().get_trial_resources()
            assert resources is not None
            return {"sum": sum(data), "cpus": resources.head_cpus}

        for number, trainable in enumerate(
            (
                tune.with_resources(tune.with_parameters(function, data=[1, 2]), {"cpu": 2}),
                tune.with_parameters(tune.with_resources(function, {"cpu": 2}), data=[1, 2]),
            )
        ):
            (result,) = fit(trainable, run={"name": f"order-{number}"})
            assert (result.metrics["sum"], result.metrics["cpus"]) == (3, 2)

    def test_a_reference_stands_for_its_object(self, fit: Fit) -> None:
        def function(config: dict[str, Any], data: list[int]) -> dict[str, Any]:
            return {"sum": sum(data)}

        (result,) = fit(tune.with_parameters(function, data=skate.put([1, 2, 3])))
        assert result.metrics["sum"] == 6


class TestSpecifications:
    @pytest.mark.parametrize("run", [{"grid_search": "x"}, 3, tune.Trainable({})])
    def test_a_trainable_that_is_none_is_refused(self, run: Any) -> None:
        with pytest.raises(tune.TuneError, match="must be a function, a subclass of Trainable"):
            Experiment("x", run)

    def test_the_environment_is_a_part_of_the_configuration(self) -> None:
        experiment = Experiment.from_json(
            "x", {"run": lambda config: None, "env": "Pong", "config": {"lr": 1}}
        )
        assert experiment.spec["config"] == {"lr": 1, "env": "Pong"}
