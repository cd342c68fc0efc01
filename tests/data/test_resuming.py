"""Resumable writes: each row is written once, however the program ended."""

from __future__ import annotations

import errno
import json
import logging
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext
from skate.data._resuming.records import Records
from skate.data.exceptions import ResumeError
from tests.data.interruptions import Interrupted, fails_at, interrupted, killed, rows_in, visible

pytestmark = pytest.mark.ray_more


def remembered(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "_skate").iterdir())


@pytest.mark.parametrize("at", [0, 37, 99])
def test_a_write_goes_on_where_it_stopped(where: str, at: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ds = skate.data.range(100, override_num_blocks=10).map(fails_at(at, tmp_path))
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, tmp_path)
    before = rows_in(out)
    assert len(before) % 10 == 0, "whole parts are visible, and nothing else"
    write()
    assert rows_in(out) == [{"id": i, "double": 2 * i} for i in range(100)]
    if where == "here":  # elsewhere a worker may not have update_memory yet that the first run is over
        again = (tmp_path / "seen").read_text().split()
        assert len(again) == 100 - len(before), "what was written is not computed again"
        assert len(before) == at // 10 * 10
    assert remembered(out) == ["finished.json", "job.json", "lock"]


def test_steps_in_actors_keep_parts_apart(where: str, settings: DataContext, tmp_path: Path) -> None:
    settings.target_max_block_size = 8 * 5
    out = tmp_path / "out"

    class Adder:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {**batch, "more": batch["double"] + 1}

    ds = skate.data.range(60, override_num_blocks=6).map(fails_at(47, tmp_path))
    ds = ds.map_batches(Adder, concurrency=2, batch_size=3).filter(lambda row: row["id"] % 5 != 0)
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, tmp_path)
    write()
    assert rows_in(out) == [{"id": i, "double": 2 * i, "more": 2 * i + 1} for i in range(60) if i % 5]


def test_a_finished_write_writes_nothing_and_says_so(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ds = skate.data.range(20).map(lambda row: {"id": row["id"]})
    ds.write_parquet(str(tmp_path), resume=True)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in visible(tmp_path)}
    assert before
    with caplog.at_level(logging.WARNING):
        ds.write_parquet(str(tmp_path), resume=True)
    assert "nothing is left to write" in caplog.text
    assert "20 rows" in caplog.text
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in visible(tmp_path)} == before


