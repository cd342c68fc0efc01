"""Classes as trainables: exports, reuse, restores, and what `setup` knows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune.experiment.trial import ExportFormat
from skate.tune.result_grid import ResultGrid

pytestmark = pytest.mark.usefixtures("engine")
Fit = Callable[..., ResultGrid]


class Exporting(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"done": self.config.get("ends", False)}

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        ExportFormat.validate(export_formats)
        paths = {name: os.path.join(export_dir, f"model.{name}") for name in export_formats}
        for path in paths.values():
            Path(path).write_text(f"after {self.training_iteration}", encoding="utf-8")
        return paths


class TestExports:
    @pytest.mark.parametrize("ends", [True, False])
    def test_the_model_is_exported_when_a_trial_ends_or_is_stopped(self, tmp_path: Path, ends: bool) -> None:
        (trial,) = tune.run(
            Exporting,
            config={"ends": ends},
            stop={"training_iteration": 3},
            export_formats=["onnx", "h5"],
            storage_path=str(tmp_path),
            verbose=0,
        ).trials
        for name in ("onnx", "h5"):
            text = Path(trial.local_path, f"model.{name}").read_text(encoding="utf-8")
            assert text == ("after 1" if ends else "after 3")

    @pytest.mark.parametrize("ends", [True, False])
    def test_a_trial_fails_whose_model_cannot_be_exported(self, tmp_path: Path, ends: bool) -> None:
        analysis = tune.run(
            Exporting,
            config={"ends": ends},
            stop={"training_iteration": 2},
            export_formats=["paper"],
            storage_path=str(tmp_path),
            verbose=0,
            raise_on_failed_trial=False,
        )
        (trial,) = analysis.trials
        assert trial.status == "ERROR"
        assert "Unsupported export format 'paper'" in str(trial.error)

    def test_the_worker_of_a_failed_export_runs_the_next_trial(self, tmp_path: Path) -> None:
        analysis = tune.run(
            Exporting,
            config={"x": tune.grid_search([1, 2, 3])},
            stop={"training_iteration": 2},
            export_formats=["paper"],
            max_concurrent_trials=1,
            storage_path=str(tmp_path),
            verbose=0,
            raise_on_failed_trial=False,
        )
        assert [trial.status for trial in analysis.trials] == ["ERROR"] * 3

    def test_a_program_may_export_a_model_itself(self, tmp_path: Path) -> None:
        paths = Exporting({}).export_model("model", str(tmp_path))
        assert paths == {"model": str(tmp_path / "model.model")}
        assert tune.Trainable({}).export_model(["model"]) == {}


class TestRestores:
    @pytest.mark.parametrize(("retries", "score"), [(0, 2), (2, 4)])
    def test_loading_a_checkpoint_is_tried_again(
        self, fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int, score: int
    ) -> None:
        monkeypatch.setenv("TUNE_RESTORE_RETRY_NUM", str(retries))
        failures = tmp_path / "failures"
        failures.write_text("2", encoding="utf-8")

        class Fragile(tune.Trainable):
            def setup(self, config: dict[str, Any]) -> None:
                self.score, self.is_new = 0, True

            def step(self) -> dict[str, Any]:
                if self.is_new and self.score == 2:
                    raise ValueError("the first attempt ends here")
                self.score += 1
                return {"score": self.score}

            def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
                return {"score": self.score}

            def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
                left = int(failures.read_text(encoding="utf-8"))
                if left:
                    failures.write_text(str(left - 1), encoding="utf-8")
                    raise OSError("the storage is busy")
                self.score, self.is_new = checkpoint["score"], False

        (result,) = fit(
            Fragile,
            run={
                "stop": {"training_iteration": 4},
                "failure_config": tune.FailureConfig(max_failures=2),
                "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1),
            },
        )
        assert result.metrics["score"] == score
        assert (result.error is None) == (retries == 2)


class TestReuse:
    def test_a_kept_trainable_is_cleaned_up_once_at_the_end(self, fit: Fit, tmp_path: Path) -> None:
        class Kept(tune.Trainable):
            def setup(self, config: dict[str, Any]) -> None:
                (tmp_path / f"setup-{id(self)}-{os.getpid()}").touch()
                self.resets = 0

            def reset_config(self, new_config: dict[str, Any]) -> bool:
                self.resets += 1
                return True

            def step(self) -> dict[str, Any]:
                return {"x": self.config["x"], "resets": self.resets, "name": self.trial_name, "done": True}

            def cleanup(self) -> None:
                with open(tmp_path / "cleanups", "a", encoding="utf-8") as file:
                    file.write("x")

        results = fit(Kept, {"x": tune.grid_search([1, 2, 3])}, reuse_actors=True, max_concurrent_trials=1)
        assert [(result.metrics["x"], result.metrics["resets"]) for result in results] == [
            (1, 0),
            (2, 1),
            (3, 2),
        ]
        assert len({result.metrics["name"] for result in results}) == 3
        assert len(list(tmp_path.glob("setup-*"))) == 1
        assert (tmp_path / "cleanups").read_text(encoding="utf-8") == "x"

    def test_a_trainable_that_cannot_adopt_a_configuration_fails_its_trial(self, fit: Fit) -> None:
        class Stubborn(tune.Trainable):
            def reset_config(self, new_config: dict[str, Any]) -> bool:
                return False

            def step(self) -> dict[str, Any]:
                return {"done": True}

        results = fit(Stubborn, {"x": tune.grid_search([1, 2])}, reuse_actors=True, max_concurrent_trials=1)
        assert results.num_errors == 1
        assert r"reset_config() of Stubborn returned a false value" in str(results.errors[0])


def test_setup_knows_its_trial(fit: Fit) -> None:
    class Curious(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.known = (self.trial_id, self.trial_name, self.logdir)
            self.cpus = self.trial_resources.required_resources if self.trial_resources else None

        def step(self) -> dict[str, Any]:
            return {"known": self.known, "cpus": self.cpus, "done": True}

    (result,) = fit(Curious)
    trial_id, name, folder = result.metrics["known"]
    assert name == f"Curious_{trial_id}"
    assert folder == result.path
    assert result.metrics["cpus"] == {"CPU": 1.0}


def test_the_resources_of_a_class_may_be_a_dictionary(fit: Fit) -> None:
    class Large(tune.Trainable):
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Any:
            return {"cpu": config["cpus"]}

        def step(self) -> dict[str, Any]:
            assert self.trial_resources is not None
            return {"cpus": self.trial_resources.head_cpus, "done": True}

    results = fit(Large, {"cpus": tune.grid_search([1, 2])})
    assert [result.metrics["cpus"] for result in results] == [1, 2]
