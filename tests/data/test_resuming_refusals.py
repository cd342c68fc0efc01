"""Writes that cannot be resumed: the error says why."""

from __future__ import annotations

import json
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
from skate.data.block import BlockMetadata
from skate.data.datasource import (
    Datasource,
    FilenameProvider,
    ReadTask,
    RowBasedFileDatasink,
)
from skate.data.exceptions import ResumeError
from tests.data.interruptions import fails_at, interrupted, rows_in, visible

# ------------------------------------------------------------ what is not the same as before


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A write of `tmp_path / "in"` that has been interrupted."""
    (tmp_path / "in").mkdir()
    for number in range(4):
        table = pa.table({"id": range(10 * number, 10 * number + 10)})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    interrupted(lambda: write_of(tmp_path, fails_at(25, tmp_path)), tmp_path)
    return tmp_path


def named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


def write_of(folder: Path, function: Any, **options: Any) -> None:
    ds = skate.data.read_parquet(str(folder / "in"), override_num_blocks=4).map(function)
    ds.write_parquet(str(folder / "out"), resume=True, **options)


HERE = pytest.mark.usefixtures("settings", "in_process")


@HERE
def test_another_function_is_an_error_that_names_the_step(stopped: Path) -> None:
    before = visible(stopped / "out")
    with pytest.raises(ResumeError, match=r"changed: step 1, Map.*another folder, or delete"):
        write_of(stopped, named("function", lambda row: row))
    assert visible(stopped / "out") == before


@HERE
def test_another_constant_in_a_closure_is_another_program(stopped: Path) -> None:
    with pytest.raises(ResumeError, match=r"step 1, Map\(function\)"):
        write_of(stopped, fails_at(26, stopped))


@HERE
def test_a_further_step_is_an_error_that_names_it(stopped: Path) -> None:
    ds = skate.data.read_parquet(str(stopped / "in"), override_num_blocks=4)
    ds = ds.map(fails_at(25, stopped)).drop_columns(["double"])
    with pytest.raises(ResumeError, match=r"new: step 2, "):
        ds.write_parquet(str(stopped / "out"), resume=True)


@HERE
def test_another_way_of_writing_is_an_error(stopped: Path) -> None:
    with pytest.raises(ResumeError, match=r"the writer"):
        write_of(stopped, fails_at(25, stopped), compression="zstd")


@HERE
def test_a_source_that_has_changed_is_an_error_that_names_the_file(stopped: Path) -> None:
    pq.write_table(pa.table({"id": range(5)}), stopped / "in" / "2.parquet")
    with pytest.raises(ResumeError, match=r"had 4 parts and now has 4, 1 of which.*2\.parquet"):
        write_of(stopped, fails_at(25, stopped))


@HERE
def test_a_file_that_was_added_is_an_error(stopped: Path) -> None:
    pq.write_table(pa.table({"id": range(5)}), stopped / "in" / "9.parquet")
    with pytest.raises(ResumeError, match=r"have changed"):
        write_of(stopped, fails_at(25, stopped))


@HERE
def test_a_finished_write_of_another_source_is_an_error_and_not_nothing(stopped: Path) -> None:
    write_of(stopped, fails_at(25, stopped))
    pq.write_table(pa.table({"id": range(5)}), stopped / "in" / "2.parquet")
    with pytest.raises(ResumeError, match=r"2\.parquet"):
        write_of(stopped, fails_at(25, stopped))


@HERE
def test_how_many_tasks_run_at_a_time_may_change(stopped: Path, settings: DataContext) -> None:
    settings.target_max_block_size = 1 << 10
    settings.read_op_min_num_blocks = 7
    write_of(stopped, fails_at(25, stopped), concurrency=1)
    assert [row["id"] for row in rows_in(stopped / "out")] == list(range(40))
    skate.shutdown()


@HERE
def test_a_record_of_another_version_is_an_error(stopped: Path) -> None:
    record = stopped / "out" / "_skate" / "job.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "format": 99}))
    with pytest.raises(ResumeError, match=r"another version of Skate.*99"):
        write_of(stopped, fails_at(25, stopped))


# ------------------------------------------------------------ what cannot be resumed


@HERE
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda ds: ds.sort("id"),
            r"Sort needs the rows of all parts.*Write the input of Sort with resume=True",
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
    with pytest.raises(ResumeError, match=r"'row-0\.txt' to several files"):
        ds.write_datasink(Texts(tmp_path / "bad", filename_provider=Named(2)), resume=True)


@HERE
def test_what_others_have_written_to_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").write_text("other")
    skate.data.range(3).write_parquet(str(tmp_path), resume=True)
    assert (tmp_path / "other.parquet").read_text() == "other"


@HERE
def test_two_programs_at_a_time_are_one_too_many(tmp_path: Path) -> None:
    held = locks.exclusive(pafs.LocalFileSystem(), str(tmp_path / "_skate"))
    with held, pytest.raises(ResumeError, match=r"another program is writing"):
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
