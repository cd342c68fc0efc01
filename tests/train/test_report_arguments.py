"""Errors in the arguments of `report` are raised by the call, and no checkpoint is lost."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skate import train
from skate.train import (
    Checkpoint,
    CheckpointUploadMode,
    Result,
    RunConfig,
    ScalingConfig,
    WorkerGroupError,
)
from skate.train._workers import sessions
from skate.train._workers.report_arguments import check_checkpoint
from skate.train.data_parallel_trainer import DataParallelTrainer
from tests.train.checkpoints import read, write_checkpoint


@pytest.fixture
def fit_here(tmp_path: Path) -> Callable[[Callable[[], Any]], Result]:
    """Train in this process."""

    def go(function: Callable[[], Any]) -> Result:
        return DataParallelTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=0),
            run_config=RunConfig(name="run", storage_path=str(tmp_path / "runs")),
        ).fit()

    return go


class UnpicklesBadly:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


inside_of_itself: dict[str, Any] = {}
inside_of_itself["again"] = inside_of_itself

MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"checkpoint": "/tmp"}, TypeError, r"got '/tmp' \(str\): wrap the folder: Checkpoint.from_directory\('/tmp'\)"),
    ({"checkpoint": Path("/tmp")}, TypeError, "wrap the folder"),
    ({"checkpoint": {"weights": 1}}, TypeError, "write the state to files"),
    ({"checkpoint": Checkpoint.from_directory("/nowhere")}, FileNotFoundError, "the folder /nowhere does not exist"),
    ({"checkpoint": Checkpoint(__file__)}, NotADirectoryError, "is a file"),
    (
        {"checkpoint": Checkpoint("/nowhere"), "checkpoint_upload_mode": CheckpointUploadMode.ASYNC},
        FileNotFoundError,
        "the folder /nowhere does not exist",
    ),
    ({"checkpoint_dir_name": "../elsewhere"}, ValueError, r"must not lead out of its parent folder with '\.\.'"),
    ({"checkpoint_dir_name": "/tmp/elsewhere"}, ValueError, "must be relative"),
    ({"checkpoint_dir_name": "a/../.."}, ValueError, "must not lead out"),
    ({"checkpoint_dir_name": "."}, ValueError, "it names no folder"),
    ({"checkpoint_dir_name": "a\0b"}, ValueError, "control characters"),
    ({"checkpoint_dir_name": 7}, TypeError, "must be a path .*, got 7"),
    ({"checkpoint_upload_mode": "ASYNC"}, TypeError, "must be one of CheckpointUploadMode.ASYNC"),
    ({"delete_local_checkpoint_after_upload": "no"}, TypeError, "must be True, False or None"),
    ({"checkpoint_upload_fn": "upload"}, TypeError, "must be a function or None, got 'upload'"),
    ({"metrics": None}, TypeError, "`metrics` must be a dictionary"),
    ({"metrics": [("loss", 1.0)]}, TypeError, "`metrics` must be a dictionary"),
    ({"metrics": {("loss", 1): 1.0}}, TypeError, "the name of each of the `metrics` must be a string"),
    ({"metrics": {"lock": threading.Lock()}}, TypeError, r"`metrics\['lock'\]` is a lock that cannot be serialized"),
    ({"metrics": {"odd": UnpicklesBadly()}}, TypeError, r"`metrics\['odd'\]` is a UnpicklesBadly"),
    ({"metrics": inside_of_itself}, ValueError, "a dictionary that contains itself"),
]  # fmt: skip


def test_each_mistake_raises_at_the_call_and_the_run_can_go_on(
    fit_here: Callable[[Callable[[], Any]], Result],
) -> None:
    def function() -> None:
        for arguments, error, text in MISTAKES:
            with pytest.raises(error, match=text):
                train.report(**{"metrics": {"loss": 1.0}, **arguments})
        train.report({"mistakes": len(MISTAKES)}, checkpoint=write_checkpoint(state="kept"))

    result = fit_here(function)
    assert result.metrics == {"mistakes": len(MISTAKES)}
    assert read(result.checkpoint, "state") == "kept"
    assert len(result.rank_metrics()) == 1


@pytest.fixture
def nobody() -> Iterator[None]:
    """Let root, who reads everything, be another user for the time of a test."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("name", [".", "state"])
