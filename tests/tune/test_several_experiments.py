"""Several experiments that run at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune import Experiment

pytestmark = pytest.mark.usefixtures("engine")


def double(config: dict[str, Any]) -> dict[str, Any]:
    return {"value": 2 * config["x"]}


def triple(config: dict[str, Any]) -> dict[str, Any]:
    return {"value": 3 * config["x"]}


class Stepping(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"value": self.training_iteration}


class Events(tune.Callback):
    def __init__(self, fail_after: int | None = None) -> None:
        self.fail_after = fail_after
        self.completed: list[str] = []
        self.ended: list[int] = []
        self.begun_with: int | None = None

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.begun_with is None:
            self.begun_with = len(trials)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.completed.append(str(trial))
        if len(self.completed) == self.fail_after:
            raise RuntimeError("the program ends")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self.ended.append(len(trials))


def test_each_experiment_has_its_own_folder_trainable_and_criteria(tmp_path: Path) -> None:
    events = Events()
    analysis = tune.run(
        [
            Experiment("one", double, config={"x": tune.grid_search([1, 2])}, storage_path=str(tmp_path)),
            Experiment(
                "two", triple, config={"x": 5}, num_samples=2, storage_path=str(tmp_path / "elsewhere")
            ),
            Experiment("three", Stepping, stop={"training_iteration": 4}, storage_path=str(tmp_path)),
        ],
        metric="value",
        mode="max",
        callbacks=[events],
        verbose=0,
    )
    assert [trial.last_result["value"] for trial in analysis.trials] == [2, 4, 15, 15, 3]
    assert events.ended == [5]
    assert analysis.best_config == {"x": 5}
    names = [Path(str(trial.local_path)).parent for trial in analysis.trials]
    elsewhere = tmp_path / "elsewhere" / "two"
    assert names == [tmp_path / "one", tmp_path / "one", elsewhere, elsewhere, tmp_path / "three"]
    assert len(analysis.trial_dataframes) == 5
    assert [len(analysis.trial_dataframes[trial.trial_id]) for trial in analysis.trials] == [1, 1, 1, 1, 4]
    assert analysis.dataframe()["logdir"].tolist() == [trial.local_path for trial in analysis.trials]


def test_the_folder_of_each_can_be_read_and_restored_alone(tmp_path: Path) -> None:
    tune.run_experiments(
        {
            "one": {"run": double, "config": {"x": 1}, "storage_path": str(tmp_path)},
            "two": {"run": triple, "config": {"x": 2}, "storage_path": str(tmp_path)},
        },
        verbose=0,
    )
    assert [t.last_result["value"] for t in tune.ExperimentAnalysis(str(tmp_path / "two")).trials] == [6]
    results = tune.Tuner.restore(str(tmp_path / "one"), double).get_results()
    assert [result.metrics["value"] for result in results] == [2]


def test_trainables_and_experiments_may_be_mixed(tmp_path: Path) -> None:
    analysis = tune.run(
        [double, Experiment("other", triple, config={"x": 2}, storage_path=str(tmp_path))],
        config={"x": 1},
        name="plain",
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert [trial.last_result["value"] for trial in analysis.trials] == [2, 6]
    assert (tmp_path / "plain").is_dir()
    with pytest.raises(ValueError, match="empty list"):
        tune.run([])


def test_one_experiment_uses_the_other_arguments_of_run(tmp_path: Path) -> None:
    events = Events()
    experiment = Experiment("one", double, config={"x": tune.grid_search([1, 2])}, storage_path=str(tmp_path))
    analysis = tune.run(experiment, metric="value", mode="max", callbacks=[events], verbose=0)
    assert analysis.best_config == {"x": 2}
    assert len(events.completed) == 2


def test_a_failure_in_one_is_reported_for_all(tmp_path: Path) -> None:
    def fail(config: dict[str, Any]) -> None:
        raise ValueError("broken")

    experiments = [
        Experiment("good", double, config={"x": 1}, storage_path=str(tmp_path)),
        Experiment("bad", fail, max_failures=1, storage_path=str(tmp_path)),
    ]
    with pytest.raises(tune.TuneError, match="Trials did not complete"):
        tune.run(experiments, verbose=0)
    analysis = tune.run(experiments, verbose=0, raise_on_failed_trial=False)
    assert [(trial.status, trial.num_failures) for trial in analysis.trials] == [
        ("TERMINATED", 0),
        ("ERROR", 2),
    ]


@pytest.mark.parametrize("names", [("a", "b", "c"), ("same", "same", "same")])
def test_interrupted_experiments_continue_together(tmp_path: Path, names: tuple[str, ...]) -> None:
    def experiments() -> list[Experiment]:
        return [
            Experiment(
                name,
                double,
                config={"x": tune.grid_search([1, 2, 3, 4])},
                num_samples=3,
                storage_path=str(tmp_path),
            )
            for name in names
        ]

    first = Events(fail_after=10)
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.run(experiments(), callbacks=[first], max_concurrent_trials=2, verbose=0)
    assert len(first.ended) == 1, "callbacks are told the end of an experiment that fails"

    second = Events()
    analysis = tune.run(experiments(), callbacks=[second], resume=True, max_concurrent_trials=2, verbose=0)
    assert second.begun_with is not None
    assert second.begun_with >= 10
    assert len(second.completed) <= 36 - 9
    assert len(analysis.trials) == 36
    assert len({trial.trial_id for trial in analysis.trials}) == 36
    assert all(trial.status == "TERMINATED" for trial in analysis.trials)
    assert sorted(trial.config["x"] for trial in analysis.trials) == sorted([1, 2, 3, 4] * 9)


def test_experiments_may_run_one_after_another(tmp_path: Path) -> None:
    events = Events()
    tune.run_experiments(
        [
            Experiment("one", double, config={"x": 1}, storage_path=str(tmp_path)),
            Experiment("two", triple, config={"x": 2}, storage_path=str(tmp_path)),
        ],
        concurrent=False,
        callbacks=[events],
        verbose=0,
    )
    assert events.ended == [1, 1]
