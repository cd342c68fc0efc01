"""Writes that go on where they stopped: each row once, whatever has ended the program."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext, FileShuffleConfig, SaveMode
from skate.data._resuming import locks
from skate.data._resuming.fingerprints import digest
from skate.data._resuming.records import Records
from skate.data.block import BlockMetadata
from skate.data.datasource import (
    Datasource,
    FilenameProvider,
    ReadTask,
    RowBasedFileDatasink,
)
from skate.data.exceptions import ResumeError

ROOT = Path(__file__).parents[2]


def visible(folder: Path) -> list[str]:
    """Return the files that a reader of the folder finds."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.startswith("_skate/"))


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return all rows that were written, in the order of the names of files."""
    return [
        row for name in visible(folder) for row in pq.read_table(folder / name, partitioning=None).to_pylist()
    ]


def remembered(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "_skate").iterdir())


class Interrupted(Exception):
    """What ends a program here, where a kill would end the tests."""


def fails_at(number: int, marker: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function over rows that fails at one of them, unless a marker is there; it notes what it has seen."""
    folder = str(marker.parent)

    def function(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == number and not os.path.exists(f"{folder}/mended"):
            raise Interrupted
        with open(f"{folder}/seen", "a") as seen:
            seen.write(f"{row['id']}\n")
        return {"id": row["id"], "double": 2 * row["id"]}

    return function


def interrupted(write: Callable[[], None], marker: Path) -> None:
    """Let a write fail, and mend what makes it fail."""
    with pytest.raises(Interrupted):
        write()
    (marker.parent / "seen").unlink(missing_ok=True)
    marker.touch()


@pytest.mark.parametrize("at", [0, 37, 99])
def test_a_write_goes_on_where_it_stopped(where: str, at: int, tmp_path: Path) -> None:
    marker, out = tmp_path / "mended", tmp_path / "out"
    ds = skate.data.range(100, override_num_blocks=10).map(fails_at(at, marker))
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, marker)
    before = rows_in(out)
    assert len(before) % 10 == 0, "whole parts are visible, and nothing else"
    write()
    assert rows_in(out) == [{"id": i, "double": 2 * i} for i in range(100)]
    if where == "here":  # elsewhere a worker may not have heard yet that the first run is over
        again = (tmp_path / "seen").read_text().split()
        assert len(again) == 100 - len(before), "what was written is not computed again"
        assert len(before) == at // 10 * 10
    assert remembered(out) == ["finished.json", "job.json", "lock"]


def test_steps_in_actors_keep_parts_apart(where: str, settings: DataContext, tmp_path: Path) -> None:
    settings.target_max_block_size = 8 * 5
    marker, out = tmp_path / "mended", tmp_path / "out"

    class Adder:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {**batch, "more": batch["double"] + 1}

    ds = skate.data.range(60, override_num_blocks=6).map(fails_at(47, marker))
    ds = ds.map_batches(Adder, concurrency=2, batch_size=3).filter(lambda row: row["id"] % 5 != 0)
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, marker)
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
    marker, out = tmp_path / "mended", tmp_path / "out"
    check = fails_at(5, marker)

    def pixel(row: dict[str, Any]) -> dict[str, Any]:
        check(row)
        if form == "images":
            return {"x": np.full((2, 2, 3), row["id"], np.uint8)}
        return {"__key__": f"k{row['id']}", "cls": row["id"]} if form == "webdataset" else {"x": row["id"]}

    ds = skate.data.range(8, override_num_blocks=4).map(pixel)
    options: dict[str, Any] = {"column": "x"} if form in ("numpy", "images") else {}
    write = lambda: getattr(ds, f"write_{form}")(str(out), resume=True, **options)  # noqa: E731
    interrupted(write, marker)
    write()
    read = getattr(skate.data, f"read_{form}")(str(out)).take_all()
    column = {"numpy": "data", "images": "image", "webdataset": "cls"}.get(form, "x")
    assert [int(np.max(row[column])) for row in read] == list(range(8))
    assert len(visible(out)) == (8 if form == "images" else 4)


def test_rows_in_memory_are_known_by_their_content(where: str, tmp_path: Path) -> None:
    marker, out = tmp_path / "mended", tmp_path / "out"
    check = fails_at(25, marker)

    def write(last: str = "spam") -> None:
        rows = [{"id": i, "text": last if i == 29 else "x"} for i in range(30)]
        skate.data.from_items(rows).map(check).write_parquet(str(out), resume=True)

    interrupted(write, marker)
    with pytest.raises(ResumeError, match=r"1 of which are not the same"):
        write(last="other")
    write()
    assert [row["id"] for row in rows_in(out)] == list(range(30))
    assert len(visible(out)) == 16, "a few rows may be hours of work: they are cut into several parts"


