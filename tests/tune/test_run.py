"""`tune.run`, `tune.run_experiments`, and the analysis of their trials."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune.logger import CSVLoggerCallback, TBXLoggerCallback

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


def parabola(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report({"loss": (config["x"] - 3) ** 2 + 2 - step, "nested": {"step": step}})


@pytest.fixture
def analysis(tmp_path: Path) -> tune.ExperimentAnalysis:
    return tune.run(
        parabola,
        name="parabola",
        config={"x": tune.grid_search([1, 3, 5])},
        metric="loss",
        mode="min",
        storage_path=str(tmp_path),
        callbacks=[CSVLoggerCallback(), TBXLoggerCallback()],
        verbose=0,
    )


def test_the_analysis_has_the_best_trial(analysis: tune.ExperimentAnalysis) -> None:
    assert analysis.best_config == {"x": 3}
    assert analysis.best_result["loss"] == 0
    assert analysis.get_best_trial("loss", "max").config == {"x": 1}
    assert analysis.get_best_config(scope="avg") == {"x": 3}
    assert list(analysis.best_dataframe["loss"]) == [2, 1, 0]
    assert sorted(analysis.results_df["config/x"]) == [1, 3, 5]
    assert sorted(analysis.dataframe("loss", "max")["loss"]) == [2, 6, 6]


def test_an_experiment_is_read_from_its_folder(analysis: tune.ExperimentAnalysis) -> None:
    again = tune.ExperimentAnalysis(analysis.experiment_path, default_metric="loss", default_mode="min")
    assert again.best_config == {"x": 3}
    assert again.results == analysis.results
    assert again.get_all_configs() == analysis.get_all_configs()
    with pytest.raises(ValueError, match="holds no experiment"):
        tune.ExperimentAnalysis(Path(analysis.experiment_path).parent)


def test_results_are_written_as_csv_and_for_tensorboard(analysis: tune.ExperimentAnalysis) -> None:
    folder = Path(analysis.best_trial.local_path or "")
    with (folder / "progress.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["loss"], row["nested/step"]) for row in rows] == [("2", "0"), ("1", "1"), ("0", "2")]
    assert list(folder.glob("events.out.tfevents.*"))


def test_a_failed_trial_raises_unless_it_is_allowed(tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> None:
        raise ValueError("broken")

    with pytest.raises(tune.TuneError, match="Trials did not complete"):
        tune.run(function, storage_path=str(tmp_path), verbose=0)
    analysis = tune.run(function, storage_path=str(tmp_path), verbose=0, raise_on_failed_trial=False)
    assert analysis.trials[0].status == "ERROR"


def test_registered_names_resources_and_names_of_algorithms_work(tmp_path: Path) -> None:
    tune.register_trainable("a_parabola", parabola)
    analysis = tune.run(
        "a_parabola",
        config={"x": tune.uniform(0, 6)},
        num_samples=4,
        metric="loss",
        mode="min",
        resources_per_trial={"cpu": 2},
        scheduler="asha",
        search_alg="random",
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert len(analysis.trials) == 4
    assert analysis.trials[0].trainable_name == "a_parabola"
    with pytest.raises(tune.TuneError, match=r"Unknown trainable: 'a_parabole'.*Did you mean 'a_parabola'\?"):
        tune.run("a_parabole", storage_path=str(tmp_path))


def test_specifications_of_experiments_are_checked(tmp_path: Path) -> None:
    trials = tune.run_experiments(
        {
            "first": {"run": parabola, "config": {"x": 1}, "storage_path": str(tmp_path)},
            "second": {"run": parabola, "config": {"x": 2}, "storage_path": str(tmp_path), "num_samples": 2},
        },
        verbose=0,
    )
    assert [trial.config["x"] for trial in trials] == [1, 2, 2]
    with pytest.raises(tune.TuneError, match=r"unknown field 'num_sample'.*Did you mean 'num_samples'"):
        tune.run_experiments(tune.Experiment("third", parabola, num_sample=2))


def test_an_experiment_resumes_by_its_name(tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> dict[str, int]:
        if config["x"] == 1 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("once")
        return {"x": config["x"]}

    options: dict[str, Any] = {"name": "resumed", "storage_path": str(tmp_path), "verbose": 0}
    space = {"x": tune.grid_search([0, 1])}
    first = tune.run(function, config=space, resume=True, raise_on_failed_trial=False, **options)
    assert [trial.status for trial in first.trials] == ["TERMINATED", "ERROR"]
    again = tune.run(function, config=space, resume="AUTO", raise_on_failed_trial=False, **options)
    assert [trial.status for trial in again.trials] == ["TERMINATED", "ERROR"]
    second = tune.run(function, config=space, resume="AUTO+ERRORED", **options)
    assert [trial.status for trial in second.trials] == ["TERMINATED", "TERMINATED"]


def with_checkpoints(config: dict[str, Any]) -> None:
    for loss in (2, 1, 3):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "loss").write_text(str(loss))
            tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory(folder))


def test_a_score_for_checkpoints_can_be_a_metric_to_minimize(tmp_path: Path) -> None:
    analysis = tune.run(
        with_checkpoints,
        storage_path=str(tmp_path),
        keep_checkpoints_num=2,
        checkpoint_score_attr="min-loss",
        verbose=0,
    )
    best = analysis.get_best_checkpoint(analysis.trials[0], metric="loss", mode="min")
    assert best is not None
    assert Path(best.path, "loss").read_text() == "1"
