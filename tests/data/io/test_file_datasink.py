from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skate
from skate.data._io.csv import CSVDatasink
from skate.data.block import BlockAccessor
from skate.data.datasource import (
    BlockBasedFileDatasink,
    Datasink,
    FilenameProvider,
    RowBasedFileDatasink,
    SaveMode,
    TaskContext,
    WriteResult,
)
from tests.data.io.support import write

ONE = pa.table({"id": [1]})
TWO = pa.table({"id": [2, 3]})


class Rows(RowBasedFileDatasink):
    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        file.write(str(row["id"]).encode())


class Blocks(BlockBasedFileDatasink):
    def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
        file.write(b"half")
        if block.to_arrow()["id"][0].as_py() == 2:
            raise RuntimeError("spam")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_sink_may_return_objects_of_a_local_class() -> None:
    class Written:
        def __init__(self, rows: int) -> None:
            self.rows = rows

    class Counts(Datasink[Written]):
        def write(self, blocks: Any, ctx: Any) -> Written:
            return Written(sum(block.num_rows for block in blocks))

        def on_write_complete(self, write_result: WriteResult[Written]) -> None:
            totals.append(sum(each.rows for each in write_result.write_returns))

    totals: list[int] = []
    skate.data.range(5).write_datasink(Counts())
    assert totals == [5]


def test_each_task_writes_a_file_named_after_the_write_and_the_task(tmp_path: Path) -> None:
    write(CSVDatasink(tmp_path / "new"), ONE, TWO)
    assert names(tmp_path / "new") == ["5f3a_000000.csv", "5f3a_000001.csv"]


def test_each_row_gets_a_file(tmp_path: Path) -> None:
    write(Rows(tmp_path, file_format="txt"), TWO)
    assert names(tmp_path) == ["5f3a_000000_000000_000000.txt", "5f3a_000000_000000_000001.txt"]
    assert (tmp_path / "5f3a_000000_000000_000001.txt").read_text() == "3"


def test_rows_that_do_not_exist_make_no_folder(tmp_path: Path) -> None:
    write(CSVDatasink(tmp_path / "new"), pa.table({}), ONE.slice(0, 0))
    assert not (tmp_path / "new").exists()


def test_a_file_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"spam"):
        write(Blocks(tmp_path), ONE, TWO)
    assert names(tmp_path) == ["5f3a_000000"]


def test_nobody_sees_a_file_before_it_is_complete(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    class Watched(BlockBasedFileDatasink):
        def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
            file.write(b"half")
            file.flush()
            seen.append([name for name in names(tmp_path) if not name.startswith(".")])

    sink = Watched(tmp_path)
    sink.write([ONE], TaskContext(task_idx=0))
    assert seen == [[]]
    assert len(names(tmp_path)) == 1


def test_a_part_that_is_written_again_replaces_its_own_file_and_nothing_else(tmp_path: Path) -> None:
    sink = CSVDatasink(tmp_path)
    for part, task, block in (("p1", 0, ONE), ("p2", 1, ONE), ("p1", 7, TWO)):
        sink.write([block], TaskContext(task_idx=task, part=part))
    assert names(tmp_path) == ["p1.csv", "p2.csv"]
    assert (tmp_path / "p1.csv").read_text().split() == ['"id"', "2", "3"]


def test_the_name_of_a_part_may_hold_any_characters(tmp_path: Path) -> None:
    sink = CSVDatasink(tmp_path)
    (path,) = sink.write([ONE], TaskContext(task_idx=0, part="s3://a/b?size=1"))
    assert sink.write([ONE], TaskContext(task_idx=0, part="s3://a/b?size=1")) == [path]
    assert len(names(tmp_path)) == 1


def test_files_can_be_named_by_the_user(tmp_path: Path) -> None:
    class Named(FilenameProvider):
        def get_filename_for_row(self, row: dict[str, Any], *args: Any) -> str:
            return f"row-{row['id']}"

    write(Rows(tmp_path, filename_provider=Named()), TWO)
    assert names(tmp_path) == ["row-2", "row-3"]


def test_append_adds_files(tmp_path: Path) -> None:
    write(CSVDatasink(tmp_path), ONE, write_uuid="first")
    write(CSVDatasink(tmp_path), ONE, write_uuid="second")
    assert names(tmp_path) == ["first_000000.csv", "second_000000.csv"]


def test_error_raises_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"already exists.*overwrite"):
        write(CSVDatasink(tmp_path, mode=SaveMode.ERROR), ONE)
    assert names(tmp_path) == []
    write(CSVDatasink(tmp_path / "new", mode=SaveMode.ERROR), ONE, TWO)
    assert len(names(tmp_path / "new")) == 2


def test_ignore_writes_nothing_where_something_is(tmp_path: Path) -> None:
    assert write(CSVDatasink(tmp_path, mode=SaveMode.IGNORE), ONE) == [[]]
    assert names(tmp_path) == []
    write(CSVDatasink(tmp_path / "new", mode=SaveMode.IGNORE), ONE)
    assert len(names(tmp_path / "new")) == 1


def test_overwrite_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "old.csv").write_text("old")
    write(CSVDatasink(tmp_path, mode=SaveMode.OVERWRITE), ONE)
    assert names(tmp_path) == ["5f3a_000000.csv"]


def test_overwrite_keeps_what_was_there_until_the_new_files_are_complete(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("old")
    sink = CSVDatasink(tmp_path, mode=SaveMode.OVERWRITE)
    sink.on_write_start(None)
    returned = sink.write([ONE], TaskContext(task_idx=0, part="p"))
    assert names(tmp_path) == ["old.csv", "p.csv"]
    sink.on_write_complete(WriteResult(1, 8, [returned]))
    assert names(tmp_path) == ["p.csv"]


def test_overwrite_does_not_remove_a_file_that_it_has_just_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        write(CSVDatasink(tmp_path, mode=SaveMode.OVERWRITE), ONE)
    assert names(tmp_path) == ["5f3a_000000.csv"]


@pytest.mark.parametrize("mode", ["upsert", "create", "spam"])
def test_a_mode_that_files_do_not_have_is_an_error_that_lists_theirs(tmp_path: Path, mode: Any) -> None:
    with pytest.raises(ValueError, match=f"{mode}.*append"):
        CSVDatasink(tmp_path, mode=mode)


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(ValueError, match=r"is a file"):
        write(CSVDatasink(tmp_path / "x", mode=SaveMode.OVERWRITE), ONE)


def test_an_error_that_goes_away_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    class Flaky(BlockBasedFileDatasink):
        attempts = 0

        def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
            self.attempts += 1
            file.write(b"x")
            if self.attempts < 3:
                raise RuntimeError("AWS Error INTERNAL_FAILURE")

    sink = Flaky(tmp_path)
    sink.write([ONE], TaskContext(task_idx=0, part="p"))
    assert (tmp_path / "p").read_text() == "x"


@pytest.mark.parametrize("rows", [0, -1])
def test_rows_per_file_have_to_be_positive(tmp_path: Path, rows: int) -> None:
    with pytest.raises(ValueError, match=r"positive"):
        CSVDatasink(tmp_path, min_rows_per_file=rows)


def test_results_of_writes_add_up() -> None:
    both = WriteResult.combine(WriteResult(1, 8, ["a"]), WriteResult(2, 16, ["b"]))
    assert (both.num_rows, both.size_bytes, both.write_returns) == (3, 24, ["a", "b"])
