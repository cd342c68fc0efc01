"""Trials as callbacks, schedulers and programs see them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from skate import tune
from skate.tune.experiment.trial import ExportFormat, Trial
from skate.tune.registry import register_trainable


def test_a_result_stops_a_trial_that_reaches_a_criterion() -> None:
    trial = Trial("f", stopping_criterion={"loss": 3, "eval/score": 5})
    assert not trial.should_stop({"loss": 2})
    assert not trial.should_stop({"other": 100}), "a metric that is missing is not reached"
    assert trial.should_stop({"loss": 3})
    assert trial.should_stop({"eval": {"score": 6}})
    assert trial.should_stop({"eval/score": 5})
    assert trial.should_stop({"done": True})


def test_resources_change_while_a_trial_does_not_run() -> None:
    trial = Trial("f")
    trial.update_resources({"cpu": 2, "custom_resources": {"disk": 1}})
    assert trial.placement_group_factory is not None
    assert trial.placement_group_factory.required_resources == {"CPU": 2, "disk": 1}
    group = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    trial.update_resources(group)
    assert trial.placement_group_factory is group
    trial.set_status(Trial.RUNNING)
    with pytest.raises(ValueError, match="while it is running"):
        trial.update_resources({"cpu": 1})


@pytest.mark.parametrize(
    ("iteration", "done", "expected"),
    [(1, False, False), (2, False, True), (3, True, True), (3, False, False)],
)
def test_checkpoints_are_due_by_frequency_and_at_the_end(iteration: int, done: bool, expected: bool) -> None:
    config = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
    trial = Trial("f", checkpoint_config=config)
    trial.update_last_result({"training_iteration": iteration, "done": done})
    assert trial.should_checkpoint() is expected
    assert (trial.checkpoint_freq, trial.checkpoint_at_end) == (2, True)


def test_a_trial_recovers_as_often_as_it_may_fail() -> None:
    trial = Trial("f", max_failures=1)
    trial.num_failures = 1
    assert trial.should_recover()
    trial.num_failures = 2
    assert not trial.should_recover()
    trial.max_failures = -1
    assert trial.should_recover()


def test_a_trial_knows_its_folders_and_its_trainable(tmp_path: Path) -> None:
    def f(config: dict[str, Any]) -> None:
        pass

    register_trainable("a_function", f)
    trial = Trial("a_function")
    assert trial.get_trainable_cls() is f
    assert trial.storage is None
    assert trial.local_experiment_path is None
    trial.local_path = str(tmp_path / "experiment" / "trial")
    storage = trial.storage
    assert storage is not None
    assert isinstance(storage.storage_filesystem, pafs.LocalFileSystem)
    assert storage.trial_working_directory == storage.trial_driver_staging_path == trial.path
    assert trial.local_experiment_path == trial.remote_experiment_path == str(tmp_path / "experiment")
    assert (trial.experiment_dir_name, storage.trial_dir_name) == ("experiment", "trial")
    trial.update_last_result({"node_ip": "10.0.0.1"})
    assert trial.get_ray_actor_ip() == "10.0.0.1"


def test_a_reset_trial_is_a_new_one_with_the_same_settings() -> None:
    trial = Trial(
        "f", config={"x": 1}, stopping_criterion={"loss": 1}, export_formats=["model"], max_failures=3
    )
    trial.update_last_result({"loss": 2})
    trial.set_status(Trial.ERROR)
    new = trial.reset()
    assert new.trial_id != trial.trial_id
    assert (new.config, new.stopping_criterion, new.export_formats) == ({"x": 1}, {"loss": 1}, ["model"])
    assert (new.max_failures, new.status, new.last_result) == (3, Trial.PENDING, {})


def test_a_trial_starts_from_the_checkpoint_at_a_path(tmp_path: Path) -> None:
    trial = Trial("f", restore_path=str(tmp_path))
    assert trial.checkpoint is not None
    assert os.path.samefile(trial.checkpoint.path, tmp_path)


def test_formats_of_exports_are_checked_and_written_in_lower_case() -> None:
    formats = [" Model", "ONNX"]
    ExportFormat.validate(formats)
    assert formats == [ExportFormat.MODEL, ExportFormat.ONNX]
    with pytest.raises(tune.TuneError, match="Unsupported export format 'pdf'"):
        ExportFormat.validate(["h5", "pdf"])
