"""Specifications of experiments, and files of their trials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.tune.experiment import Experiment
from skate.tune.registry import is_function_trainable, validate_trainable
from skate.tune.stopper import FunctionStopper, MaximumIterationStopper
from tests.tune.test_tuner import Counting, parabola


class TestSpecification:
    @pytest.mark.parametrize("setting", [{"checkpoint_at_end": True}, {"checkpoint_frequency": 1}])
    def test_checkpoints_of_a_function_are_refused(self, setting: dict[str, Any]) -> None:
        tune.register_trainable("a_parabola", parabola)
        for run in ("a_parabola", parabola, lambda config: 1):
            with pytest.raises(ValueError, match="is for trainable classes"):
                Experiment("x", run, checkpoint_config=tune.CheckpointConfig(**setting))
        assert Experiment(
            "x", Counting, checkpoint_config=setting
        ).checkpoint_config == tune.CheckpointConfig(**setting)

    def test_a_search_space_is_a_dictionary(self) -> None:
        with pytest.raises(ValueError, match="`config` must be a dictionary, not str"):
            Experiment("x", parabola, config="x")
        Experiment("x", parabola, config={"x": 1})

    def test_it_describes_itself(self, tmp_path: Path) -> None:
        stop = MaximumIterationStopper(3)
        experiment = Experiment("x", parabola, storage_path=str(tmp_path), stop=stop, num_samples=2)
        assert experiment.path == experiment.local_path == str(tmp_path / "x")
        assert experiment.public_spec == {"stop": stop, "num_samples": 2}
        assert experiment.stopper is stop
        assert isinstance(Experiment("x", parabola, stop=lambda id, result: True).stopper, FunctionStopper)
        assert Experiment("x", parabola, stop={"x": 1}).stopper is None

    def test_trainables_have_names(self) -> None:
        class Named(tune.Trainable):
            _name = "other"

        assert Experiment.get_trainable_name("registered") == "registered"
        assert Experiment.get_trainable_name(parabola) == "parabola"
        assert Experiment.get_trainable_name(lambda config: 1) == "lambda"
        assert Experiment.get_trainable_name(Named) == "other"
        assert Experiment.register_if_needed(Named) == "other"
        validate_trainable("other")
        assert not is_function_trainable("other")
        assert is_function_trainable(parabola)


@pytest.mark.usefixtures("engine")
class TestFiles:
    def test_the_error_of_a_failed_trial_is_in_its_folder(self, tmp_path: Path) -> None:
        def fail(config: dict[str, Any]) -> None:
            raise ValueError("on purpose")

        (trial,) = tune.run(fail, storage_path=str(tmp_path), verbose=0, raise_on_failed_trial=False).trials
        assert trial.error_file == os.path.join(trial.path, "error.txt")
        assert "ValueError: on purpose" in Path(trial.error_file).read_text(encoding="utf-8")
        (fine,) = tune.run(parabola, config={"x": 1}, storage_path=str(tmp_path), verbose=0).trials
        assert fine.error_file is fine.get_error() is None

    def test_trials_start_from_a_given_checkpoint(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"storage_path": str(tmp_path), "verbose": 0}
        keep = tune.CheckpointConfig(checkpoint_frequency=2)
        (first,) = tune.run(Counting, config={"end": 2}, checkpoint_config=keep, **options).trials
        assert first.checkpoint is not None
        config = {"end": 5}
        (second,) = tune.run(Counting, config=config, restore=first.checkpoint.path, **options).trials
        assert (second.last_result["value"], second.last_result["training_iteration"]) == (5, 5)
        assert second.last_result["iterations_since_restore"] == 3
        with pytest.raises(FileNotFoundError, match="is not a folder"):
            tune.run(Counting, restore=str(tmp_path / "missing"), **options)

    @pytest.mark.parametrize("written", [True, False])
    def test_a_variable_keeps_the_file_of_parameters_from_being_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
    ) -> None:
        monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0" if written else "1")
        (trial,) = tune.run(parabola, config={"x": 1}, storage_path=str(tmp_path), verbose=0).trials
        assert Path(trial.path, "params.json").exists() is written

    def test_the_context_has_the_folders_and_the_ranks_of_one_process(self, tmp_path: Path) -> None:
        def function(config: dict[str, Any]) -> dict[str, Any]:
            context = tune.get_context()
            storage = context.get_storage()
            assert storage.trial_working_directory == storage.trial_fs_path == context.get_trial_dir()
            return {
                "names": [storage.storage_fs_path, storage.experiment_dir_name, storage.trial_dir_name],
                "ranks": [context.get_world_size(), context.get_world_rank(), context.get_local_rank()],
                "nodes": [context.get_local_world_size(), context.get_node_rank()],
            }

        (trial,) = tune.run(function, name="x", storage_path=str(tmp_path), verbose=0).trials
        assert trial.last_result["names"] == [str(tmp_path), "x", trial.relative_logdir]
        assert trial.last_result["ranks"] == [1, 0, 0]
        assert trial.last_result["nodes"] == [1, 0]
