from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import skate
from skate.data._expressions.errors import NotExpressibleError
from skate.data._io.iceberg import IcebergDatasource
from skate.data._io.iceberg_expressions import to_iceberg
from skate.data._io.iceberg_sink import IcebergDatasink
from skate.data.datasource import SaveMode
from skate.data.expressions import col, lit
from tests.data.io.support import read, read_rows, write

pytest.importorskip("pyiceberg")
pytestmark = pytest.mark.usefixtures("client_libraries")
TABLE = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "g": ["a", "b", "b"]})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    options = {
        "name": "test",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }
    loaded = load_catalog(**options)
    loaded.create_namespace("db")
    loaded.create_table("db.t", TABLE.schema).append(TABLE)
    yield options
    loaded.engine.dispose()  # type: ignore[attr-defined]


def n(source: IcebergDatasource) -> list[int]:
    return sorted(read(source)["n"].to_pylist())


def test_a_table_is_read(catalog: dict[str, Any]) -> None:
    source = IcebergDatasource("db.t", catalog_kwargs=catalog)
    assert source.num_rows() == 3
    assert source.schema() is not None
    assert source.schema().names == ["n", "g"]  # type: ignore[union-attr]
    (task,) = source.get_read_tasks(4)
    assert task.identity is not None
    assert read(source).to_pylist() == TABLE.to_pylist()


def test_columns_and_rows_are_chosen(catalog: dict[str, Any]) -> None:
    source = IcebergDatasource("db.t", row_filter="n > 1", selected_fields=("g",), catalog_kwargs=catalog)
    assert source.num_rows() is None
    assert read_rows(source) == [{"g": "b"}, {"g": "b"}]


def test_parts_appear_as_one_snapshot(catalog: dict[str, Any]) -> None:
    before = IcebergDatasource("db.t", catalog_kwargs=catalog)
    write(IcebergDatasink("db.t", catalog), TABLE, TABLE)
    after = IcebergDatasource("db.t", catalog_kwargs=catalog)
    assert n(after) == sorted([1, 2, 3] * 3)
    assert len(after.get_read_tasks(9)) == 3
    assert n(before) == [1, 2, 3]


def test_overwrite_replaces_all_or_chosen_rows(catalog: dict[str, Any]) -> None:
    new = pa.table({"n": pa.array([9], pa.int64()), "g": ["b"]})
    sink = IcebergDatasink("db.t", catalog, mode=SaveMode.OVERWRITE, overwrite_filter="g == 'b'")
    write(sink, new)
    assert n(IcebergDatasource("db.t", catalog_kwargs=catalog)) == [1, 9]
    write(IcebergDatasink("db.t", catalog, mode=SaveMode.OVERWRITE), new)
    assert n(IcebergDatasource("db.t", catalog_kwargs=catalog)) == [9]


def rows_of(catalog: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(
        read_rows(IcebergDatasource("db.t", catalog_kwargs=catalog)),
        key=lambda row: (row["n"] is None, row["n"]),
    )


def test_overwrite_takes_an_expression(catalog: dict[str, Any]) -> None:
    new = pa.table({"n": pa.array([9], pa.int64()), "g": ["b"]})
    chosen = (col("n") >= 2) & (col("g") == "b")
    write(IcebergDatasink("db.t", catalog, mode=SaveMode.OVERWRITE, overwrite_filter=chosen), new)
    assert n(IcebergDatasource("db.t", catalog_kwargs=catalog)) == [1, 9]


def test_upsert_replaces_rows_with_the_same_key_and_adds_the_others(catalog: dict[str, Any]) -> None:
    write(IcebergDatasink("db.t", catalog), pa.table({"n": pa.array([7, 8], pa.int64()), "g": ["x", "y"]}))
    new = pa.table({"n": pa.array([2, 8, 5], pa.int64()), "g": ["B", "Y", "new"]})
    sink = IcebergDatasink("db.t", catalog, mode=SaveMode.UPSERT, upsert_kwargs={"join_cols": ["n"]})
    write(sink, new.slice(0, 1), new.slice(1))
    assert rows_of(catalog) == [
        {"n": 1, "g": "a"},
        {"n": 2, "g": "B"},
        {"n": 3, "g": "b"},
        {"n": 5, "g": "new"},
        {"n": 7, "g": "x"},
        {"n": 8, "g": "Y"},
    ]


def test_an_upsert_is_one_snapshot(catalog: dict[str, Any]) -> None:
    from pyiceberg.catalog import load_catalog

    sink = IcebergDatasink(
        "db.t", catalog, {"by": "me"}, mode=SaveMode.UPSERT, upsert_kwargs={"join_cols": ["n"]}
    )
    write(sink, TABLE)
    loaded = load_catalog(**catalog)
    snapshots = loaded.load_table("db.t").snapshots()
    loaded.engine.dispose()  # type: ignore[attr-defined]
    assert len(snapshots) == 2
    assert snapshots[-1].summary is not None
    assert snapshots[-1].summary["by"] == "me"


def test_rows_without_a_key_are_added(catalog: dict[str, Any]) -> None:
    new = pa.table({"n": pa.array([None, None, 1], pa.int64()), "g": ["p", "q", "A"]})
    sink = IcebergDatasink("db.t", catalog, mode=SaveMode.UPSERT, upsert_kwargs={"join_cols": ["n"]})
    write(sink, new)
    write(sink, new.slice(0, 1))
    assert sorted(row["g"] for row in rows_of(catalog)) == ["A", "b", "b", "p", "p", "q"]


def test_the_key_can_be_several_columns_in_another_case(catalog: dict[str, Any]) -> None:
    new = pa.table({"n": pa.array([2, 2], pa.int64()), "g": ["b", "c"]})
    keys = {"join_cols": ["N", "G"], "case_sensitive": False}
    write(IcebergDatasink("db.t", catalog, mode=SaveMode.UPSERT, upsert_kwargs=keys), new)
    assert [(row["n"], row["g"]) for row in rows_of(catalog)] == [(1, "a"), (2, "b"), (2, "c"), (3, "b")]


def test_a_key_that_comes_twice_is_refused_and_leaves_nothing_behind(
    catalog: dict[str, Any], tmp_path: Path
) -> None:
    files = set(tmp_path.rglob("*.parquet"))
    sink = IcebergDatasink("db.t", catalog, mode=SaveMode.UPSERT, upsert_kwargs={"join_cols": ["g"]})
    with pytest.raises(ValueError, match=r"1 of the 3 rows to upsert have the key of another one"):
        write(sink, TABLE)
    assert rows_of(catalog) == TABLE.to_pylist()
    assert set(tmp_path.rglob("*.parquet")) == files


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"db\.t has no identifier fields .*join_cols"),
        ({"join_cols": ["m"]}, r"join_cols names \['m'\], but db\.t has the columns \['n', 'g'\]"),
    ],
)
def test_an_upsert_needs_key_columns(catalog: dict[str, Any], options: dict[str, Any], message: str) -> None:
    sink = IcebergDatasink("db.t", catalog, mode=SaveMode.UPSERT, upsert_kwargs=options)
    with pytest.raises(ValueError, match=message):
        write(sink, TABLE)


