"""Checkpoint folders."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from skate.train import Checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    (made / "deep").mkdir(parents=True)
    (made / "model").write_text("weights")
    (made / "deep" / "optimizer").write_text("moments")
    return made


@pytest.fixture
def far_away(folder: Path) -> Iterator[Checkpoint]:
    """A folder with the same files that is not on this machine's disk."""
    filesystem = MemoryFileSystem()
    filesystem.put(str(folder), "/state", recursive=True)
    yield Checkpoint("/state", filesystem=filesystem)
    filesystem.rm("/state", recursive=True)


def test_a_local_folder_is_given_as_it_is(folder: Path) -> None:
    with Checkpoint.from_directory(folder).as_directory() as there:
        assert there == str(folder)
    assert folder.is_dir()


def test_a_folder_elsewhere_is_fetched_and_deleted(far_away: Checkpoint) -> None:
    with far_away.as_directory() as there:
        assert Path(there, "deep", "optimizer").read_text() == "moments"
    assert not os.path.exists(there)


def test_a_copy_may_be_changed(folder: Path, tmp_path: Path) -> None:
    copy = Checkpoint(folder).to_directory(tmp_path / "copy")
    Path(copy, "model").write_text("other weights")
    assert (folder / "model").read_text() == "weights"


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="gone"), checkpoint.as_directory():
        pass
    with pytest.raises(FileNotFoundError, match="gone"):
        checkpoint.to_directory()


def test_notes_are_kept_with_the_files(folder: Path, far_away: Checkpoint) -> None:
    for checkpoint in (Checkpoint(folder), far_away):
        assert checkpoint.get_metadata() == {}
        checkpoint.set_metadata({"step": 3, "by": "test"})
        checkpoint.update_metadata({"step": 4})
        assert checkpoint.get_metadata() == {"step": 4, "by": "test"}


def test_a_checkpoint_may_be_in_a_part_of_a_filesystem(folder: Path) -> None:
    inside = Checkpoint(folder.name, pafs.SubTreeFileSystem(str(folder.parent), pafs.LocalFileSystem()))
    inside.set_metadata({"step": 3})
    assert Checkpoint(folder).get_metadata() == {"step": 3}
    with inside.as_directory() as there:
        assert sorted(os.listdir(there)) == sorted(os.listdir(folder))


def test_a_checkpoint_travels(folder: Path) -> None:
    checkpoint = Checkpoint(folder)
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint


def test_a_checkpoint_is_no_path(folder: Path) -> None:
    with pytest.raises(TypeError, match="as_directory"):
        os.listdir(Checkpoint(folder))  # type: ignore[call-overload]
