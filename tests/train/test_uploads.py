"""Checkpoints whose upload is in progress when a worker fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.fs as pafs
import pytest

import skate
from skate import train
from skate.train import Checkpoint, CheckpointUploadMode, FailureConfig, Result, RunConfig, WorkerGroupError
from skate.train._reports.report_ledger import ReportLedger
from skate.train._run import attempt
from skate.train._run.uploads import Uploads
from skate.train._storage import folders
from skate.train._workers.sessions import Ranks
from skate.train.collective import barrier
from tests.train.checkpoints import next_step, read, write_checkpoint
from tests.train.processes import die, wait_for

pytestmark = pytest.mark.usefixtures("engine")
Fit = Callable[..., Result]


@pytest.fixture
def without_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers end as soon as one has failed, but for what they are storing."""
    monkeypatch.setattr(attempt, "_FURTHER_ERRORS_TIMEOUT_S", 0.0)


def stores_when(path: Path) -> Callable[[Checkpoint, str], Checkpoint]:
    """Return a function that stores a checkpoint a good while after a file has appeared."""

    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        wait_for(path)
        time.sleep(0.5)  # what storing takes
        target = train.get_context().get_storage().path_of(name)
        checkpoint.to_directory(target)
        return Checkpoint(target)

    return upload


@pytest.mark.usefixtures("without_grace")
@pytest.mark.parametrize("failing", [0, 1])
def test_what_is_being_stored_when_a_worker_fails_is_stored(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path, failing: int
) -> None:
    failed = tmp_path / "failed"

    def function() -> None:
        rank = train.get_context().get_world_rank()
        first = next_step(train.get_checkpoint())
        if first:
            train.report({"began": first})
            return
        train.report(
            {"step": 0},
            checkpoint=write_checkpoint(step="0") if rank == 0 else None,
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
            checkpoint_upload_fn=stores_when(failed),
        )
        barrier()
        if rank == failing:
            failed.touch()
            raise ValueError("bad luck")
        time.sleep(1000)

    assert fit(function, run=run_config(failures=1)).metrics == {"began": 1}


@pytest.mark.usefixtures("without_grace")
def test_a_worker_that_is_dead_is_not_waited_for(fit: Fit, tmp_path: Path) -> None:
    def function() -> None:
        train.report({"step": 0}, checkpoint=write_checkpoint(step="0"))
        train.report(
            {"step": 1},
            checkpoint=write_checkpoint(step="1"),
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
            checkpoint_upload_fn=stores_when(tmp_path / "never"),
        )
        barrier()
        if train.get_context().get_world_rank() == 1:
            die()
        time.sleep(1000)

    with pytest.raises(WorkerGroupError, match="rank 1 failed"):
        fit(function)
    result = Result.from_path(tmp_path / "runs" / "run")
    assert read(result.checkpoint, "step") == "0"


@pytest.mark.usefixtures("without_grace")
def test_an_upload_that_stands_still_is_given_up(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def function() -> None:
        train.report(
            {"step": 0},
            checkpoint=write_checkpoint(step="0"),
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
            checkpoint_upload_fn=stores_when(tmp_path / "never"),
        )
        raise ValueError("bad luck")

    run = run_config()
    run.failure_config = FailureConfig(upload_timeout_s=0.2)
    with pytest.raises(WorkerGroupError, match="bad luck"):
        fit(function, 1, run=run)
    assert "made no progress for 0.2 s" in caplog.text
    assert Result.from_path(tmp_path / "runs" / "run").checkpoint is None


@pytest.mark.usefixtures("without_grace")
def test_a_worker_that_goes_on_to_report_is_not_waited_for_again_and_again(fit: Fit) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            barrier()
            raise ValueError("bad luck")
        for step in range(100_000):
            train.report({"step": step}, checkpoint=write_checkpoint(step=str(step)))
            if step == 3:
                barrier()

    with pytest.raises(WorkerGroupError, match="rank 1 failed"):
        fit(function)


def test_an_upload_that_moves_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("skate.train._run.uploads.time", SimpleNamespace(monotonic=lambda: clock.now))
    moved = SimpleNamespace(bytes=1)
    actor = SimpleNamespace(uploaded_bytes=SimpleNamespace(remote=lambda: skate.put(moved.bytes)))
    ledger = ReportLedger(1)
    ledger.reported(0, {}, "checkpoint")
    group: Any = SimpleNamespace(members=[SimpleNamespace(actor=actor, ranks=Ranks(0))])
    run_state: Any = SimpleNamespace(ledger=ledger)
    uploads = Uploads(group, run_state, timeout=10.0)
    uploads.start()
    for _ in range(20):
        assert uploads.should_wait({0})
        moved.bytes += 1
        clock.now += 6.0
        uploads.poll()
        for ref in uploads.refs:
            uploads.on_ready(ref)
    clock.now += 6.0
    uploads.poll()
    for ref in uploads.refs:
        uploads.on_ready(ref)  # nothing has moved
    assert uploads.should_wait({0})
    clock.now += 6.0
    assert not uploads.should_wait({0})


def test_copying_tells_how_it_gets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_CHUNK", 4)
    files = {"a": b"0123456789", "deep/b": b"", "deep/c.gz": b"not compressed"}
    for name, content in files.items():
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(content)
    (tmp_path / "from" / "empty").mkdir()
    here = pafs.LocalFileSystem()
    moved: list[int] = []
    folders.copy(here, str(tmp_path / "from"), here, str(tmp_path / "to"), moved.append)
    assert sorted(moved) == [2, 2, 4, 4, 4, 4, 4]
    assert {name: (tmp_path / "to" / name).read_bytes() for name in files} == files
    assert (tmp_path / "to" / "empty").is_dir()
