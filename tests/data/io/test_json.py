from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson
import pytest

from skate.data._block import tensors
from skate.data._io.json import JSONDatasink, JSONDatasource
from skate.data.exceptions import FileReadError
from tests.data.io.support import read, read_rows, write

SMALL = {"read_options": pajson.ReadOptions(block_size=64)}
ROWS = [{"n": number, "s": f"text {number}"} for number in range(100)]


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", lines(ROWS)),
        ("x.json", lines(ROWS).rstrip()),
        ("x.json", json.dumps(ROWS)),
        ("x.json", json.dumps(ROWS, indent=2)),
        ("x.json", " \n" + json.dumps(ROWS) + "\n"),
        ("x.json", "\n".join(json.dumps(row, indent=2) for row in ROWS)),
        ("x.json", "".join(json.dumps(row) for row in ROWS)),
        ("x.json", "\ufeff" + json.dumps(ROWS)),
    ],
    ids=[
        "lines",
        "no last newline",
        "array",
        "pretty array",
        "space",
        "pretty objects",
        "no newlines",
        "BOM",
    ],
)
@pytest.mark.parametrize("args", [{}, SMALL], ids=["at once", "in pieces"])
def test_objects_are_read_however_they_are_laid_out(
    tmp_path: Path, name: str, text: str, args: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(text)
    assert read_rows(JSONDatasource(tmp_path, arrow_json_args=args)) == ROWS


def test_a_compressed_file_is_read_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(lines(ROWS).encode()))
    (tmp_path / "empty.json.gz").write_bytes(gzip.compress(b""))
    assert read_rows(JSONDatasource(tmp_path)) == ROWS


def test_an_object_longer_than_a_piece_is_read(tmp_path: Path) -> None:
    rows = [{"s": "a" * 5000}, {"s": "b"}]
    (tmp_path / "x.json").write_text(lines(rows))
    assert read_rows(JSONDatasource(tmp_path, arrow_json_args=SMALL)) == rows


def test_fields_and_types_may_change_from_piece_to_piece(tmp_path: Path) -> None:
    rows = [{"a": 1}] * 50 + [{"a": 1.5, "b": "late"}] * 50
    (tmp_path / "x.json").write_text(lines(rows))
    table = read(JSONDatasource(tmp_path, arrow_json_args=SMALL))
    assert table["a"].to_pylist() == [1.0] * 50 + [1.5] * 50
    assert table["b"].to_pylist() == [None] * 50 + ["late"] * 50


def test_text_that_looks_like_a_date_further_down_stays_text(tmp_path: Path) -> None:
    rows = [{"a": "soon"}] * 50 + [{"a": "2024-01-01 00:00:00"}] * 50
    (tmp_path / "x.json").write_text(lines(rows))
    assert read_rows(JSONDatasource(tmp_path, arrow_json_args=SMALL)) == rows


def test_values_of_mixed_types_come_back_as_they_are(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": {"d": "e"}}}]
    (tmp_path / "x.jsonl").write_text(lines(rows))
    assert read_rows(JSONDatasource(tmp_path, lines=True)) == rows


def test_lines_of_lists_become_numbered_columns(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(lines([["a", "b"], ["c"]]))
    assert read_rows(JSONDatasource(tmp_path, lines=True)) == [{"0": "a", "1": "b"}, {"0": "c", "1": None}]


def test_parse_options_are_used(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(lines(ROWS))
    options = pajson.ParseOptions(
        explicit_schema=pa.schema({"n": pa.int8()}), unexpected_field_behavior="ignore"
    )
    source = JSONDatasource(tmp_path, arrow_json_args={"parse_options": options})
    assert read(source).schema == pa.schema({"n": pa.int8()})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines(ROWS) + "{'a': 1}\n" + lines(ROWS), "double quotes in line"),
        ('{"a": 1', "x.json"),
        ('[{"a": 1}, {"a": ', "x.json"),
        ('[{"a": 1}', "does not end|Expecting"),
        ("[1, 2]", "1"),
        ("17", "17"),
    ],
)
@pytest.mark.parametrize("args", [{}, SMALL], ids=["at once", "in pieces"])
def test_a_file_that_is_no_json_is_named(
    tmp_path: Path, text: str, message: str, args: dict[str, Any]
) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FileReadError, match=message) as caught:
        read(JSONDatasource(tmp_path, arrow_json_args=args))
    assert caught.value.path == str(tmp_path / "x.json")


def test_other_files_in_the_folder_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(lines(ROWS))
    (tmp_path / "x.txt").write_text("no json")
    assert read_rows(JSONDatasource(tmp_path)) == ROWS


def test_written_rows_come_back(tmp_path: Path) -> None:
    table = pa.table({"n": [1, None], "s": ["a", None], "l": [[1, 2], []], "d": [{"x": 1}, {"x": 2}]})
    write(JSONDatasink(tmp_path), table)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text().splitlines()[0]) == {"n": 1, "s": "a", "l": [1, 2], "d": {"x": 1}}
    assert '"n":1,' in path.read_text()  # an integer, although there is a null
    assert read(JSONDatasource(tmp_path)).to_pylist() == table.to_pylist()


def test_tensors_are_written_as_lists(tmp_path: Path) -> None:
    write(JSONDatasink(tmp_path), pa.table({"t": tensors.from_ndarray(np.arange(4).reshape(1, 2, 2))}))
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text()) == {"t": [[0, 1], [2, 3]]}


def test_options_of_pandas_are_used(tmp_path: Path) -> None:
    table = pa.table({"t": [datetime.datetime(2024, 1, 2)]})
    write(JSONDatasink(tmp_path, pandas_json_args={"date_format": "iso", "date_unit": "s"}), table)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["t"].startswith("2024-01-02T00:00:00")
