"""Workers that fail, die and cannot start; folders that cannot be written."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skate
from skate import train
from skate.train import Result, RunConfig, TrainingFailedError, UserCallback, WorkerGroupError
from skate.train.collective import barrier
from tests.contract.support import eventually
from tests.train.checkpoints import next_step, read, write_checkpoint
from tests.train.processes import die

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]
Fit = Callable[..., Result]


def test_an_error_ends_the_run_with_its_traceback_on_top(fit: Fit) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            raise ValueError("bad luck")
        barrier()

    with pytest.raises(WorkerGroupError, match="rank 1 failed") as raised:
        fit(function)
    assert "ValueError: bad luck" in str(raised.value)
    assert isinstance(raised.value.worker_failures[1], ValueError)
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_failed_run_can_be_looked_at(fit: Fit, tmp_path: Path) -> None:
    def function() -> None:
        train.report({"step": 1}, checkpoint=write_checkpoint(step="1"))
        raise ValueError("bad luck")

    with pytest.raises(TrainingFailedError):
        fit(function, 1)
    result = Result.from_path(tmp_path / "runs" / "run")
    assert "bad luck" in str(result.error)
    assert read(result.checkpoint, "step") == "1"


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_a_failure_starts_all_workers_again_from_the_checkpoint(
    fit: Fit, run_config: Callable[..., RunConfig], how: str
) -> None:
    class Notes(UserCallback):
        failures: list[list[int]] = []  # noqa: RUF012

        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            self.failures.append(list(worker_exceptions))

    def function(config: dict[str, Any]) -> None:
        first = next_step(train.get_checkpoint())
        for step in range(first, 4):
            barrier()
            if step == 2 and first == 0 and train.get_context().get_world_rank() == 1:
                if config["how"] == "dies":
                    die()
                raise ValueError("bad luck")
            checkpoint = (
                write_checkpoint(step=str(step)) if train.get_context().get_world_rank() == 0 else None
            )
            train.report({"step": step, "began": first}, checkpoint=checkpoint)

    notes = Notes()
    notes.failures.clear()
    result = fit(function, config={"how": how}, run=run_config(failures=1, callbacks=[notes]))
    assert result.metrics == {"step": 3, "began": 2}
    assert notes.failures[0][0] == 1
    assert read(result.checkpoint, "step") == "3"


def test_a_dead_worker_is_the_cause_whatever_its_neighbours_say(fit: Fit) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 0:
            raise RuntimeError("connection closed by peer")
        die()

    with pytest.raises(WorkerGroupError, match="rank 1 failed") as raised:
        fit(function)
    assert "rank 0: RuntimeError('connection closed by peer')" in str(raised.value)


def test_more_workers_than_there_is_room_for_are_refused(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    # A cluster might grow, and is waited for.
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "2")
    with pytest.raises(TrainingFailedError, match=r"1000 workers with 1 CPU each.*The node has .* CPU"):
        fit(lambda: None, 1000)


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    begun = threading.Event()
    trainer = train.data_parallel_trainer.DataParallelTrainer(
        begun.set,
        scaling_config=train.ScalingConfig(num_workers=0),
        run_config=RunConfig(name="run", storage_path=str(tmp_path / "file")),
    )
    with pytest.raises(OSError, match="storage_path"):
        trainer.fit()
    assert not begun.is_set()


def test_a_metric_that_cannot_be_told_is_named(fit: Fit) -> None:
    def function() -> None:
        train.report({"loss": 1.0, "lock": threading.Lock()})

    with pytest.raises(WorkerGroupError, match=r"`metrics\['lock'\]` is a lock that cannot be serialized"):
        fit(function, 1)


def test_different_workers_may_report_different_things(fit: Fit) -> None:
    def function() -> None:
        rank = train.get_context().get_world_rank()
        train.report({f"of_rank_{rank}": rank})

    result = fit(function)
    assert result.metrics == {"of_rank_0": 0}
    assert set(result.rank_metrics().columns) == {"report", "rank", "time", "of_rank_0", "of_rank_1"}


def test_a_training_function_takes_at_most_a_config(fit: Fit) -> None:
    with pytest.raises(ValueError, match=r"must take no argument, or one dictionary.*needs a, b"):
        fit(lambda a, b: None)


def test_nothing_of_a_run_is_left(fit: Fit, run_config: Callable[..., RunConfig]) -> None:
    def all_is_free() -> bool:
        free = skate.available_resources()
        return free["CPU"] == skate.cluster_resources()["CPU"] and not any("group" in name for name in free)

    eventually(all_is_free, "the runs before have gone")
    fit(lambda: None)
    with pytest.raises(WorkerGroupError):
        fit(_fail, run=run_config("other"))
    eventually(all_is_free, "everything is free")


def _fail() -> None:
    raise ValueError


def test_one_process_trains_with_one_worker() -> None:
    code = """
import os, tempfile, skate
from skate import train
from skate.train.data_parallel_trainer import DataParallelTrainer
skate.init(engine="inline")
def fit(workers):
    return DataParallelTrainer(
        lambda: train.report({"pid": os.getpid()}),
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(storage_path=tempfile.mkdtemp()),
    ).fit()
assert fit(1).metrics == {"pid": os.getpid()}
try:
    fit(2)
except train.TrainingFailedError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    assert "the inline engine has one process" in done.stdout
