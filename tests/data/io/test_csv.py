from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from skate.data._io.csv import CSVDatasink, CSVDatasource
from skate.data.exceptions import FileReadError
from tests.data.io.support import blocks, read, read_rows, write

SMALL_BLOCKS = {"read_options": pacsv.ReadOptions(block_size=64)}


def test_rows_come_back(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2], "s": ["a, b", 'say "hi"'], "f": [0.5, None]})
    write(CSVDatasink(tmp_path), table)
    assert read(CSVDatasource(tmp_path)).equals(table)


def test_a_compressed_file_is_read_by_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a\n1\n"))
    assert read_rows(CSVDatasource(tmp_path)) == [{"a": 1}]


def test_a_file_without_header_takes_the_names_that_are_given(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,a\n2,b\n")
    args = {"read_options": pacsv.ReadOptions(column_names=["n", "s"])}
    assert read_rows(CSVDatasource(tmp_path, arrow_csv_args=args)) == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]


def test_types_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("zip\n01234\n")
    args = {"convert_options": pacsv.ConvertOptions(column_types={"zip": pa.string()})}
    assert read_rows(CSVDatasource(tmp_path, arrow_csv_args=args)) == [{"zip": "01234"}]


def test_a_file_is_read_block_by_block(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n\n" + "\n".join(map(str, range(1000))))
    source = CSVDatasource(tmp_path, arrow_csv_args=SMALL_BLOCKS)
    with source._filesystem.open_input_stream(str(tmp_path / "x.csv")) as file:
        assert len(list(source._read_stream(file, str(tmp_path / "x.csv")))) > 10
    assert read(source)["n"].to_pylist() == list(range(1000))


def test_a_fraction_far_down_makes_fractions_of_integers_instead_of_failing(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n\n" + "1\n" * 100 + "1.5\n" + "1\n" * 100)
    assert (
        read(CSVDatasource(tmp_path, arrow_csv_args=SMALL_BLOCKS))["n"].to_pylist()
        == [1.0] * 100 + [1.5] + [1.0] * 100
    )


def test_text_far_down_in_a_column_that_was_empty_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n,s\n" + "1,\n" * 100 + "2,late\n")
    table = read(CSVDatasource(tmp_path, arrow_csv_args=SMALL_BLOCKS))
    assert table.num_rows == 101
    assert table["s"].to_pylist()[-1] == "late"


def test_text_far_down_among_integers_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n\n" + "1\n" * 100 + "one\n")
    with pytest.raises(FileReadError, match=r"x\.csv.*'one'.*column_types"):
        blocks(CSVDatasource(tmp_path, arrow_csv_args=SMALL_BLOCKS))


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.parquet").write_bytes(b"PAR1\x00\x01\n,\n,,,\n")
    with pytest.raises(ValueError, match=r"Failed to read CSV file .*b\.parquet"):
        read(CSVDatasource(tmp_path))


def test_a_header_without_rows_still_has_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    table = read(CSVDatasource(tmp_path))
    assert (table.column_names, table.num_rows) == (["a", "b"], 0)


def test_an_empty_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match=r"a\.csv: Empty CSV file"):
        read(CSVDatasource(tmp_path))


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(TypeError, match=r"'delimiter'.*parse_options"):
        CSVDatasource(tmp_path, arrow_csv_args={"delimiter": ";"})


def test_options_for_writing_are_used(tmp_path: Path) -> None:
    # They cannot be pickled: that is what the function is for.
    sink = CSVDatasink(
        tmp_path, arrow_csv_args_fn=lambda: {"write_options": pacsv.WriteOptions(include_header=False)}
    )
    write(sink, pa.table({"n": [1]}))
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "1\n"