def test_united_sources_go_on_too(where: str, tmp_path: Path) -> None:
    marker, out = tmp_path / "mended", tmp_path / "out"
    check = fails_at(7, marker)
    pq.write_table(pa.table({"id": range(10, 20)}), tmp_path / "file.parquet")
    ds = skate.data.from_items([{"id": i} for i in range(20, 30)])
    ds = skate.data.read_parquet(str(tmp_path / "file.parquet")).union(skate.data.range(10), ds).map(check)
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, marker)
    write()
    assert [row["id"] for row in rows_in(out)] == [*range(10, 20), *range(10), *range(20, 30)]


def test_folders_of_values_are_committed_with_their_part(where: str, tmp_path: Path) -> None:
    marker, out = tmp_path / "mended", tmp_path / "out"
    check = fails_at(11, marker)
    ds = skate.data.range(16, override_num_blocks=4).map(check).map(lambda row: {**row, "g": row["id"] % 2})
    write = lambda: ds.write_parquet(str(out), resume=True, partition_cols=["g"], max_rows_per_file=1)  # noqa: E731
    interrupted(write, marker)
    assert all(name.startswith("g=") for name in visible(out))
    write()
    assert len(visible(out)) == 16
    found = skate.data.read_parquet(str(out)).take_all()
    assert sorted(row["id"] for row in found) == list(range(16))


def test_rows_left_out_are_counted_over_all_runs(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marker, out = tmp_path / "mended", tmp_path / "out"
    check = fails_at(35, marker)

    def odd(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] % 4 == 0:
            raise ValueError("spam")
        return row

    ds = skate.data.range(40, override_num_blocks=8).map(odd, on_error="drop").map(check)
    write = lambda: ds.write_parquet(str(out), resume=True)  # noqa: E731
    interrupted(write, marker)
    with caplog.at_level(logging.INFO):
        write()
    assert [row["id"] for row in rows_in(out)] == [i for i in range(40) if i % 4]
    assert json.loads((out / "_skate" / "finished.json").read_text()) == {
        "units": 8,
        "files": 8,
        "rows": 30,
        "failed_rows": 10,
    }
    assert "left out because user code failed, in all runs: 10" in caplog.text


def test_seeded_samples_and_row_numbers_are_those_of_an_undisturbed_run(where: str, tmp_path: Path) -> None:
    marker, out = tmp_path / "mended", tmp_path / "out"
    from skate.data.expressions import monotonically_increasing_id, random

    ds = skate.data.range(60, override_num_blocks=6).map(fails_at(33, marker))
    ds = ds.with_column("n", monotonically_increasing_id()).with_column("r", random(seed=5))
    ds = ds.random_sample(0.7, seed=3)
    write = lambda path: ds.write_parquet(str(path), resume=True)  # noqa: E731
    interrupted(lambda: write(out), marker)
    skate.data.Dataset.copy(ds).write_parquet(str(tmp_path / "undisturbed"), resume=True)
    ds._runs = 0  # as in the program that goes on: a seed gives other values in a second run
    write(out)
    assert rows_in(out) == rows_in(tmp_path / "undisturbed")
    assert len({row["n"] for row in rows_in(out)}) == len(rows_in(out))


# ------------------------------------------------------------ what is not the same as before


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A write of `tmp_path / "in"` that has been interrupted."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        table = pa.table({"id": range(10 * number, 10 * number + 10)})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    marker = tmp_path / "mended"
    interrupted(lambda: write_of(tmp_path, fails_at(25, marker)), marker)
    return tmp_path


def named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


def write_of(folder: Path, function: Any, **options: Any) -> None:
    ds = skate.data.read_parquet(str(folder / "in"), override_num_blocks=4).map(function)
    ds.write_parquet(str(folder / "out"), resume=True, **options)


HERE = pytest.mark.usefixtures("settings")


@HERE
def test_another_function_is_an_error_that_names_the_step(stopped: Path) -> None:
    before = visible(stopped / "out")
    with pytest.raises(ResumeError, match=r"not the same as then: step 1, Map.*another folder, or delete"):
        write_of(stopped, named("function", lambda row: row))
    assert visible(stopped / "out") == before


@HERE
def test_another_constant_in_a_closure_is_another_program(stopped: Path) -> None:
    with pytest.raises(ResumeError, match=r"step 1, Map\(function\)"):
        write_of(stopped, fails_at(26, stopped / "mended"))


@HERE
def test_a_further_step_is_an_error_that_names_it(stopped: Path) -> None:
    ds = skate.data.read_parquet(str(stopped / "in"), override_num_blocks=4)
    ds = ds.map(fails_at(25, stopped / "mended")).drop_columns(["double"])
    with pytest.raises(ResumeError, match=r"not there then: step 2, "):
        ds.write_parquet(str(stopped / "out"), resume=True)


@HERE
def test_another_way_of_writing_is_an_error(stopped: Path) -> None:
    with pytest.raises(ResumeError, match=r"the writer"):
        write_of(stopped, fails_at(25, stopped / "mended"), compression="zstd")


@HERE
def test_a_source_that_has_changed_is_an_error_that_names_the_file(stopped: Path) -> None:
    pq.write_table(pa.table({"id": range(5)}), stopped / "in" / "2.parquet")
    with pytest.raises(ResumeError, match=r"had 4 parts then and has 4 now, 1 of which.*2\.parquet"):
        write_of(stopped, fails_at(25, stopped / "mended"))


@HERE
def test_a_file_that_was_added_is_an_error(stopped: Path) -> None:
    pq.write_table(pa.table({"id": range(5)}), stopped / "in" / "9.parquet")
    with pytest.raises(ResumeError, match=r"not the same"):
        write_of(stopped, fails_at(25, stopped / "mended"))


@HERE
def test_a_finished_write_of_another_source_is_an_error_and_not_nothing(stopped: Path) -> None:
    write_of(stopped, fails_at(25, stopped / "mended"))
    pq.write_table(pa.table({"id": range(5)}), stopped / "in" / "2.parquet")
    with pytest.raises(ResumeError, match=r"2\.parquet"):
        write_of(stopped, fails_at(25, stopped / "mended"))


@HERE
def test_how_many_tasks_run_at_a_time_may_change(stopped: Path, settings: DataContext) -> None:
    settings.target_max_block_size = 1 << 10
    settings.read_op_min_num_blocks = 7
    write_of(stopped, fails_at(25, stopped / "mended"), concurrency=1)
    assert [row["id"] for row in rows_in(stopped / "out")] == list(range(40))
    skate.shutdown()


@HERE
def test_a_record_of_another_version_is_an_error(stopped: Path) -> None:
    record = stopped / "out" / "_skate" / "job.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "format": 99}))
    with pytest.raises(ResumeError, match=r"another version of Skate.*99"):
        write_of(stopped, fails_at(25, stopped / "mended"))


# ------------------------------------------------------------ what cannot be resumed


@HERE
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda ds: ds.sort("id"),
            r"Sort needs rows of all parts.*Write what Sort works on with resume=True",
        ),
        (lambda ds: ds.random_shuffle(), r"RandomShuffle needs"),
        (lambda ds: ds.repartition(2), r"Repartition needs"),
        (lambda ds: ds.groupby("id").count(), r"Aggregate needs"),
        (lambda ds: ds.limit(3), r"Limit\[3\] needs"),
        (lambda ds: ds.zip(skate.data.range(10)), r"Zip needs"),
        (lambda ds: ds.map(lambda row: row, on_error="dead_letter"), r"dead letters end with the program"),
    ],
)
def test_plans_that_cannot_be_resumed_say_why(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match=message):
        change(skate.data.range(10)).write_parquet(str(tmp_path / "out"), resume=True)
    assert not (tmp_path / "out").exists()


