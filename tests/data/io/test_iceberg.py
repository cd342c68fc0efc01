from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skate.data._io.iceberg import IcebergDatasink, IcebergDatasource
from skate.data.datasource import SaveMode
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


@pytest.mark.parametrize("options", [{"mode": "upsert"}, {"overwrite_filter": "n > 1"}])
def test_options_are_checked(catalog: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"overwrite"):
        IcebergDatasink("db.t", catalog, **options)
