"""Runs with real workers: ranks, reports, checkpoints, datasets, and cleanup."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skate
import skate.data
from skate import train
from skate.train import Checkpoint, CheckpointConfig, Result, RunConfig, UserCallback, WorkerGroupError
from skate.train._run import requests
from skate.train._workers import group
from skate.train.collective import barrier, broadcast_from_rank_zero
from skate.train.data_parallel_trainer import DataParallelTrainer
from tests.contract.support import Log, eventually
from tests.train.checkpoints import next_step, read, write_checkpoint
from tests.train.processes import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("engine")]
Fit = Callable[..., Result]


def test_each_worker_knows_its_place(fit: Fit) -> None:
    def function() -> None:
        context = train.get_context()
        train.report(
            {
                "rank": context.get_world_rank(),
                "of": context.get_world_size(),
                "env": int(os.environ["RANK"]),
                "pid": os.getpid(),
                "name": context.get_experiment_name(),
            }
        )

    result = fit(function)
    rows = result.rank_metrics().to_dict("records")
    assert sorted((row["rank"], row["of"], row["env"]) for row in rows) == [(0, 2, 0), (1, 2, 1)]
    assert len({row["pid"] for row in rows} - {os.getpid()}) == 2
    assert {row["name"] for row in rows} == {"run"}


def test_the_last_report_is_kept_also_without_a_checkpoint(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> str:
        for step in range(config["steps"]):
            train.report({"step": step, "rank": train.get_context().get_world_rank()})
        return "done"

    result = fit(function, config={"steps": 3})
    assert result.metrics == {"step": 2, "rank": 0}
    assert result.checkpoint is None
    assert result.return_value == "done"
    assert result.config == {"steps": 3}
    assert list(result.metrics_dataframe["step"]) == [0, 1, 2]
    assert sorted(result.rank_metrics()["rank"]) == [0, 0, 0, 1, 1, 1]


def test_a_result_outlives_the_folder_of_the_run(fit: Fit) -> None:
    def function() -> None:
        for step in range(2):
            train.report({"step": step})

    result = fit(function)
    shutil.rmtree(result.path)
    again = pickle.loads(pickle.dumps(result))
    assert list(again.metrics_dataframe["step"]) == [0, 1]
    assert len(result.rank_metrics()) == 4


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_training_function_has_started_goes_on_after_it(fit: Fit, fails: bool) -> None:
    log = Log.remote()

    @skate.remote
    def note() -> None:
        skate.get(log.append.remote("a task"))

    def function() -> None:
        log.append.remote("a call")
        note.remote()
        if fails:
            raise ValueError("bad weights")

    with pytest.raises(WorkerGroupError) if fails else contextlib.nullcontext():
        fit(function)
    said = eventually(lambda: len(found := skate.get(log.items.remote())) == 4 and found)
    assert sorted(said) == ["a call", "a call", "a task", "a task"]


def test_what_is_to_be_done_at_exit_is_done_when_fit_returns(fit: Fit, tmp_path: Path) -> None:
    def function() -> None:
        atexit.register((tmp_path / f"exit of {train.get_context().get_world_rank()}").touch)

    fit(function)
    assert sorted(file.name for file in tmp_path.glob("exit*")) == ["exit of 0", "exit of 1"]


def test_a_worker_that_does_not_come_to_its_end_is_killed(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group, "_EXIT_TIMEOUT_S", 0.5)

    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            atexit.register(threading.Event().wait)
        train.report({"pid": os.getpid()})

    assert fit(function).metrics is not None
    assert "rank 1 " in caplog.text
    assert "did not exit within 0.5 s" in caplog.text


def test_nobody_waits_for_a_worker_that_does_not_report(fit: Fit) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            for step in range(3):
                train.report({"step": step})

    assert fit(function).metrics == {"step": 2}


def test_parts_of_all_workers_are_one_checkpoint(fit: Fit) -> None:
    def function() -> None:
        rank = train.get_context().get_world_rank()
        train.report({"rank": rank}, checkpoint=write_checkpoint(**{f"part_{rank}": str(rank)}))

    result = fit(function)
    assert [read(result.checkpoint, f"part_{rank}") for rank in range(2)] == ["0", "1"]
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path).name == "checkpoint_000000"


def test_a_checkpoint_may_be_deleted_at_once(fit: Fit) -> None:
    def function() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model").write_text("weights")
            train.report({}, checkpoint=Checkpoint.from_directory(folder))

    assert read(fit(function, 1).checkpoint, "model") == "weights"


def test_a_checkpoint_can_be_stored_while_training_goes_on(fit: Fit) -> None:
    def function() -> None:
        for step in range(3):
            checkpoint = write_checkpoint(step=str(step))
            train.report({"step": step}, checkpoint, checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC)

    result = fit(function, 1)
    assert read(result.checkpoint, "step") == "2"
    assert result.best_checkpoints is not None
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1, 2]


def in_the_run(name: str) -> Checkpoint:
    """Return a checkpoint that the training function has put into the run's folder by itself."""
    folder = Path(train.get_context().get_storage().experiment_fs_path, name)
    folder.mkdir(parents=True)
    (folder / "model").write_text(name)
    return Checkpoint(folder)


