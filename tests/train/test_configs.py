"""Settings of a run, and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from skate.air.config import STORAGE_VARIABLE
from skate.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from skate.train.data_parallel_trainer import DataParallelTrainer
from skate.tune import Callback
from skate.util.annotations import RayDeprecationWarning

SLICE = {
    "use_tpu": True,
    "num_workers": 2,
    "topology": "2x2x2",
    "accelerator_type": "TPU-V4",
    "resources_per_worker": {"TPU": 4},
}


def test_a_worker_has_one_cpu_or_one_gpu() -> None:
    assert ScalingConfig(num_workers=2).total_resources == {"CPU": 2.0}
    assert ScalingConfig(num_workers=2, use_gpu=True).total_resources == {"GPU": 2.0}
    both = ScalingConfig(use_gpu=True, resources_per_worker={"CPU": 3, "disk": 1})
    assert (both.num_cpus_per_worker, both.num_gpus_per_worker) == (3, 1)
    assert both.additional_resources_per_worker == {"disk": 1}


def test_a_worker_may_have_nothing() -> None:
    assert ScalingConfig(resources_per_worker={"CPU": 0}).bundle == {}


def test_the_number_of_workers_may_vary() -> None:
    scaling = ScalingConfig(num_workers=(2, 5))
    assert (scaling.min_workers, scaling.max_workers, scaling.elasticity_enabled) == (2, 5, True)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_workers": -1}, "must be a non-negative integer, or a pair"),
        ({"num_workers": (3, 2)}, "must not exceed"),
        ({"resources_per_worker": {"GPU": 1}}, "use_gpu"),
        ({"accelerator_type": "A100"}, "use_gpu"),
        ({"use_gpu": True, "use_tpu": True}, "one kind"),
        ({"resources_per_worker": {"TPU": 4}}, "use_tpu"),
        ({"use_tpu": True, "resources_per_worker": {"TPU": 0}}, "at least one"),
        ({"use_tpu": True, "label_selector": {"zone": "a"}}, "label_selector"),
        ({"use_tpu": True, "num_workers": 2}, "`topology` must be specified"),
        ({"use_tpu": True, "num_workers": 2, "topology": "2x4"}, "`accelerator_type` must be specified"),
        ({**SLICE, "topology": "2by4"}, "like '2x4'"),
        ({**SLICE, "num_workers": 3}, "must be a multiple of 2"),
        ({**SLICE, "num_workers": (1, 2)}, "min_workers must be a multiple of 2"),
        ({**SLICE, "num_workers": (2, 3)}, "max_workers must be a multiple of 2"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ScalingConfig(**options)  # type: ignore[arg-type]


def test_workers_may_fill_slices_of_tpus() -> None:
    assert ScalingConfig(**SLICE).total_resources["TPU"] == 8  # type: ignore[arg-type]
    assert ScalingConfig(**{**SLICE, "num_workers": (2, 6)}).max_workers == 6  # type: ignore[arg-type]
    assert ScalingConfig(use_tpu=True).total_resources == {"TPU": 1}


def test_an_upload_may_be_given_no_time_but_no_less() -> None:
    assert FailureConfig(upload_timeout_s=0).upload_timeout_s == 0
    with pytest.raises(
        ValueError, match="`upload_timeout_s` must be a non-negative number of seconds, got -1"
    ):
        FailureConfig(upload_timeout_s=-1)


def test_checkpoints_to_keep_must_be_some() -> None:
    with pytest.raises(ValueError, match="must be a positive integer or None, got 0"):
        CheckpointConfig(num_to_keep=0)
    with pytest.raises(ValueError, match="'max' or 'min'"):
        CheckpointConfig(checkpoint_score_order="best")  # type: ignore[arg-type]


def test_what_has_no_effect_is_said_so() -> None:
    with pytest.warns(RayDeprecationWarning, match="verbose"):
        DataParallelTrainer(print, run_config=RunConfig(verbose=2))
    with pytest.warns(RayDeprecationWarning, match="fail_fast"):
        DataParallelTrainer(print, run_config=RunConfig(failure_config=FailureConfig(fail_fast=True)))
    with pytest.warns(RayDeprecationWarning, match="trainer_resources"):
        ScalingConfig(trainer_resources={"CPU": 1})


def test_a_trainer_refuses_callbacks_of_tune() -> None:
    config = RunConfig(callbacks=[Callback()])
    with pytest.raises(ValueError, match=r"derived from skate\.train\.UserCallback"):
        DataParallelTrainer(print, run_config=config)


def test_a_setting_that_a_training_function_would_have_to_follow_is_refused(tmp_path: Path) -> None:
    keep = CheckpointConfig(checkpoint_frequency=3, checkpoint_at_end=True)
    run = RunConfig(storage_path=str(tmp_path), checkpoint_config=keep)
    with pytest.raises(
        ValueError,
        match=r"checkpoint_frequency and checkpoint_at_end .* cannot be used with a training function",
    ):
        DataParallelTrainer(lambda: None, run_config=run).fit()


def test_runs_are_kept_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, "/somewhere")
    assert RunConfig().storage_path == "/somewhere"
    assert RunConfig(storage_path="/elsewhere").storage_path == "/elsewhere"


def test_a_run_without_a_name_gets_one_of_its_own() -> None:
    assert RunConfig().name != RunConfig().name


def test_a_callback_is_an_object_of_its_class() -> None:
    with pytest.raises(ValueError, match="UserCallback"):
        RunConfig(callbacks=[print])  # type: ignore[list-item]


def test_a_level_of_talk_must_be_known() -> None:
    with pytest.raises(ValueError, match="DEBUG"):
        LoggingConfig(log_level="LOUD")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a/../../b", r"must not lead out of its parent folder with '\.\.'"),
        ("..", "must not lead out"),
        ("/somewhere", "must be relative to its parent folder"),
        (".", "it names no folder"),
        ("a\0b", "control characters"),
        ("a\nb", "control characters"),
    ],
)
def test_the_name_of_a_run_is_a_folder_below_its_storage_path(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RunConfig(name=name)


def test_the_name_of_a_run_may_have_folders_and_an_empty_one_is_none() -> None:
    assert RunConfig(name="sweep/first").name == "sweep/first"
    assert str(RunConfig(name="").name).startswith("train_run-")
    with pytest.raises(TypeError, match=r"`name` must be a path .*, got 7"):
        RunConfig(name=7)  # type: ignore[arg-type]