@pytest.mark.parametrize("form", ["csv", "json", "orc", "tfrecords", "webdataset", "numpy", "images"])
def test_all_formats_of_files_can_be_resumed(where: str, form: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    check = fails_at(5, tmp_path)

    def pixel(row: dict[str, Any]) -> dict[str, Any]:
        check(row)
        if form == "images":
            return {"x": np.full((2, 2, 3), row["id"], np.uint8)}
        return {"__key__": f"k{row['id']}", "cls": row["id"]} if form == "webdataset" else {"x": row["id"]}

    ds = skate.data.range(8, override_num_blocks=4).map(pixel)
    options: dict[str, Any] = {"column": "x"} if form in ("numpy", "images") else {}
    write = lambda: getattr(ds, f"write_{form}")(str(out), resume=True, **options)  # noqa: E731
    interrupted(write, tmp_path)
    write()
    read = getattr(skate.data, f"read_{form}")(str(out)).take_all()
    column = {"numpy": "data", "images": "image", "webdataset": "cls"}.get(form, "x")
    assert [int(np.max(row[column])) for row in read] == list(range(8))
    assert len(visible(out)) == (8 if form == "images" else 4)


def test_rows_in_memory_are_known_by_their_content(where: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    check = fails_at(25, tmp_path)

    def write(last: str = "spam") -> None:
        rows = [{"id": i, "text": last if i == 29 else "x"} for i in range(30)]
        skate.data.from_items(rows).map(check).write_parquet(str(out), resume=True)

    interrupted(write, tmp_path)
    with pytest.raises(ResumeError, match=r"1 of which have changed"):
        write(last="other")
    write()
    assert [row["id"] for row in rows_in(out)] == list(range(30))
    assert len(visible(out)) == 16, "a few rows may be hours of work: they are cut into several parts"


def test_united_sources_go_on_too(where: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    check = fails_at(7, tmp_path)
    pq.write_table(pa.table({"id": range(10, 20)}), tmp_path / "file.parquet")
    ds = skate.data.from_items([{"id": i} for i in range(20, 30)])
    ds = skate.data.read_parquet(str(tmp_path / "file.parquet")).union(skate.data.range(10), ds).map(check)
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, tmp_path)
    write()
    assert [row["id"] for row in rows_in(out)] == [*range(10, 20), *range(10), *range(20, 30)]


def test_folders_of_values_are_committed_with_their_part(where: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    check = fails_at(11, tmp_path)
    ds = skate.data.range(16, override_num_blocks=4).map(check).map(lambda row: {**row, "g": row["id"] % 2})
    write = lambda: ds.write_parquet(str(out), resume=True, partition_cols=["g"], max_rows_per_file=1)  # noqa: E731
    interrupted(write, tmp_path)
    assert all(name.startswith("g=") for name in visible(out))
    write()
    assert len(visible(out)) == 16
    found = skate.data.read_parquet(str(out)).take_all()
    assert sorted(row["id"] for row in found) == list(range(16))


def test_rows_left_out_are_counted_over_all_runs(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    check = fails_at(35, tmp_path)

    def odd(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] % 4 == 0:
            raise ValueError("spam")
        return row

    ds = skate.data.range(40, override_num_blocks=8).map(odd, on_error="drop").map(check)
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, tmp_path)
    with caplog.at_level(logging.INFO):
        write()
    assert [row["id"] for row in rows_in(out)] == [i for i in range(40) if i % 4]
    assert json.loads((out / "_skate" / "finished.json").read_text()) == {
        "units": 8,
        "files": 8,
        "rows": 30,
        "failed_rows": 10,
    }
    assert "dropped because user code failed, in all runs: 10" in caplog.text


def test_seeded_samples_and_row_numbers_are_those_of_an_undisturbed_run(where: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    from skate.data.expressions import monotonically_increasing_id, random

    ds = skate.data.range(60, override_num_blocks=6).map(fails_at(33, tmp_path))
    ds = ds.with_column("n", monotonically_increasing_id()).with_column("r", random(seed=5))
    ds = ds.random_sample(0.7, seed=3)
    write = lambda path: ds.write_parquet(str(path), resume=True)  # noqa: E731
    interrupted(lambda: write(out), tmp_path)
    skate.data.Dataset.copy(ds).write_parquet(str(tmp_path / "undisturbed"), resume=True)
    ds._runs = 0  # as in the program that goes on: a seed gives other values in a second run
    write(out)
    assert rows_in(out) == rows_in(tmp_path / "undisturbed")
    assert len({row["n"] for row in rows_in(out)}) == len(rows_in(out))


# ------------------------------------------------------------ killed programs


def test_a_program_that_is_killed_at_any_step_goes_on(tmp_path: Path) -> None:
    done = killed("steps", str(tmp_path))
    assert done.returncode == 0, done.stderr
    expected = rows_in(tmp_path / "undisturbed")
    assert expected == [{"id": i, "double": 2 * i} for i in range(40)]
    outs = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(outs) == 2 + int(done.stdout)
    for out in outs:
        assert rows_in(out) == expected, out
        assert len(visible(out)) == 6, out
        assert remembered(out) == ["finished.json", "job.json", "lock"], out


@pytest.mark.parametrize("engine", ["local", "inline"])
def test_a_program_that_is_killed_while_workers_work_goes_on(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for row in (3, 17, 31, 39):
        done = killed("rows", str(out), SKATE_ENGINE=engine, DIE_AT=str(row))
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
        found = [each["id"] for each in rows_in(out)]
        assert len(found) == len(set(found))
        assert len(found) % 10 == 0, "whole parts are visible, and nothing else"
    done = killed("rows", str(out), SKATE_ENGINE=engine)
    assert done.returncode == 0, done.stderr
    assert rows_in(out) == [{"id": i, "double": 2 * i, "negative": -i} for i in range(40)]
    assert remembered(out) == ["finished.json", "job.json", "lock"]


def test_who_still_writes_when_a_run_ends_does_not_hide_why_it_ended(tmp_path: Path) -> None:
    class Busy:
        def __init__(self, code: int) -> None:
            self.code = code

        def delete_dir(self, path: str) -> None:
            raise OSError(self.code, "cannot delete", path)

    records = Records(pafs.LocalFileSystem(), str(tmp_path), True)
    records.filesystem = Busy(errno.ENOTEMPTY)
    records.discard_uncommitted()
    records.filesystem = Busy(errno.EPERM)
    with pytest.raises(OSError, match="cannot delete"):
        records.discard_uncommitted()


def test_files_of_a_committed_part_are_not_lost_when_moving_them_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    move = Records.move

    def fails(self: Records, waiting: dict[str, str]) -> None:
        if any("000002" in name for name in waiting):
            raise Interrupted
        move(self, waiting)

    ds = skate.data.range(40, override_num_blocks=4)
    with monkeypatch.context() as patched:
        patched.setattr(Records, "move", fails)
        with pytest.raises(Interrupted):
            ds.write_parquet(str(out), resume=True)
    assert [row["id"] for row in rows_in(out)] == list(range(20))
    ds.write_parquet(str(out), resume=True)
    assert [row["id"] for row in rows_in(out)] == list(range(40))
