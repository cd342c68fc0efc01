from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skate
from skate.data._io.delta import DeltaDatasink, delta_source
from skate.data.datasource import SaveMode
from skate.data.expressions import col
from tests.data.io.support import read, read_rows, write

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.usefixtures("client_libraries")
DAY = datetime.date(2024, 1, 2)
TABLE = pa.table({"n": [1, 2, 3], "g": ["a", "b", None], "d": [DAY, DAY, None]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    deltalake.write_deltalake(str(tmp_path / "t"), TABLE, partition_by=["g", "d"])
    return str(tmp_path / "t")


def by_n(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["n"])


def test_a_table_is_read_with_the_types_of_its_partitions(path: str) -> None:
    source = delta_source(path)
    assert source.num_rows() == 3
    assert source.schema() == TABLE.schema
    assert by_n(read_rows(source)) == TABLE.to_pylist()


def test_columns_rows_and_versions_are_chosen(path: str) -> None:
    assert read(delta_source(path, columns=["d"])).column_names == ["d"]
    pushed = delta_source(path).apply_predicate((col("g") == "b") & (col("n") > 0))
    assert pushed is not None
    assert len(pushed[0].get_read_tasks(9)) == 1
    assert read_rows(pushed[0]) == [TABLE.to_pylist()[1]]
    deltalake.write_deltalake(path, TABLE, mode="append", partition_by=["g", "d"])
    assert delta_source(path).num_rows() == 6
    assert delta_source(path, version=0).num_rows() == 3


def test_files_that_a_newer_version_has_dropped_are_not_read(path: str) -> None:
    deltalake.DeltaTable(path).delete("g = 'a'")
    assert sorted(read(delta_source(path))["n"].to_pylist()) == [2, 3]


def test_several_tables_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one table"):
        delta_source(["a", "b"])  # type: ignore[arg-type]


def test_parts_appear_as_one_version(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    write(DeltaDatasink(path, partition_by=["g", "d"], name="mine"), TABLE, TABLE)
    table = deltalake.DeltaTable(path)
    assert table.version() == 0
    assert table.metadata().name == "mine"
    assert table.metadata().partition_columns == ["g", "d"]
    assert by_n(table.to_pyarrow_table().to_pylist()) == by_n(TABLE.to_pylist() * 2)


def test_append_keeps_the_partitions_of_the_table(path: str) -> None:
    write(DeltaDatasink(path), TABLE)
    assert delta_source(path).num_rows() == 6
    with pytest.raises(ValueError, match=r"has \['g', 'd'\], but partition_by is \['n'\]"):
        write(DeltaDatasink(path, partition_by=["n"]), TABLE)


def test_overwrite_replaces_the_rows(path: str) -> None:
    write(DeltaDatasink(path, mode=SaveMode.OVERWRITE), TABLE.slice(0, 1))
    assert read_rows(delta_source(path)) == TABLE.to_pylist()[:1]
    write(DeltaDatasink(path, mode=SaveMode.OVERWRITE), TABLE.slice(0, 0))
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 0


def test_new_columns_are_added_or_refused(path: str) -> None:
    wider = TABLE.append_column("x", pa.array([1.5, 2.5, 3.5]))
    with pytest.raises(ValueError, match=r"\['x'\].*schema_mode='merge'"):
        write(DeltaDatasink(path, schema_mode="error"), wider)
    write(DeltaDatasink(path), wider)
    found = by_n(read_rows(delta_source(path)))
    assert [row["x"] for row in found if row["n"] == 1] in ([None, 1.5], [1.5, None])


def test_rows_of_other_types_are_refused(path: str) -> None:
    wrong = TABLE.set_column(0, "n", pa.array([0.5, 1.5, 2.5]))
    with pytest.raises(ValueError, match=r"\['n'\].*int64"):
        write(DeltaDatasink(path), wrong)
    assert deltalake.DeltaTable(path).version() == 0


def test_nothing_appears_when_a_part_fails(path: str) -> None:
    with pytest.raises(ValueError, match=r"partition columns \['g', 'd'\]"):
        write(DeltaDatasink(path), TABLE, pa.table({"n": [1]}))
    assert deltalake.DeltaTable(path).version() == 0


@pytest.mark.parametrize("options", [{"mode": "ignore"}, {"schema_mode": "spam"}])
def test_options_are_checked(path: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"append|merge"):
        DeltaDatasink(path, **options)


def test_a_table_without_rows_is_read_with_its_columns(path: str) -> None:
    write(DeltaDatasink(path, mode=SaveMode.OVERWRITE), TABLE.slice(0, 0))
    found = skate.data.read_delta(path)
    assert found.take_all() == []
    assert found.columns() == TABLE.column_names