def test_a_checkpoint_in_the_runs_folder_can_stay_where_it_is(
    fit: Fit, run_config: Callable[..., RunConfig]
) -> None:
    def function() -> None:
        for step in range(3):
            mode = train.CheckpointUploadMode.NO_UPLOAD
            train.report({}, in_the_run(f"mine/{step}"), checkpoint_upload_mode=mode)

    result = fit(function, 1, run=run_config(keep=CheckpointConfig(num_to_keep=2)))
    assert result.checkpoint == Checkpoint(Path(result.path, "mine", "2"))
    assert Result.from_path(result.path).checkpoint == result.checkpoint
    assert sorted(each.name for each in Path(result.path, "mine").iterdir()) == ["1", "2"]


@pytest.mark.parametrize("mode", [train.CheckpointUploadMode.SYNC, train.CheckpointUploadMode.ASYNC])
def test_a_function_may_store_checkpoints_and_say_where(fit: Fit, mode: train.CheckpointUploadMode) -> None:
    def function() -> None:
        train.report(
            {},
            write_checkpoint(model="given"),
            checkpoint_upload_mode=mode,
            checkpoint_upload_fn=lambda given, name: in_the_run(f"of {name}"),
        )

    result = fit(function, 1)
    assert read(result.checkpoint, "model") == "of checkpoint_000000"
    assert Result.from_path(result.path).checkpoint == result.checkpoint


