"""Runs that are stored in an object store, on loopback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from skate import train
from skate.train import (
    Checkpoint,
    CheckpointConfig,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    FailureConfig,
    Result,
    RunConfig,
)
from skate.train._storage import folders
from skate.train.data_parallel_trainer import DataParallelTrainer
from tests.plugins.s3 import environment
from tests.train.checkpoints import next_step, read, write_checkpoint
from tests.train.processes import die

pytest.importorskip("moto.server")
pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]
Fit = Callable[..., Result]


@pytest.fixture
def on_s3(bucket: str, server: str) -> Callable[..., RunConfig]:
    """Make settings of a run in the bucket."""

    def make(*, failures: int = 0, keep: int | None = None, **options: Any) -> RunConfig:
        return RunConfig(
            name="run",
            storage_path=f"{bucket}/runs",
            worker_runtime_env={"env_vars": environment(server)},
            failure_config=FailureConfig(max_failures=failures),
            checkpoint_config=CheckpointConfig(num_to_keep=keep),
            **options,
        )

    return make


def checkpoints_in(store: pafs.S3FileSystem) -> list[str]:
    """Return the names of all checkpoints in the bucket."""
    found = store.get_file_info(pafs.FileSelector("data/runs/run", recursive=True))
    files = [info.path.split("/") for info in found if info.type == pafs.FileType.File]
    return sorted({path[3] for path in files if len(path) > 4})


def learn(config: dict[str, Any]) -> None:
    """Take four steps, each with a checkpoint that both workers have a part of."""
    rank = train.get_context().get_world_rank()
    first = next_step(train.get_checkpoint(), f"part-{rank}")
    for step in range(first, 4):
        if step == config.get("torn_at") and first == 0 and rank == 1:
            train.get_all_reported_checkpoints(
                CheckpointConsistencyMode.COMMITTED
            )  # what was before is stored
            folders.copy = tear
        train.report(
            {"step": step, "began": first},
            checkpoint=write_checkpoint(**{f"part-{rank}": str(step), f"more-{rank}": "x" * 1000}),
            checkpoint_upload_mode=config.get("mode", CheckpointUploadMode.ASYNC),
        )


def tear(source: pafs.FileSystem, origin: str, target: pafs.FileSystem, destination: str, moved: Any) -> None:
    """Upload one file of several, and die."""
    name = min(os.listdir(origin))
    with target.open_output_stream(f"{destination}/{name}") as stream:
        stream.write(Path(origin, name).read_bytes())
    die()


@pytest.mark.parametrize("mode", [CheckpointUploadMode.ASYNC, CheckpointUploadMode.SYNC])
def test_checkpoints_go_to_the_store(
    fit: Fit, on_s3: Callable[..., RunConfig], store: pafs.S3FileSystem, mode: CheckpointUploadMode
) -> None:
    result = fit(learn, config={"mode": mode}, run=on_s3(keep=2))
    assert result.path == "data/runs/run"
    assert isinstance(result.filesystem, pafs.S3FileSystem)
    assert checkpoints_in(store) == ["checkpoint_000002", "checkpoint_000003"]
    assert [read(result.checkpoint, f"part-{rank}") for rank in (0, 1)] == ["3", "3"]
    looked_at = Result.from_path("s3://data/runs/run")
    assert looked_at.checkpoint == result.checkpoint
    assert looked_at.metrics == result.metrics == {"step": 3, "began": 0}
    assert len(looked_at.rank_metrics()) == 8


def test_a_filesystem_carries_its_credentials_to_the_workers(fit: Fit, store: pafs.S3FileSystem) -> None:
    run = RunConfig(name="run", storage_path="data/runs", storage_filesystem=store)
    result = fit(learn, config={}, run=run)
    assert read(result.checkpoint, "part-1") == "3"
    assert len(checkpoints_in(store)) == 4


def test_a_worker_killed_while_it_uploads_leaves_the_checkpoint_before(
    fit: Fit, on_s3: Callable[..., RunConfig], store: pafs.S3FileSystem, bucket: str
) -> None:
    with pytest.raises(train.WorkerGroupError, match="rank 1 failed"):
        fit(learn, config={"torn_at": 2}, run=on_s3())
    left = Result.from_path(f"{bucket}/runs/run")
    listed = [Path(checkpoint.path).name for checkpoint, _ in left.best_checkpoints or []]
    assert listed == checkpoints_in(store)
    assert [read(left.checkpoint, f"part-{rank}") for rank in (0, 1)] == ["1", "1"]

    result = fit(learn, config={}, run=on_s3())
    assert result.metrics == {"step": 3, "began": 2}
    assert [read(result.checkpoint, f"part-{rank}") for rank in (0, 1)] == ["3", "3"]
    assert len(checkpoints_in(store)) == len(result.best_checkpoints or []) == 4


def test_workers_start_again_from_the_store(fit: Fit, on_s3: Callable[..., RunConfig]) -> None:
    result = fit(learn, config={"torn_at": 3}, run=on_s3(failures=1))
    assert result.metrics == {"step": 3, "began": 3}


def test_what_a_killed_program_left_of_a_checkpoint_is_removed(
    fit: Fit, on_s3: Callable[..., RunConfig], store: pafs.S3FileSystem
) -> None:
    fit(learn, config={}, run=on_s3())
    with store.open_output_stream("data/runs/run/checkpoint_000004/part-7") as stream:
        stream.write(b"4")

    def more() -> None:
        train.report({}, checkpoint=write_checkpoint(own="5"))

    result = fit(more, 1, run=on_s3())
    assert result.checkpoint is not None
    assert result.checkpoint.path.endswith("checkpoint_000004")
    found = store.get_file_info(pafs.FileSelector(result.checkpoint.path))
    assert [info.base_name for info in found] == ["own"]


def test_a_run_is_restored_from_the_store(
    fit: Fit, on_s3: Callable[..., RunConfig], bucket: str, server: str
) -> None:
    fit(learn, config={"steps": 4}, run=on_s3())
    assert DataParallelTrainer.can_restore(f"{bucket}/runs/run")
    assert not DataParallelTrainer.can_restore(f"{bucket}/runs/other")

    def says(config: dict[str, Any]) -> None:
        checkpoint = train.get_checkpoint()
        train.report({"from": read(checkpoint, "part-0"), "config": config})

    trainer = DataParallelTrainer.restore(
        f"{bucket}/runs/run",
        says,
        run_config=RunConfig(worker_runtime_env={"env_vars": environment(server)}),
    )
    assert trainer.fit().metrics == {"from": "3", "config": {"steps": 4}}


def test_a_bucket_that_is_not_there_is_found_before_training(fit: Fit, bucket: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with pytest.raises((OSError, ValueError), match="nosuch"):
        fit(begun.touch, 1, run=RunConfig(name="run", storage_path="s3://nosuch/runs"))
    assert not begun.exists()


def test_metadata_of_a_checkpoint_is_in_the_store(fit: Fit, on_s3: Callable[..., RunConfig]) -> None:
    result = fit(learn, config={}, run=on_s3(), metadata={"model": "small"})
    assert result.checkpoint is not None
    assert Checkpoint(f"s3://{result.checkpoint.path}").get_metadata() == {"model": "small"}
