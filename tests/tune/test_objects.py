"""Objects in search spaces: references, large values, and their replacement at a restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skate
from skate import tune
from skate.tune.result_grid import ResultGrid

pytestmark = pytest.mark.usefixtures("engine")
Fit = Callable[..., ResultGrid]


class Source:
    """An object that is neither a number nor a text."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_references_are_passed_to_trials_as_references(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> dict[str, Any]:
        return {"value": skate.get(config["nested"]["ref"])["a"] + skate.get(config["choice"])}

    space = {
        "nested": {"ref": skate.put({"a": 1})},
        "choice": tune.grid_search([skate.put(10), skate.put(20)]),
    }
    results = fit(function, space)
    assert results.errors == []
    assert [result.metrics["value"] for result in results] == [11, 21]
    assert isinstance(results[0].config["choice"], skate.ObjectRef)


def test_a_large_object_is_stored_once_for_all_trials(fit: Fit, tmp_path: Path) -> None:
    data = np.ones(500_000)

    def function(config: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):
            tune.report({"sum": float(config["data"].sum()) + config["x"]})
        return {"sum": 0.0}

    results = fit(function, {"data": data, "x": tune.grid_search(list(range(4)))})
    assert results.errors == []
    assert results[0].config["data"] is data
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size < 2 * data.nbytes


def test_a_trial_may_change_its_objects(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> dict[str, Any]:
        before = config["source"].name
        config["source"].name = "changed"
        return {"name": before}

    results = fit(
        function, {"source": Source("new"), "x": tune.grid_search(list(range(5)))}, max_concurrent_trials=1
    )
    assert [result.metrics["name"] for result in results] == ["new"] * 5


def test_trials_of_a_restored_experiment_have_the_new_objects(tmp_path: Path) -> None:
    """Also those that are created after the restore."""

    class StopAfter(tune.Callback):
        def on_trial_complete(self, trials: list[Any], **info: Any) -> None:
            if sum(trial.is_finished() for trial in trials) == 2:
                raise RuntimeError("the program ends")

    def function(config: dict[str, Any]) -> dict[str, Any]:
        return {"names": config["source"].name + skate.get(config["ref"])}

    def space(prefix: str) -> dict[str, Any]:
        sources = [Source(f"{prefix}{number}") for number in range(30)]
        return {"source": tune.grid_search(sources), "ref": skate.put(f"-{prefix}"), "n": tune.choice([1])}

    run = tune.RunConfig(storage_path=str(tmp_path), name="e", callbacks=[StopAfter()], verbose=0)
    with pytest.raises(RuntimeError, match="the program ends"):
        tune.Tuner(function, param_space=space("a"), run_config=run).fit()

    tuner = tune.Tuner.restore(str(tmp_path / "e"), function, param_space=space("b"))
    tuner._run_config.callbacks = []
    results = tuner.fit()
    assert len(results) == 30
    assert results.errors == []
    assert {result.config["source"].name for result in results} == {f"b{number}" for number in range(30)}
    names = [result.metrics["names"] for result in results]
    assert sum(name.startswith("a") for name in names) == 2, "finished trials keep their results"
    assert names[-1] == "b29-b"


def test_a_restore_without_a_space_uses_the_stored_objects(tmp_path: Path) -> None:
    def function(config: dict[str, Any]) -> dict[str, Any]:
        if not (tmp_path / "works").exists():
            raise ValueError("once")
        return {"name": config["source"].name}

    run = tune.RunConfig(storage_path=str(tmp_path), name="e", verbose=0)
    space = {"source": tune.grid_search([Source("a"), Source("b")])}
    assert tune.Tuner(function, param_space=space, run_config=run).fit().num_errors == 2
    (tmp_path / "works").touch()
    results = tune.Tuner.restore(str(tmp_path / "e"), function, resume_errored=True).fit()
    assert [result.metrics["name"] for result in results] == ["a", "b"]


def test_references_of_a_session_that_has_ended_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(config: dict[str, Any]) -> dict[str, Any]:
        return {"value": skate.get(config["ref"])}

    run = tune.RunConfig(storage_path=str(tmp_path), name="e", verbose=0)
    tune.Tuner(function, param_space={"ref": skate.put(1)}, run_config=run).fit()
    assert tune.Tuner.restore(str(tmp_path / "e"), function).get_results()[0].metrics["value"] == 1

    monkeypatch.setattr(type(skate.get_runtime_context()), "get_session_name", lambda self: "another session")
    with pytest.raises(ValueError, match=r"call Tuner.restore\(..., param_space=...\)"):
        tune.Tuner.restore(str(tmp_path / "e"), function)
    tuner = tune.Tuner.restore(str(tmp_path / "e"), function, param_space={"ref": skate.put(2)})
    assert skate.get(tuner.get_results()[0].config["ref"]) == 2


def test_population_based_training_keeps_the_objects(fit: Fit) -> None:
    class Climb(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.height = 0.0

        def step(self) -> dict[str, Any]:
            self.height += self.config["rate"]
            return {"height": self.height, "name": self.config["source"].name}

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {"height": self.height}

        def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.height = checkpoint["height"]

    scheduler = tune.schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"rate": [1, 2, 4, 8]},
        seed=1,
    )
    results = fit(
        Climb,
        {"rate": tune.grid_search([1, 8, 1, 8]), "source": Source("s")},
        run={"stop": {"training_iteration": 8}},
        metric="height",
        mode="max",
        scheduler=scheduler,
    )
    assert results.errors == []
    assert {result.metrics["name"] for result in results} == {"s"}