@pytest.mark.parametrize("mode", list(train.CheckpointUploadMode))
def test_a_checkpoint_outside_of_the_runs_folder_is_refused(
    fit: Fit, tmp_path: Path, mode: train.CheckpointUploadMode
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def function() -> None:
        train.report({"step": 0}, write_checkpoint(step="0"))
        train.report(
            {"step": 1},
            Checkpoint(elsewhere),
            checkpoint_upload_mode=mode,
            checkpoint_upload_fn=lambda given, name: given,
            delete_local_checkpoint_after_upload=False,
        )

    with pytest.raises(WorkerGroupError, match="outside the experiment directory") as raised:
        fit(function, 1)
    assert isinstance(raised.value.worker_failures[0], ValueError)
    assert read(Result.from_path(tmp_path / "runs" / "run").checkpoint, "step") == "0"
    assert elsewhere.is_dir()


def test_restoring_a_run_needs_its_folder_and_its_training_function(fit: Fit, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Invalid restore path"):
        DataParallelTrainer.restore(tmp_path)
    result = fit(lambda: train.report({"step": 1}), 1)
    with pytest.raises(TypeError, match=r"`train_loop_per_worker` must be a function .*, got None"):
        DataParallelTrainer.restore(result.path)


def test_a_checkpoint_that_stays_where_it_is_may_be_written_by_another_worker(fit: Fit) -> None:
    def function() -> None:
        storage = train.get_context().get_storage()
        rank = train.get_context().get_world_rank()
        if rank == 0:
            barrier()  # after the report of rank 1
            in_the_run("shared")
        train.report(
            {"rank": rank},
            Checkpoint(storage.build_checkpoint_path_from_name("shared")),
            checkpoint_upload_mode=train.CheckpointUploadMode.NO_UPLOAD,
        )
        if rank == 1:
            barrier()

    result = fit(function, 2)
    assert result.metrics == {"rank": 0}
    assert read(result.checkpoint, "model") == "shared"


def test_a_run_in_this_process_may_refer_to_checkpoints_that_are_elsewhere(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    def function() -> None:
        for step in range(3):
            folder = tmp_path / f"mine-{step}"
            folder.mkdir()
            mode = train.CheckpointUploadMode.NO_UPLOAD
            train.report({"step": step}, Checkpoint(folder), checkpoint_upload_mode=mode)

    result = fit(function, 0, run=run_config(keep=CheckpointConfig(num_to_keep=1)))
    assert result.checkpoint == Checkpoint(tmp_path / "mine-2")
    assert Result.from_path(result.path).checkpoint == result.checkpoint
    assert (tmp_path / "mine-0").is_dir(), "what is not the run's is not deleted"


def test_the_best_are_kept(fit: Fit, run_config: Callable[..., RunConfig]) -> None:
    def function() -> None:
        for score in (3, 9, 1, 7, 2):
            train.report({"score": score}, checkpoint=write_checkpoint(score=str(score)))

    keep = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(function, 1, run=run_config(keep=keep))
    assert [metrics["score"] for _, metrics in result.best_checkpoints or ()] == [2, 7, 9]
    assert read(result.get_best_checkpoint("score", "max"), "score") == "9"
    assert read(result.checkpoint, "score") == "2"
    folders = sorted(each.name for each in Path(result.path).iterdir() if each.is_dir())
    assert folders == ["checkpoint_000001", "checkpoint_000003", "checkpoint_000004"]


def test_a_run_of_the_same_name_goes_on(fit: Fit, run_config: Callable[..., RunConfig]) -> None:
    def function() -> None:
        step = next_step(train.get_checkpoint())
        train.report({"step": step}, checkpoint=write_checkpoint(step=str(step)))

    assert fit(function, 1).metrics == {"step": 0}
    result = fit(function, 2, run=run_config())
    assert result.metrics == {"step": 1}
    assert list(result.metrics_dataframe["step"]) == [0, 1]
    assert Result.from_path(result.path).metrics == {"step": 1}


def test_a_run_can_begin_with_a_checkpoint(fit: Fit) -> None:
    def function() -> None:
        train.report({"found": read(train.get_checkpoint(), "model")})

    assert fit(function, 1, resume_from_checkpoint=write_checkpoint(model="old")).metrics == {"found": "old"}


def test_rows_are_shared_between_workers(fit: Fit) -> None:
    def function() -> None:
        with pytest.raises(KeyError, match="'train', 'test'"):
            train.get_dataset_shard("other")
        rows = [row["id"] for row in train.get_dataset_shard("train").iter_rows()]
        again = [row["id"] for row in train.get_dataset_shard("train").iter_rows()]
        test = [row["id"] for row in train.get_dataset_shard("test").iter_rows()]
        train.report({"rows": rows, "again": sorted(again) == sorted(rows) or len(again), "test": len(test)})

    result = fit(
        function,
        datasets={"train": skate.data.range(100), "test": lambda: skate.data.range(7)},
        dataset_config=train.DataConfig(datasets_to_split=["train"]),
    )
    rows = result.rank_metrics().to_dict("records")
    assert sorted(each for row in rows for each in row["rows"]) == list(range(100))
    assert [len(row["rows"]) for row in rows] == [50, 50]
    assert [row["test"] for row in rows] == [7, 7]


def test_workers_can_wait_for_and_hear_each_other(fit: Fit) -> None:
    def function() -> None:
        rank = train.get_context().get_world_rank()
        barrier()
        told = broadcast_from_rank_zero({"from": rank})
        barrier()
        train.report({"told": told["from"]})

    assert list(fit(function).rank_metrics()["told"]) == [0, 0]


def test_a_worker_can_ask_for_all_checkpoints(fit: Fit) -> None:
    def function() -> None:
        for step in range(2):
            train.report({"step": step}, checkpoint=write_checkpoint(step=str(step)))
        found = train.get_all_reported_checkpoints()
        train.report({"found": [each.metrics["step"] for each in found]})

    assert fit(function, 1).metrics == {"found": [0, 1]}


def test_who_asks_for_checkpoints_waits_for_slower_workers(fit: Fit, tmp_path: Path) -> None:
    gate = tmp_path / "rank 1 has reported"

    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            for step in range(3):
                train.report({"step": step})
            gate.touch()
        else:
            wait_for(gate)
            for step in range(3):
                train.report({"step": step}, checkpoint=write_checkpoint(step=str(step)))
        found = [each.metrics["step"] for each in train.get_all_reported_checkpoints()]
        train.report({"found": found})

    assert list(fit(function).rank_metrics()["found"].dropna()) == [[0, 1, 2], [0, 1, 2]]


def test_who_asks_for_checkpoints_does_not_wait_forever_for_a_worker_that_does_not_report(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_LAGGARD_TIMEOUT_S", 0.2)
    gate = tmp_path / "rank 0 has an answer"

    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            wait_for(gate)
            return
        for step in range(3):
            train.report({"step": step}, checkpoint=write_checkpoint(step=str(step)))
        train.report({"found": len(train.get_all_reported_checkpoints())})
        gate.touch()

    assert fit(function).metrics == {"found": 3}


def test_callbacks_are_told(fit: Fit, run_config: Callable[..., RunConfig]) -> None:
    class Notes(UserCallback):
        def __init__(self) -> None:
            self.reports: list[Any] = []

        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            self.reports.append((metrics, checkpoint is not None))

    def function() -> None:
        rank = train.get_context().get_world_rank()
        train.report({"rank": rank})
        train.report({"rank": rank}, checkpoint=write_checkpoint(a="b"))

    notes = Notes()
    fit(function, run=run_config(callbacks=[notes]))
    both = [{"rank": 0}, {"rank": 1}]
    assert notes.reports == [(both, False), (both, True)]


def test_metadata_is_noted_on_checkpoints(fit: Fit) -> None:
    def function() -> None:
        metadata = train.get_context().get_metadata()
        train.report({}, checkpoint=write_checkpoint(license=metadata["license"]))

    result = fit(function, metadata={"license": "mine"})
    assert result.checkpoint is not None
    assert result.checkpoint.get_metadata() == {"license": "mine"}


def test_a_function_can_run_in_this_process(fit: Fit) -> None:
    pids = []

    def function() -> None:
        pids.append(os.getpid())
        barrier()
        ids = [row["id"] for row in train.get_dataset_shard("train").iter_rows()]
        train.report({"ids": ids}, checkpoint=write_checkpoint(a="b"))

    result = fit(function, 0, datasets={"train": skate.data.range(3)})
    assert pids == [os.getpid()]
    assert result.metrics == {"ids": [0, 1, 2]}
    assert read(result.checkpoint, "a") == "b"


def test_reporting_needs_a_run() -> None:
    with pytest.raises(RuntimeError, match=r"report\(\) works only inside a training function"):
        train.report({})