@HERE
@pytest.mark.parametrize("mode", [SaveMode.OVERWRITE, SaveMode.IGNORE, SaveMode.ERROR])
def test_modes_that_contradict_are_errors(mode: SaveMode, tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match=rf"mode='{mode.value}' and resume=True contradict"):
        skate.data.range(3).write_parquet(str(tmp_path), resume=True, mode=mode)


@HERE
def test_rows_per_file_across_parts_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match=r"min_rows_per_file.*override_num_blocks"):
        skate.data.range(3).write_csv(str(tmp_path), resume=True, min_rows_per_file=2)


@HERE
def test_databases_cannot_resume_and_say_so() -> None:
    with pytest.raises(ResumeError, match=r"SQLDatasink cannot resume.*write_parquet"):
        skate.data.range(3).write_sql("INSERT INTO t VALUES (?)", lambda: None, resume=True)


class Numbers(Datasource):
    """Ten numbers, in parts with or without a name."""

    def __init__(self, identity: str | None = None) -> None:
        self._identity = identity

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        metadata = BlockMetadata(num_rows=None, size_bytes=80)
        return [ReadTask(lambda: [pa.table({"id": range(10)})], metadata, identity=self._identity)]


@HERE
def test_a_source_without_names_for_its_parts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match=r"Numbers has no names for its parts.*identity="):
        skate.data.read_datasource(Numbers()).write_parquet(str(tmp_path), resume=True)


@HERE
def test_a_source_of_the_users_own_is_cut_by_rows(tmp_path: Path) -> None:
    ds = skate.data.read_datasource(Numbers("v1"))
    ds.write_parquet(str(tmp_path / "rows"), resume=True)
    assert len(visible(tmp_path / "rows")) == 10
    ds.map_batches(lambda batch: batch, batch_size=4).write_parquet(str(tmp_path / "batches"), resume=True)
    assert [row["id"] for row in rows_in(tmp_path / "batches")] == list(range(10))
    assert len(visible(tmp_path / "batches")) == 2, "no part is smaller than a batch"


