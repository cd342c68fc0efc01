from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skate.data._io.plain_files import TextDatasource
from skate.data.context import DataContext
from skate.data.datasource import (
    FileBasedDatasource,
    FileShuffleConfig,
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
)
from skate.data.exceptions import FileReadError
from tests.data.io.support import blocks, read, read_rows


class Whole(FileBasedDatasource):
    """A format of the user's own: one row for each file."""

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[Any]:
        yield {"data": [f.readall().decode()]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("year=2023/a.txt", "year=2024/b.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name[-5])
    return tmp_path


def test_a_format_of_ones_own_needs_one_method(folder: Path) -> None:
    assert read_rows(Whole(folder)) == [{"data": "a"}, {"data": "b"}]


def test_partition_values_become_columns(folder: Path) -> None:
    source = Whole(folder, partitioning=Partitioning("hive", field_types={"year": int}))
    assert read_rows(source) == [{"data": "a", "year": 2023}, {"data": "b", "year": 2024}]


def test_a_partition_filter_leaves_files_out(folder: Path) -> None:
    chosen = PathPartitionFilter.of(lambda values: values["year"] == "2024", PartitionStyle.HIVE)
    assert read_rows(Whole(folder, partition_filter=chosen)) == [{"data": "b"}]


def test_paths_can_be_included(folder: Path) -> None:
    paths = [row["path"] for row in read_rows(Whole(folder, include_paths=True))]
    assert paths == [str(folder / "year=2023/a.txt"), str(folder / "year=2024/b.txt")]


class Number(FileBasedDatasource):
    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[Any]:
        yield pa.table(
            {"month": pa.array([int(text) if text else None for text in f.readall().decode().split(",")])}
        )


def test_a_column_that_is_in_the_path_too_has_to_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "month=01").mkdir()
    (tmp_path / "month=01" / "x").write_text("1,,1")
    hive = Partitioning("hive")
    assert read_rows(Number(tmp_path, partitioning=hive)) == [{"month": 1}] * 3
    (tmp_path / "month=01" / "x").write_text("1,2")
    with pytest.raises(ValueError, match=r"month=01.*other values"):
        read(Number(tmp_path, partitioning=hive))


def test_small_files_are_joined_into_few_blocks(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.txt").write_text(str(number))
    found = blocks(TextDatasource(tmp_path), parallelism=2)
    assert len(found) == 2
    assert sum(block.num_rows for block in found) == 50


def test_tasks_get_consecutive_files_of_about_the_same_size(tmp_path: Path) -> None:
    for name, size in (("a", 100), ("b", 100), ("c", 100), ("d", 300)):
        (tmp_path / name).write_text("x" * size)
    tasks = Whole(tmp_path).get_read_tasks(2)
    assert [len(task.metadata.input_files or ()) for task in tasks] == [3, 1]
    assert len(Whole(tmp_path).get_read_tasks(100)) == 4


def test_the_identity_of_a_task_changes_with_its_files_alone(folder: Path) -> None:
    before = [task.identity for task in Whole(folder).get_read_tasks(2)]
    assert before == [task.identity for task in Whole(folder).get_read_tasks(2)]
    assert len(set(before)) == 2
    (folder / "year=2024/b.txt").write_text("longer")
    after = [task.identity for task in Whole(folder).get_read_tasks(2)]
    assert after[0] == before[0]
    assert after[1] != before[1]


@pytest.mark.parametrize("shuffle", [True, False, "file", 3])
def test_an_unknown_way_to_shuffle_is_an_error(folder: Path, shuffle: Any) -> None:
    with pytest.raises(ValueError, match=r"FileShuffleConfig"):
        Whole(folder, shuffle=shuffle)


def test_files_are_shuffled_by_the_seed_and_the_execution(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}").write_text(str(number))

    class Context(DataContext):
        _execution_idx = 0

    def order(source: Whole, execution: int) -> tuple[str, ...]:
        context = Context()
        context._execution_idx = execution
        (task,) = source.get_read_tasks(1, data_context=context)
        return tuple(task.metadata.input_files or ())

    again = Whole(tmp_path, shuffle=FileShuffleConfig(seed=7))
    assert order(again, 0) == order(Whole(tmp_path, shuffle=FileShuffleConfig(seed=7)), 0)
    assert len({order(again, execution) for execution in range(3)}) == 3
    fixed = Whole(tmp_path, shuffle=FileShuffleConfig(seed=7, reseed_after_execution=False))
    assert len({order(fixed, execution) for execution in range(3)}) == 1
    free = Whole(tmp_path, shuffle="files")
    assert len({order(free, 0) for _ in range(5)}) > 1


class Broken(FileBasedDatasource):
    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[Any]:
        raise self.error  # type: ignore[attr-defined]


def test_an_error_in_a_file_names_the_file_and_keeps_its_cause(folder: Path) -> None:
    source = Broken(folder)
    source.error = ValueError("spam")  # type: ignore[attr-defined]
    with pytest.raises(FileReadError, match=r"a.txt: spam") as caught:
        read(source)
    assert caught.value.path.endswith("a.txt")
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_of_the_users_own_keeps_its_class(folder: Path) -> None:
    source = Broken(folder)
    source.error = KeyError("spam")  # type: ignore[attr-defined]
    with pytest.raises(KeyError) as caught:
        read(source)
    assert "a.txt" in caught.value.__notes__[0]


def test_an_error_of_the_system_keeps_its_class(folder: Path) -> None:
    source = Whole(folder)
    (folder / "year=2023/a.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        read(source)


class Flaky(FileBasedDatasource):
    """Fails at the second block of the first attempts."""

    attempts = 0

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[Any]:
        Flaky.attempts += 1
        yield {"n": [1]}
        if Flaky.attempts < 3:
            raise OSError("AWS Error NETWORK_CONNECTION: try again")
        yield {"n": [2]}


def test_an_error_that_goes_away_is_tried_again_and_nothing_is_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    (tmp_path / "x").write_text("x")
    Flaky.attempts = 0
    (task,) = Flaky(tmp_path).get_read_tasks(1)
    assert [value for block in task() for value in block["n"].to_pylist()] == [1, 2]


def test_a_limit_of_rows_stops_a_task(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\nb\nc\n")
    (task,) = TextDatasource(tmp_path).get_read_tasks(1, per_task_row_limit=2)
    assert [block.num_rows for block in task()] == [2]


def test_local_paths_are_read_by_the_driver(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    assert Whole(tmp_path).supports_distributed_reads
    assert not Whole(f"local://{tmp_path}").supports_distributed_reads
