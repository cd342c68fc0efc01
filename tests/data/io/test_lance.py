from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skate.data._io.lance import LanceDatasink, LanceDatasource
from skate.data.datasource import SaveMode
from tests.data.io.support import read, read_rows, write

lance = pytest.importorskip("lance")
pytestmark = pytest.mark.usefixtures("client_libraries")
TABLE = pa.table({"n": range(100), "s": [f"text {n}" for n in range(100)]})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    lance.write_dataset(TABLE, str(tmp_path / "x.lance"), max_rows_per_file=10)
    return str(tmp_path / "x.lance")


def test_fragments_are_read_by_several_tasks(uri: str) -> None:
    source = LanceDatasource(uri)
    assert source.num_rows() == 100
    assert source.schema() == TABLE.schema
    tasks = source.get_read_tasks(3)
    assert [task.metadata.num_rows for task in tasks] == [30, 40, 30]
    assert len({task.identity for task in tasks}) == 3
    assert read(source, parallelism=3).equals(TABLE)


def test_columns_and_rows_are_chosen(uri: str) -> None:
    source = LanceDatasource(uri, columns=["s"], filter="n >= 98")
    assert source.num_rows() is None
    assert read_rows(source) == [{"s": "text 98"}, {"s": "text 99"}]
    projected = LanceDatasource(uri).apply_projection(["s"])
    assert projected is not None
    assert read(projected).column_names == ["s"]


def test_what_is_written_later_is_not_read(uri: str) -> None:
    source = LanceDatasource(uri)
    lance.write_dataset(TABLE, uri, mode="append")
    assert read(source).num_rows == 100
    assert LanceDatasource(uri).num_rows() == 200
    assert LanceDatasource(uri, version=1).num_rows() == 100


def test_parts_appear_together(tmp_path: Path) -> None:
    uri = str(tmp_path / "new.lance")
    sink = LanceDatasink(uri)
    assert sink.min_rows_per_write == 1024 * 1024
    write(sink, TABLE, TABLE)
    assert LanceDatasource(uri).num_rows() == 200
    assert lance.dataset(uri).version == 1


def test_modes_are_held(uri: str) -> None:
    with pytest.raises(ValueError, match=r"already exists"):
        write(LanceDatasink(uri), TABLE)
    write(LanceDatasink(uri, mode=SaveMode.APPEND), TABLE.slice(0, 5))
    assert LanceDatasource(uri).num_rows() == 105
    write(LanceDatasink(uri, mode=SaveMode.OVERWRITE), pa.table({"z": [1]}))
    assert read_rows(LanceDatasource(uri)) == [{"z": 1}]


@pytest.mark.parametrize("options", [{"mode": "ignore"}, {"mode": "upsert"}])
def test_other_modes_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"create, append, overwrite"):
        LanceDatasink(str(tmp_path), **options)
