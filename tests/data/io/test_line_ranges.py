from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.data._io import line_ranges
from skate.data._io.json import JSONDatasource
from skate.data._io.paths import SourceFile
from skate.data._io.plain_files import TextDatasource
from tests.data.io.support import read


@given(st.lists(st.binary(max_size=20), max_size=30), st.integers(1, 12), st.booleans())
def test_ranges_hold_every_line_once_wherever_they_are_cut(
    lines: list[bytes], length: int, newline: bool
) -> None:
    data = b"\n".join(lines) + b"\n" * newline
    filesystem = pafs._MockFileSystem()
    with filesystem.open_output_stream("x") as file:
        file.write(data)
    parts = line_ranges.split_files([SourceFile("x", len(data))], 99, lambda file: True, least=length)
    found = []
    for part in parts:
        opened = (
            filesystem.open_input_file("x") if part.stop is None else line_ranges.open_range(filesystem, part)
        )
        with opened:
            found.append(b"".join(iter(lambda opened=opened: opened.read(7), b"")))  # type: ignore[misc]  # a default
    assert b"".join(found) == data
    assert [line for piece in found for line in piece.split(b"\n")[:-1]] == data.split(b"\n")[:-1]


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_ranges, "_MIN_BYTES", 100)


@pytest.mark.usefixtures("small_ranges")
def test_one_large_text_is_read_by_several_tasks_in_order(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("".join(f"línea {number}\n" for number in range(1000)))
    source = TextDatasource(tmp_path)
    tasks = source.get_read_tasks(4)
    assert len(tasks) == 4
    assert len({task.identity for task in tasks}) == 4
    assert all(task.metadata.input_files == [str(tmp_path / "x.txt")] for task in tasks)
    assert read(source, parallelism=4)["text"].to_pylist() == [f"línea {number}" for number in range(1000)]


@pytest.mark.usefixtures("small_ranges")
def test_one_large_file_of_json_lines_is_read_by_several_tasks_in_order(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(1000)))
    source = JSONDatasource(tmp_path)
    assert len(source.get_read_tasks(4)) == 4
    assert read(source, parallelism=4)["n"].to_pylist() == list(range(1000))


@pytest.mark.usefixtures("small_ranges")
def test_what_cannot_be_cut_at_lines_is_read_by_one_task(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" + ",\n".join(f'{{"n": {number}}}' for number in range(1000)) + "]")
    assert len(JSONDatasource(tmp_path / "x.json").get_read_tasks(4)) == 1
    (tmp_path / "x.txt").write_text("a\n" * 1000, encoding="utf-16")
    assert len(TextDatasource(tmp_path / "x.txt", encoding="utf-16").get_read_tasks(4)) == 1


def test_small_files_are_not_cut(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a\n" * 1000)
    assert len(TextDatasource(tmp_path).get_read_tasks(4)) == 1