@HERE
def test_files_in_random_order_need_a_seed(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.csv").write_text(f"id\n{number}\n")
    with pytest.raises(ResumeError, match=r"FileShuffleConfig\(seed="):
        skate.data.read_csv(str(tmp_path), shuffle="files").write_csv(str(tmp_path / "out"), resume=True)
    ds = skate.data.read_csv(str(tmp_path), shuffle=FileShuffleConfig(seed=1))
    ds.write_csv(str(tmp_path / "out"), resume=True)
    assert len(visible(tmp_path / "out")) == 6


@HERE
def test_names_of_the_users_own_are_kept_and_must_not_repeat(tmp_path: Path) -> None:
    class Named(FilenameProvider):
        def __init__(self, modulus: int) -> None:
            self.modulus = modulus

        def get_filename_for_row(self, row: dict[str, Any], *_: Any) -> str:
            return f"row-{row['id'] % self.modulus}.txt"

    class Texts(RowBasedFileDatasink):
        def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
            file.write(str(row["id"]).encode())

    ds = skate.data.range(6, override_num_blocks=3)
    ds.write_datasink(Texts(tmp_path / "good", filename_provider=Named(100)), resume=True)
    assert visible(tmp_path / "good") == [f"row-{i}.txt" for i in range(6)]
    with pytest.raises(ResumeError, match=r"'row-0\.txt' to more than one file"):
        ds.write_datasink(Texts(tmp_path / "bad", filename_provider=Named(2)), resume=True)


@HERE
def test_what_others_have_written_to_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_text("other")
    skate.data.range(3).write_parquet(str(tmp_path), resume=True)
    assert (tmp_path / "other.parquet").read_text() == "other"


@HERE
def test_two_programs_at_a_time_are_one_too_many(tmp_path: Path) -> None:
    import pyarrow.fs as pafs

    held = locks.only_here(pafs.LocalFileSystem(), str(tmp_path / "_skate"))
    with held, pytest.raises(ResumeError, match=r"somebody else is writing"):
        skate.data.range(3).write_parquet(str(tmp_path), resume=True)
    skate.data.range(3).write_parquet(str(tmp_path), resume=True)
    assert rows_in(tmp_path) == [{"id": i} for i in range(3)]


# ------------------------------------------------------------ what a program does


def plus(number: int) -> Callable[[int], int]:
    return lambda x: x + number


THRESHOLD = 5


def above(x: int) -> bool:
    return x > THRESHOLD


def test_functions_differ_by_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert digest(plus(1)) == digest(plus(1))
    assert digest(plus(1)) != digest(plus(2))
    before = digest(above)
    monkeypatch.setitem(above.__globals__, "THRESHOLD", 6)
    assert digest(above) != before
    monkeypatch.undo()
    assert digest(above) == before


def test_what_a_function_calls_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = lambda x: above(x)  # noqa: E731
    before = digest(caller)
    monkeypatch.setitem(caller.__globals__, "above", lambda x: x >= 5)
    assert digest(caller) != before


def test_functions_that_call_each_other_have_an_end() -> None:
    def even(x: int) -> bool:
        return x == 0 or odd(x - 1)

    def odd(x: int) -> bool:
        return x != 0 and even(x - 1)

    assert digest(even) == digest(even)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 2}),
        (np.arange(3), np.arange(4)),
        (pa.int32(), pa.int64()),
        ("ab", ["a", "b"]),
        ((("a",), "b"), ("a", ("b",))),
    ],
)
def test_values_that_differ_read_differently(one: Any, other: Any) -> None:
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


def test_order_within_sets_and_dicts_is_no_difference() -> None:
    assert digest({"a": 1, "b": {"x", "y"}}) == digest({"b": {"y", "x"}, "a": 1})


# ------------------------------------------------------------ killed programs


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.data.killed_write", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_a_program_that_is_killed_at_any_step_goes_on(tmp_path: Path) -> None:
    done = run("steps", str(tmp_path))
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
        killed = run("rows", str(out), SKATE_ENGINE=engine, DIE_AT=str(row))
        assert killed.returncode in (-signal.SIGKILL, 0), killed.stderr
        found = [each["id"] for each in rows_in(out)]
        assert len(found) == len(set(found))
        assert len(found) % 10 == 0, "whole parts are visible, and nothing else"
    done = run("rows", str(out), SKATE_ENGINE=engine)
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
    records.leave()
    records.filesystem = Busy(errno.EPERM)
    with pytest.raises(OSError, match="cannot delete"):
        records.leave()


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