def test_a_checkpoint_without_permission_is_a_mistake(name: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder, "state").touch()
        Path(folder, name).chmod(0)
        with pytest.raises(PermissionError, match="cannot be stored"):
            check_checkpoint(Checkpoint(folder), is_written=True)
        Path(folder, name).chmod(0o700)


def test_a_mistake_raises_in_the_thread_that_reports(
    fit_here: Callable[[Callable[[], Any]], Result],
) -> None:
    def function() -> None:
        with ThreadPoolExecutor(1) as pool:
            error = pool.submit(train.report, {}, "/tmp").exception()
        assert isinstance(error, TypeError)

    fit_here(function)


def test_report_outside_of_a_training_function_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"report\(\) works only inside a training function"):
        train.report({"loss": 1.0}, checkpoint="/tmp")  # type: ignore[arg-type]


def test_an_empty_name_of_a_checkpoint_is_none(fit_here: Callable[[Callable[[], Any]], Result]) -> None:
    def function() -> None:
        train.report({}, checkpoint=write_checkpoint(state="kept"), checkpoint_dir_name="")

    checkpoint = fit_here(function).checkpoint
    assert checkpoint is not None
    assert Path(checkpoint.path).name == "checkpoint_000000"


def test_a_folder_that_is_deleted_before_its_asynchronous_upload_fails_the_run(
    fit_here: Callable[[Callable[[], Any]], Result],
) -> None:
    def function() -> None:
        go = threading.Event()
        sessions.current("the test")._uploader().submit(go.wait)  # what is reported now waits for it
        checkpoint = write_checkpoint(state="0")
        train.report({}, checkpoint=checkpoint, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        shutil.rmtree(checkpoint.path)
        go.set()

    with pytest.raises(WorkerGroupError) as raised:
        fit_here(function)
    assert isinstance(raised.value.worker_failures[0], FileNotFoundError)


def test_a_checkpoint_that_its_upload_function_writes_need_not_be_there_before(
    fit_here: Callable[[Callable[[], Any]], Result],
) -> None:
    def write(checkpoint: Checkpoint, name: str) -> Checkpoint:
        Path(checkpoint.path).mkdir(parents=True)
        Path(checkpoint.path, "state").write_text("written")
        return checkpoint

    def function() -> None:
        path = train.get_context().get_storage().build_checkpoint_path_from_name("mine")
        train.report({}, checkpoint=Checkpoint(path), checkpoint_upload_fn=write)

    assert read(fit_here(function).checkpoint, "state") == "written"


def test_an_upload_function_must_return_a_checkpoint(
    fit_here: Callable[[Callable[[], Any]], Result],
) -> None:
    def function() -> None:
        upload: Any = lambda given, name: None  # noqa: E731
        train.report({}, checkpoint=write_checkpoint(state="kept"), checkpoint_upload_fn=upload)

    with pytest.raises(WorkerGroupError, match=r"which is skate\.train\.Checkpoint, got None") as raised:
        fit_here(function)
    assert isinstance(raised.value.worker_failures[0], ValueError)


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_a_checkpoint_that_contains_the_run_is_not_deleted(
    fit_here: Callable[[Callable[[], Any]], Result], tmp_path: Path, mode: CheckpointUploadMode
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    containing = [tmp_path, tmp_path / "runs", tmp_path / "runs" / "run", tmp_path / "link" / "runs"]

    def function() -> None:
        for folder in containing:
            with pytest.raises(
                ValueError, match=r"experiment directory .* is contained within the checkpoint"
            ):
                train.report(
                    {},
                    checkpoint=Checkpoint(folder),
                    checkpoint_upload_mode=mode,
                    delete_local_checkpoint_after_upload=True,
                )
        train.report({"mistakes": len(containing)})

    assert fit_here(function).metrics == {"mistakes": len(containing)}


def test_a_worker_fails_with_the_mistake(fit: Callable[..., Result], engine: Any) -> None:
    def function() -> None:
        train.report({"step": 0}, checkpoint=Checkpoint("/nowhere/at/all"))

    with pytest.raises(
        WorkerGroupError, match=r"(?s)rank 0 failed.*the folder /nowhere/at/all does not exist"
    ) as raised:
        fit(function, 1)
    assert isinstance(raised.value.worker_failures[0], FileNotFoundError)
