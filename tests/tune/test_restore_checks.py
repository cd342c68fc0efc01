"""Arguments of tuners that are created, restored and resumed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from skate import tune
from skate.tune.experiment import Trial
from skate.tune.schedulers import FIFOScheduler, TrialScheduler
from tests.tune.test_tuner import Counting

pytestmark = pytest.mark.ray_more


def report_x(config: dict[str, Any]) -> dict[str, Any]:
    return {"x": config.get("x", 0)}


def run_config(folder: Path, **options: Any) -> tune.RunConfig:
    return tune.RunConfig(name="experiment", storage_path=str(folder), verbose=0, **options)


class TestBeforeAnyTrial:
    def test_an_experiment_can_be_restored_as_soon_as_its_tuner_exists(self, tmp_path: Path) -> None:
        path = tmp_path / "experiment"
        assert not tune.Tuner.can_restore(path)
        tune.Tuner(report_x, run_config=run_config(tmp_path))
        assert tune.Tuner.can_restore(path)
        assert tune.Tuner.can_restore(str(path), storage_filesystem=pafs.LocalFileSystem())
        assert tune.Tuner.can_restore(f"file://{path}")
        assert not tune.Tuner.can_restore(tmp_path)
        assert not tune.Tuner.can_restore(path / "other")
        with pytest.raises(RuntimeError, match="has not started yet"):
            tune.Tuner.restore(str(path), report_x).get_results()

    def test_a_tuner_leaves_the_configuration_it_was_given_unchanged(self, tmp_path: Path) -> None:
        config = tune.RunConfig(storage_path=str(tmp_path))
        tune.Tuner(report_x, run_config=config)._folder()
        assert config.name is None
        assert list(tmp_path.iterdir()) == []

    def test_a_new_tuner_leaves_the_settings_of_an_experiment_that_has_run(self, tmp_path: Path) -> None:
        folder = tmp_path / "experiment"
        tune.Tuner(report_x, param_space={"x": 1}, run_config=run_config(tmp_path))
        (folder / "journal.jsonl").touch()
        tune.Tuner(report_x, param_space={"y": 1}, run_config=run_config(tmp_path))
        assert tune.Tuner.restore(str(folder), report_x)._param_space == {"x": 1}

    def test_restore_is_called_on_the_class(self, tmp_path: Path) -> None:
        tuner = tune.Tuner(report_x)
        with pytest.raises(AttributeError, match="call it on the class"):
            tuner.restore(str(tmp_path), report_x)
        with pytest.raises(FileNotFoundError, match="holds no experiment to restore"):
            tune.Tuner.restore(str(tmp_path / "missing"), report_x)

    def test_another_trainable_is_refused(self, tmp_path: Path) -> None:
        tune.Tuner(report_x, run_config=run_config(tmp_path))
        path = str(tmp_path / "experiment")

        def other(config: dict[str, Any]) -> None: ...

        with pytest.raises(
            ValueError, match=r"`trainable` is 'other', but the experiment was run with 'report_x'"
        ):
            tune.Tuner.restore(path, other)
        with pytest.raises(ValueError, match="was run with 'report_x'"):
            tune.Tuner.restore(path, "never registered")
        other.__name__ = "report_x"
        tune.Tuner.restore(path, other)

    def test_other_parameters_are_refused_and_other_values_are_not(self, tmp_path: Path) -> None:
        space = {"a": 1, "b": {"c": tune.choice([0, 1])}, "d": tune.uniform(0, 1)}
        tune.Tuner(report_x, param_space=space, run_config=run_config(tmp_path))
        path = str(tmp_path / "experiment")
        for bad in ({}, {"a": 1, "b": {}, "d": 2}, {"a": 1, "b": {"c": 2, "e": 3}, "d": 4}):
            with pytest.raises(ValueError, match="must have the parameters of the first run"):
                tune.Tuner.restore(path, report_x, param_space=bad)
        with pytest.raises(ValueError, match=r"Added: \['dd'\]; removed: \['d'\]. Did you mean 'd'"):
            tune.Tuner.restore(path, report_x, param_space={"a": 1, "b": {"c": 0}, "dd": 1})
        tune.Tuner.restore(path, report_x, param_space={**space, "a": 2})

    def test_a_trainable_that_cannot_be_sent_to_workers_is_refused_with_the_culprit(self) -> None:
        lock = threading.Lock()
        with pytest.raises(TypeError, match=r"(?s)'lambda' was found to be non-serializable.*lock"):
            tune.Tuner(lambda config: print(lock))

    def test_arguments_of_wrong_types_are_refused(self) -> None:
        with pytest.raises(ValueError, match="`param_space` must be a dictionary, not str"):
            tune.Tuner(report_x, param_space="x")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="`config` must be a dictionary, not str"):
            tune.run(report_x, config="x")  # type: ignore[arg-type]
        with pytest.raises(tune.TuneError, match="needs a `trainable`"):
            tune.Tuner()
        with pytest.raises(ValueError, match=r"`resume` is 'AUTO\+EROR'.*Did you mean 'AUTO\+ERRORED'"):
            tune.run(report_x, name="x", resume="AUTO+EROR")

    def test_the_old_setting_of_the_working_directory_names_the_new_one(self) -> None:
        with pytest.raises(DeprecationWarning, match="RAY_CHDIR_TO_TRIAL_DIR"):
            tune.TuneConfig(chdir_to_trial_dir=False)

    def test_the_old_name_of_the_storage_path_names_the_new_one(self) -> None:
        with pytest.raises(DeprecationWarning, match="pass it as `storage_path`"):
            tune.RunConfig(local_dir="/tmp")


@pytest.mark.usefixtures("engine")
class TestRuns:
    def test_a_tuner_that_was_never_run_runs_after_restore(self, tmp_path: Path) -> None:
        tune.Tuner(report_x, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config(tmp_path))
        results = tune.Tuner.restore(str(tmp_path / "experiment"), report_x).fit()
        assert [result.metrics["x"] for result in results] == [1, 2]

    def test_settings_of_checkpoints_that_a_function_ignores_are_refused_by_fit(self, tmp_path: Path) -> None:
        for setting in ("checkpoint_at_end", "checkpoint_frequency"):
            config = tune.CheckpointConfig(**{setting: 1 if setting.endswith("y") else True})  # type: ignore[arg-type]
            tuner = tune.Tuner(report_x, run_config=run_config(tmp_path, checkpoint_config=config))
            with pytest.raises(ValueError, match=f"`{setting}` is for trainable classes"):
                tuner.fit()

    @pytest.mark.parametrize(
        ("at_end", "stop"), [(None, {}), (True, {}), (None, {"value": 2}), (True, {"value": 2}), (False, {})]
    )
    def test_a_class_saves_a_checkpoint_at_its_end(
        self, tmp_path: Path, at_end: bool | None, stop: dict[str, Any]
    ) -> None:
        config = run_config(
            tmp_path, stop=stop, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=at_end)
        )
        (result,) = tune.Tuner(Counting, param_space={"end": 4}, run_config=config).fit()
        if at_end is False:
            assert result.checkpoint is None
        else:
            assert result.checkpoint is not None
            assert Path(result.checkpoint.path, "value").read_text(encoding="utf-8") == ("2" if stop else "4")
            assert len(result.best_checkpoints or []) == 1

    def test_a_pause_after_a_checkpoint_saves_no_other(self, tmp_path: Path) -> None:
        class Pauses(FIFOScheduler):
            def on_trial_result(self, controller: Any, trial: Trial, result: dict[str, Any]) -> str:
                return TrialScheduler.PAUSE

        config = run_config(tmp_path, checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1))
        settings = tune.TuneConfig(scheduler=Pauses())
        (result,) = tune.Tuner(
            Counting, param_space={"end": 3}, tune_config=settings, run_config=config
        ).fit()
        assert [metrics["value"] for _, metrics in result.best_checkpoints or []] == [1, 2, 3]

    def test_a_trial_whose_folder_was_deleted_starts_again(self, tmp_path: Path) -> None:
        def function(config: dict[str, Any]) -> dict[str, Any]:
            if not (tmp_path / "again").exists():
                raise ValueError("once")
            return {"x": 1}

        tune.Tuner(function, run_config=run_config(tmp_path)).fit()
        (folder,) = (path for path in (tmp_path / "experiment").iterdir() if path.is_dir())
        shutil.rmtree(folder)
        (tmp_path / "again").touch()
        (result,) = tune.Tuner.restore(str(tmp_path / "experiment"), function, restart_errored=True).fit()
        assert (result.error, result.metrics["x"]) == (None, 1)

    def test_resuming_by_name_takes_the_new_callbacks(self, tmp_path: Path) -> None:
        class Interrupt(tune.Callback):
            def on_trial_complete(self, **info: Any) -> None:
                raise RuntimeError("interrupted")

        options: dict[str, Any] = {"name": "experiment", "storage_path": str(tmp_path), "verbose": 0}
        space = {"x": tune.grid_search([1, 2, 3])}
        with pytest.raises(RuntimeError, match="interrupted"):
            tune.run(report_x, config=space, callbacks=[Interrupt()], max_concurrent_trials=1, **options)
        analysis = tune.run(report_x, config=space, resume=True, **options)
        assert sorted(trial.last_result["x"] for trial in analysis.trials) == [1, 2, 3]

    def test_resuming_by_name_keeps_as_many_checkpoints_as_before(self, tmp_path: Path) -> None:
        def save(config: dict[str, Any]) -> None:
            (tmp_path / "state").mkdir(exist_ok=True)
            for _ in range(3):
                tune.report({"x": 1}, checkpoint=tune.Checkpoint(str(tmp_path / "state")))
            if not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise ValueError("once")

        options: dict[str, Any] = {"name": "experiment", "storage_path": str(tmp_path), "verbose": 0}
        keep = tune.CheckpointConfig(num_to_keep=2)
        tune.run(save, raise_on_failed_trial=False, checkpoint_config=keep, **options)
        (trial,) = tune.run(save, resume="AUTO+ERRORED", **options).trials
        assert [each.name for each in trial.kept] == ["checkpoint_000004", "checkpoint_000005"]

    @pytest.mark.parametrize(
        ("resume", "attempts"),
        [
            (True, 1),
            ("AUTO", 1),
            ("AUTO+ERRORED", 2),
            ("AUTO+ERRORED_ONLY", 2),
            ("AUTO+RESTART_ERRORED", 2),
            ("AUTO+RESTART_ERRORED_ONLY", 2),
        ],
    )
    def test_failed_trials_run_again_if_that_is_asked_for(
        self, tmp_path: Path, resume: bool | str, attempts: int
    ) -> None:
        made = tmp_path / "made"

        def fail(config: dict[str, Any]) -> None:
            resumed = tune.get_checkpoint() is not None
            with made.open("a", encoding="utf-8") as file:
                file.write(f"{resumed}\n")
            (tmp_path / "state").mkdir(exist_ok=True)
            tune.report({"x": 1}, checkpoint=tune.Checkpoint(str(tmp_path / "state")))
            raise ValueError("always")

        options: dict[str, Any] = {"name": "experiment", "storage_path": str(tmp_path), "verbose": 0}
        tune.run(fail, raise_on_failed_trial=False, **options)
        tune.run(fail, raise_on_failed_trial=False, resume=resume, **options)
        resumed = made.read_text(encoding="utf-8").split()
        assert len(resumed) == attempts
        assert resumed[-1] == str("ERRORED" in str(resume) and "RESTART" not in str(resume))
