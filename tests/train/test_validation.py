"""Validation of checkpoints beside the training."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skate
from skate import train
from skate.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointConsistencyMode,
    ReportedCheckpointStatus,
    Result,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationTaskConfig,
    WorkerGroupError,
    get_all_reported_checkpoints,
)
from skate.train._run import validations
from skate.train.data_parallel_trainer import DataParallelTrainer
from tests.train.checkpoints import read, write_checkpoint
from tests.train.processes import die, wait_for

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]
Fit = Callable[..., Result]


def double(checkpoint: Checkpoint, plus: int = 0) -> dict[str, Any]:
    """Return twice the number in a checkpoint."""
    return {"double": 2 * int(read(checkpoint, "step")) + plus}


def statuses() -> list[str]:
    return [each.status.name for each in get_all_reported_checkpoints()]


def test_what_a_validation_finds_is_added_to_the_metrics(fit: Fit) -> None:
    def function() -> None:
        for step in range(3):
            train.report({"step": step}, checkpoint=write_checkpoint(step=str(step)), validation=step != 1)
        found = get_all_reported_checkpoints()
        assert [each.status.name for each in found] == ["VALIDATED", "COMMITTED", "VALIDATED"]
        assert found[0].metrics == {"step": 0, "double": 0}

    result = fit(function, validation_config=ValidationConfig(double))
    assert result.metrics == {"step": 2, "double": 4}
    found = [metrics for _, metrics in result.best_checkpoints or []]
    assert found == [{"step": 0, "double": 0}, {"step": 1}, {"step": 2, "double": 4}]
    assert result.get_best_checkpoint("double", "max") == result.checkpoint


def test_a_validation_may_be_a_run_that_reports_no_checkpoint_of_its_own(fit: Fit, tmp_path: Path) -> None:
    def evaluate(config: dict[str, Any]) -> None:
        storage = train.get_context().get_storage()
        train.report(
            double(config["checkpoint"]),
            checkpoint=Checkpoint(storage.build_checkpoint_path_from_name("none")),
            checkpoint_upload_mode=train.CheckpointUploadMode.NO_UPLOAD,
        )

    def validate(checkpoint: Checkpoint) -> dict[str, Any]:
        trainer = DataParallelTrainer(
            evaluate,
            train_loop_config={"checkpoint": checkpoint},
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(storage_path=str(tmp_path / "validations")),
        )
        return trainer.fit().metrics or {}

    def function() -> None:
        train.report({"step": 3}, checkpoint=write_checkpoint(step="3"), validation=True)

    result = fit(function, 1, validation_config=ValidationConfig(validate))
    assert result.metrics == {"step": 3, "double": 6}


def test_a_report_says_how_to_validate_and_the_trainer_how_else(fit: Fit) -> None:
    def function() -> None:
        for wanted in (True, ValidationTaskConfig(fn_kwargs={"plus": 5})):
            train.report({}, checkpoint=write_checkpoint(step="1"), validation=wanted)

    default = ValidationTaskConfig(fn_kwargs={"plus": 1})
    result = fit(function, 1, validation_config=ValidationConfig(double, task_config=default))
    assert [metrics["double"] for _, metrics in result.best_checkpoints or []] == [3, 7]


def test_training_does_not_wait_for_a_validation_but_its_end_does(fit: Fit, tmp_path: Path) -> None:
    go, over = tmp_path / "go", tmp_path / "over"

    def slow(checkpoint: Checkpoint) -> dict[str, Any]:
        wait_for(go)
        return {"slow": over.exists()}

    def function() -> None:
        train.report({"step": 0}, checkpoint=write_checkpoint(step="0"), validation=True)
        found = get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
        assert [each.status for each in found] == [ReportedCheckpointStatus.PENDING_VALIDATION]
        assert [each.status.name for each in get_all_reported_checkpoints(timeout_s=0.1)] == [
            "PENDING_VALIDATION"
        ]
        over.touch()
        go.touch()

    result = fit(function, 1, validation_config=ValidationConfig(slow))
    assert result.metrics == {"step": 0, "slow": True}


def test_a_validation_that_fails_or_takes_too_long_does_not_end_the_run(
    fit: Fit, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(checkpoint: Checkpoint, how: str) -> Any:
        if how == "slow":
            time.sleep(1000)
        if how == "dies":
            die()
        if how == "raises":
            raise ValueError("bad weights")
        return how

    def function() -> None:
        for how in ("raises", "slow", "dies", "returns no dict"):
            wanted = ValidationTaskConfig(fn_kwargs={"how": how}, timeout_s=0.3 if how == "slow" else None)
            train.report({"how": how}, checkpoint=write_checkpoint(step="0"), validation=wanted)
        failed = "VALIDATION_FAILED"
        assert statuses() == [failed, "VALIDATION_TIMEOUT", failed, failed]
        train.report({"how": "on"})

    config = ValidationConfig(fails, ray_remote_kwargs={"max_retries": 0})
    assert fit(function, 1, validation_config=config).metrics == {"how": "on"}
    for said in (
        "bad weights",
        "takes too long",
        "checkpoint_000002 failed",
        "returns a dict of metrics, not str",
    ):
        assert said in caplog.text


def test_a_checkpoint_is_not_dropped_before_its_worth_is_known(
    fit: Fit, run_config: Callable[..., RunConfig]
) -> None:
    def worth(checkpoint: Checkpoint) -> dict[str, Any]:
        return {"score": {0: 1, 1: 9, 2: 5, 3: 0}[int(read(checkpoint, "step"))]}

    def function() -> None:
        for step in range(4):
            train.report({"score": -step}, checkpoint=write_checkpoint(step=str(step)), validation=True)

    keep = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(function, 1, run=run_config(keep=keep), validation_config=ValidationConfig(worth))
    # The two best, and the latest to go on from.
    assert sorted(metrics["score"] for _, metrics in result.best_checkpoints or []) == [0, 5, 9]
    names = {path.name for path in Path(result.path).glob("checkpoint_*")}
    assert names == {Path(each.path).name for each, _ in result.best_checkpoints or []}


def test_what_was_pending_is_validated_when_the_run_goes_on(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    def stalls(checkpoint: Checkpoint) -> dict[str, Any]:
        begun.touch()
        time.sleep(1000)
        return {}

    def first() -> None:
        wanted = ValidationTaskConfig(fn_kwargs={})
        train.report({"step": 4}, checkpoint=write_checkpoint(step="4"), validation=wanted)
        wait_for(begun)
        raise ValueError("bad luck")

    with pytest.raises(WorkerGroupError, match="bad luck"):
        fit(first, 1, validation_config=ValidationConfig(stalls))

    def second() -> None:
        assert statuses() == ["VALIDATED"]

    result = fit(second, 1, validation_config=ValidationConfig(double))
    assert result.metrics == {"step": 4, "double": 8}

    def third() -> None:
        assert statuses() == ["VALIDATED"]

    fit(third, 1)


def test_a_validation_goes_on_while_workers_start_again(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    def waits(checkpoint: Checkpoint) -> dict[str, Any]:
        wait_for(tmp_path / "again")
        return {"validated": True}

    def function() -> None:
        if train.get_checkpoint() is None:
            train.report({"step": 0}, checkpoint=write_checkpoint(step="0"), validation=True)
            raise ValueError("bad luck")
        (tmp_path / "again").touch()
        assert statuses() == ["VALIDATED"]

    result = fit(function, 1, run=run_config(failures=1), validation_config=ValidationConfig(waits))
    assert result.metrics == {"step": 0, "validated": True}


def test_a_validation_needs_a_checkpoint_and_somebody_who_does_it(fit: Fit, run_config: Any) -> None:
    with pytest.raises(WorkerGroupError, match="Validation requires a checkpoint") as raised:
        fit(lambda: train.report({}, validation=True), 1, validation_config=ValidationConfig(double))
    assert isinstance(raised.value.worker_failures[0], ValueError)
    with pytest.raises(WorkerGroupError, match="was not set on the trainer, but a validation was requested"):
        fit(lambda: train.report({}, checkpoint=write_checkpoint(), validation=True), 1)
    with pytest.raises(WorkerGroupError, match="got 'yes'"):
        fit(lambda: train.report({}, checkpoint=write_checkpoint(), validation="yes"), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`timeout_s` must be a positive number of seconds"):
        ValidationTaskConfig(timeout_s=0)
    with pytest.raises(TypeError, match=r"got 3 \(int\)"):
        ValidationConfig(3)  # type: ignore[arg-type]


def test_a_run_in_this_process_is_validated_too(fit: Fit) -> None:
    def function() -> None:
        train.report({"step": 2}, checkpoint=write_checkpoint(step="2"), validation=True)
        assert statuses() == ["VALIDATED"]
        train.report({"step": 3}, checkpoint=write_checkpoint(step="3"), validation=True)

    assert fit(function, 0, validation_config=ValidationConfig(double)).metrics == {"step": 3, "double": 6}


def test_a_validation_runs_on_the_processors_of_those_who_wait_for_it(
    fit: Fit, caplog: pytest.LogCaptureFixture
) -> None:
    def function() -> None:
        rank = train.get_context().get_world_rank()
        given = write_checkpoint(step="2") if rank == 0 else None
        train.report({"step": 2}, checkpoint=given, validation=rank == 0)
        assert statuses() == ["VALIDATED"]

    caplog.set_level("INFO")
    everybody = int(skate.cluster_resources()["CPU"])
    assert fit(function, everybody, validation_config=ValidationConfig(double)).metrics == {
        "step": 2,
        "double": 4,
    }
    assert "It runs on their processors" in caplog.text


@pytest.mark.one_machine
def test_what_a_validation_waits_for_that_others_wait_for_is_said_once(
    fit: Fit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validations, "_START_CHECK_INTERVAL_S", 0.05)

    def function() -> None:
        train.report({"step": 2}, checkpoint=write_checkpoint(step="2"), validation=True)
        (found,) = get_all_reported_checkpoints(timeout_s=1)
        assert found.status is ReportedCheckpointStatus.PENDING_VALIDATION

    everybody = int(skate.cluster_resources()["CPU"])
    config = ValidationConfig(double, ray_remote_kwargs={"num_cpus": everybody})
    assert fit(function, 1, validation_config=config).metrics == {"step": 2, "double": 4}
    said = [each.getMessage() for each in caplog.records if "which has not started" in each.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(
        "ranks [0] wait for the validation of checkpoint_000000, which has not started: "
    )
    assert "CPU" in said[0]


def test_a_validation_may_train_itself(fit: Fit, tmp_path: Path) -> None:
    from skate.train.data_parallel_trainer import DataParallelTrainer

    def by_training(checkpoint: Checkpoint) -> dict[str, Any]:
        trainer = DataParallelTrainer(
            lambda: {"rank": train.get_context().get_world_rank()},
            scaling_config=train.ScalingConfig(num_workers=1),
            run_config=RunConfig(name="inner", storage_path=str(tmp_path)),
        )
        found: dict[str, Any] = trainer.fit().return_value
        return found

    def function() -> None:
        train.report({"step": 2}, checkpoint=write_checkpoint(step="2"), validation=True)

    result = fit(function, 1, validation_config=ValidationConfig(by_training))
    assert result.metrics == {"step": 2, "rank": 0}


def test_ctrl_c_leaves_a_validation_that_can_be_gone_on_with(tmp_path: Path) -> None:
    code = f"""
import sys, time, tempfile, pathlib, skate
from skate import train
from skate.train.data_parallel_trainer import DataParallelTrainer
skate.init(num_cpus=2)
def validate(checkpoint):
    if sys.argv[1] == "stall":
        pathlib.Path({str(tmp_path)!r}, "begun").touch()
        time.sleep(1000)
    return {{"fine": True}}
def function():
    if train.get_checkpoint() is None:
        train.report({{}}, checkpoint=train.Checkpoint(tempfile.mkdtemp()), validation=True)
print(DataParallelTrainer(
    function,
    validation_config=train.ValidationConfig(validate),
    run_config=train.RunConfig(name="run", storage_path={str(tmp_path)!r}),
).fit().metrics)
"""
    program = subprocess.Popen([sys.executable, "-c", code, "stall"], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "begun").exists():
        assert program.poll() is None
        time.sleep(0.01)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    done = subprocess.run([sys.executable, "-c", code, "finish"], capture_output=True, text=True, timeout=100)
    assert done.stdout == "{'fine': True}\n", done.stderr
    assert skate.is_initialized()
