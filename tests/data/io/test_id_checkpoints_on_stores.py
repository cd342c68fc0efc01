"""Checkpoints by row id on an object store, where nothing can be moved and objects appear whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext
from skate.data._checkpointing.write import _Files
from skate.data._exec.drivers import inprocess
from skate.data.checkpoint import CheckpointBackend, CheckpointConfig
from skate.data.checkpoint.checkpoint_writer import BatchBasedCheckpointWriter
from skate.data.datasource import FilenameProvider
from skate.data.exceptions import ResumeError
from tests.data.io.test_stores import keys


class Killed(BaseException):
    """What ends a program here, where a kill would end the tests: nobody catches it."""


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans that begin in this process end in it, however slow it is."""
    monkeypatch.setattr(inprocess, "IN_PROCESS_SECONDS", float("inf"))


def under(store: pafs.S3FileSystem, folder: str) -> list[str]:
    return [key for key in keys(store) if key.startswith(f"data/{folder}/")]


def ids_in(store: pafs.S3FileSystem, folder: str) -> list[int]:
    names = [key for key in under(store, folder) if not key.endswith(".pending.parquet")]
    return sorted(row for name in names for row in pq.read_table(name, filesystem=store)["id"].to_pylist())


@pytest.mark.parametrize("when", ["before its ids count", "while its ids are copied", "after its ids count"])
def test_a_killed_write_goes_on_and_leaves_no_stray_object(
    bucket: str,
    store: pafs.S3FileSystem,
    when: str,
    settings: DataContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.checkpoint_config = CheckpointConfig("id", f"{bucket}/ids", delete_checkpoint_on_success=False)
    assert settings.checkpoint_config.backend is CheckpointBackend.CLOUD_OBJECT_STORAGE
    commit = _Files.commit
    parts: list[Any] = []

    def killed(self: _Files, written: Any) -> None:
        parts.append(written)
        if len(parts) < 4 or when == "after its ids count":
            commit(self, written)
        elif when == "while its ids are copied":
            paths = BatchBasedCheckpointWriter(self._config).pending(written.ids)
            store.copy_file(paths.pending_path, paths.committed_path)
        if len(parts) == 4:
            raise Killed

    ds = skate.data.range(60, override_num_blocks=6)
    with monkeypatch.context() as patched:
        patched.setattr(_Files, "commit", killed)
        patched.setattr(_Files, "_settle", lambda self: None)  # who is killed does not clean up
        with pytest.raises(Killed):
            ds.write_parquet(f"{bucket}/out")
    assert len(under(store, "out")) == 4, "an object is there before its ids count"
    ds.write_parquet(f"{bucket}/out")
    assert ids_in(store, "out") == list(range(60)) == ids_in(store, "ids")
    assert len(under(store, "out")) == 6
    assert not [key for key in under(store, "ids") if key.endswith(".pending.parquet")]
    kept = keys(store)
    ds.write_parquet(f"{bucket}/out")
    assert keys(store) == kept


def test_what_a_failed_write_has_left_is_removed_at_once(
    bucket: str,
    store: pafs.S3FileSystem,
    settings: DataContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.checkpoint_config = CheckpointConfig("id", f"{bucket}/ids")

    def fails(self: _Files, written: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(_Files, "commit", fails)
        with pytest.raises(Killed):
            skate.data.range(6).write_parquet(f"{bucket}/out")
    assert not under(store, "out")
    assert under(store, "ids"), "the next run looks again: another writer may have been slow"
    skate.data.range(6).write_parquet(f"{bucket}/out")
    assert ids_in(store, "out") == list(range(6))
    assert not under(store, "ids"), "all is written, and all is forgotten"


@pytest.mark.parametrize("rows_on_the_store", [True, False])
def test_rows_and_ids_may_be_in_different_places(
    bucket: str,
    store: pafs.S3FileSystem,
    rows_on_the_store: bool,
    settings: DataContext,
    tmp_path: Path,
) -> None:
    ids = str(tmp_path / "ids") if rows_on_the_store else f"{bucket}/ids"
    out = f"{bucket}/out" if rows_on_the_store else str(tmp_path / "out")
    settings.checkpoint_config = CheckpointConfig("id", ids, delete_checkpoint_on_success=False)
    for rows in (10, 15):
        skate.data.range(rows).write_parquet(out)
    settings.checkpoint_config = None
    assert sorted(row["id"] for row in skate.data.read_parquet(out).take_all()) == list(range(15))


def test_a_filesystem_may_be_given(store: pafs.S3FileSystem, settings: DataContext) -> None:
    settings.checkpoint_config = CheckpointConfig("id", "s3://data/ids", override_filesystem=store)
    assert settings.checkpoint_config.filesystem is store
    skate.data.range(6).write_parquet("s3://data/out", filesystem=store)
    assert ids_in(store, "out") == list(range(6))
    assert not under(store, "ids")


def test_names_that_do_not_name_their_part_are_an_error(
    bucket: str,
    settings: DataContext,
) -> None:
    class Named(FilenameProvider):
        def get_filename_for_block(
            self, block: Any, write_uuid: str, task_index: int, block_index: int
        ) -> str:
            return f"{task_index}.csv"

    settings.checkpoint_config = CheckpointConfig("id", f"{bucket}/ids")
    with pytest.raises(ResumeError, match=r"make the filename_provider include write_uuid in the name"):
        skate.data.range(4).write_csv(f"{bucket}/out", filename_provider=Named())