def test_new_columns_are_added_and_types_widened_even_if_no_schema_was_known(catalog: dict[str, Any]) -> None:
    narrow = TABLE.append_column("x", pa.array([1, 2, 3], pa.int32()))
    write(IcebergDatasink("db.t", catalog, mode=SaveMode.OVERWRITE), narrow)
    wide = TABLE.append_column("x", pa.array([1 << 40] * 3, pa.int64()))
    write(IcebergDatasink("db.t", catalog), wide)
    schema = IcebergDatasource("db.t", catalog_kwargs=catalog).schema()
    assert schema is not None
    assert schema.field("x").type == pa.int64()
    assert sorted(row["x"] for row in rows_of(catalog)) == [1, 2, 3, *[1 << 40] * 3]
    # Narrower values fit: the table keeps its type.
    write(IcebergDatasink("db.t", catalog), narrow)
    assert IcebergDatasource("db.t", catalog_kwargs=catalog).schema() == schema


def test_filters_and_columns_of_a_dataset_reach_the_table(catalog: dict[str, Any]) -> None:
    source = IcebergDatasource("db.t", catalog_kwargs=catalog)
    pushed = source.apply_predicate((col("n") > 1) & ~col("g").is_null())
    assert pushed is not None
    filtered, rest = pushed
    assert rest is None
    assert filtered.num_rows() is None
    assert n(filtered) == [2, 3]
    assert filtered.apply_predicate(lit(50) < col("n"))[0].get_read_tasks(3) == []  # type: ignore[index]
    projected = filtered.apply_projection(["g", "n"])
    assert projected is not None
    assert read(projected).column_names == ["g", "n"]
    dataset = skate.data.read_iceberg(table_identifier="db.t", catalog_kwargs=catalog)
    assert dataset.filter(expr=col("n").is_in([2, 5])).select_columns(["g"]).take_all() == [{"g": "b"}]
    assert dataset.filter(expr=col("n") * 2 > 4).take_all() == [{"n": 3, "g": "b"}]
    assert dataset.select_columns([]).count() == 3


@pytest.mark.parametrize(
    "expr", [col("n") + 1 > 2, col("n") == col("g"), col("n").is_in([1, None]), col("n") == lit(None)]
)
def test_what_iceberg_cannot_say_is_refused_by_name(expr: Any) -> None:
    with pytest.raises(NotExpressibleError, match=r"cannot be converted to an Iceberg expression"):
        to_iceberg(expr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mode": "ignore"},
            r"mode is 'ignore': Iceberg tables can be written with 'append', 'overwrite', 'upsert'",
        ),
        ({"overwrite_filter": "n > 1"}, r"needs mode='overwrite'"),
        ({"upsert_kwargs": {"join_cols": ["n"]}}, r"needs mode='upsert'"),
        ({"mode": "upsert", "upsert_kwargs": {"keys": ["n"]}}, r"upsert_kwargs does not accept \['keys'\]"),
    ],
)
def test_options_are_checked(catalog: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IcebergDatasink("db.t", catalog, **options)


def test_arguments_that_ray_deprecates_work_and_warn(catalog: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match=r"`row_filter=` on `read_iceberg` is deprecated in Ray"):
        found = skate.data.read_iceberg(table_identifier="db.t", row_filter="n > 2", catalog_kwargs=catalog)
    assert found.take_all() == [{"n": 3, "g": "b"}]
    with pytest.warns(DeprecationWarning, match=r"`selected_fields=` on `read_iceberg`"):
        found = skate.data.read_iceberg(
            table_identifier="db.t", selected_fields=("n",), catalog_kwargs=catalog
        )
    assert found.columns() == ["n"]
