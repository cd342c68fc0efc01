"""Writes with checkpoints by row id, in programs and workers that are killed: each id is written once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.data import DataContext
from skate.data._checkpointing.folder import IdFolder
from skate.data._resuming.records import Records
from skate.data.checkpoint import CheckpointConfig
from skate.data.datasource import BlockBasedFileDatasink
from tests.data.interruptions import Interrupted, ids_in, killed, noted, visible

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("in_process")]


def test_who_is_interrupted_while_forgetting_ids_leaves_no_half(
    settings: DataContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, out = tmp_path / "ids", tmp_path / "out"
    settings.checkpoint_config = CheckpointConfig("id", str(ids))

    def begun(self: IdFolder) -> None:
        self._delete(self._committed_paths()[:1])
        raise Interrupted

    ds = skate.data.range(40, override_num_blocks=4)
    with monkeypatch.context() as patched:
        patched.setattr(IdFolder, "_empty", begun)
        with pytest.raises(Interrupted):
            ds.write_parquet(str(out))
    assert len(noted(ids)) == 30
    ds.write_parquet(str(out))
    assert ids_in(out) == sorted([*range(40), *range(40)]), "it was finished, so that this run begins anew"


def test_files_whose_ids_count_are_not_lost_when_moving_them_fails(
    where: str, keeps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    moves: list[int] = []
    move = Records.move

    def fails_once(self: Records, waiting: dict[str, str]) -> None:
        if waiting:
            moves.append(1)
        if len(moves) == 2:
            raise Interrupted
        move(self, waiting)

    ds = skate.data.range(40, override_num_blocks=4)
    with monkeypatch.context() as patched:
        patched.setattr(Records, "move", fails_once)
        with pytest.raises(Interrupted):
            ds.write_parquet(str(out))
    assert ids_in(out) == noted(keeps)
    assert len(noted(keeps)) == 20
    ds.write_parquet(str(out))
    assert ids_in(out) == list(range(40))


class Deadly(BlockBasedFileDatasink):
    """Kills its worker once, when a file is half written, or when all files of a task are there."""

    def __init__(self, path: str, when: str, marker: Path) -> None:
        super().__init__(path, file_format="txt")
        self._when = when
        self._marker = marker

    def write(self, blocks: Any, ctx: Any) -> list[str]:
        written = super().write(blocks, ctx)
        self._die("after its files")
        return written

    def write_block_to_file(self, block: Any, file: Any) -> None:
        for row in block.iter_rows(public_row_format=True):
            file.write(f"{row['id']}\n".encode())
            self._die("in a file")

    def _die(self, when: str) -> None:
        if when == self._when:
            try:
                self._marker.touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("when", ["in a file", "after its files"])
def test_what_a_killed_worker_has_written_is_not_there_twice(
    where: str, when: str, keeps: Path, tmp_path: Path
) -> None:
    if where != "local":
        pytest.skip("there are no workers to die")
    marker, out = tmp_path / "died", tmp_path / "out"
    skate.data.range(60, override_num_blocks=6).write_datasink(Deadly(str(out), when, marker))
    assert marker.exists()
    lines = [line for name in visible(out) for line in (out / name).read_text().split()]
    assert sorted(map(int, lines)) == list(range(60)) == noted(keeps)
    assert len(visible(out)) == 6
    assert not list(keeps.glob("*.pending.parquet"))


def test_a_program_that_is_killed_at_any_step_writes_each_id_once(tmp_path: Path) -> None:
    done = killed("steps of ids", str(tmp_path))
    assert done.returncode == 0, done.stderr
    outs = [path for path in tmp_path.iterdir() if path.is_dir() and path.name != "ids"]
    assert len(outs) == 2 + int(done.stdout)
    for out in outs:
        assert ids_in(out) == list(range(40)), out
        assert noted(tmp_path / "ids" / out.name) == list(range(40)), out
        assert [path.name for path in (out / "_skate_ids").iterdir()] == ["lock"], out


def test_a_program_that_is_killed_while_workers_work_writes_each_id_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for row in (17, 39):
        done = killed("rows of ids", str(out), DIE_AT=str(row))
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
        found = ids_in(out) if out.exists() else []
        assert len(found) == len(set(found))
    done = killed("rows of ids", str(out))
    assert done.returncode == 0, done.stderr
    assert ids_in(out) == list(range(40))
