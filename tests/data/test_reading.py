"""Reading and writing through the public functions, on every engine."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import SaveMode

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("where")]

ROWS = [{"id": i, "name": f"n{i}", "half": i / 2} for i in range(30)]


def written(path: Path, form: str, **options: Any) -> Path:
    getattr(skate.data.from_items(ROWS, override_num_blocks=3), f"write_{form}")(str(path), **options)
    return path


def sorted_rows(dataset: Any) -> list[dict[str, Any]]:
    return sorted(dataset.take_all(), key=lambda row: row["id"])


@pytest.mark.parametrize("form", ["parquet", "csv", "json", "orc", "tfrecords"])
def test_what_is_written_is_read_again(form: str, tmp_path: Path) -> None:
    written(tmp_path / "rows", form)
    found = getattr(skate.data, f"read_{form}")(str(tmp_path / "rows"))
    assert [row["id"] for row in sorted_rows(found)] == list(range(30))
    assert [row["half"] for row in sorted_rows(found)] == [i / 2 for i in range(30)]


def test_columns_of_tensors_are_written_to_numpy_files(tmp_path: Path) -> None:
    skate.data.range_tensor(6, shape=(2, 2), override_num_blocks=2).write_numpy(str(tmp_path), column="data")
    found = skate.data.read_numpy(str(tmp_path)).take_all()
    assert sorted(int(row["data"][0, 0]) for row in found) == list(range(6))


def test_images_are_written_and_read(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 5, 3), dtype=np.uint8)
    pixels[1] = 255
    skate.data.from_numpy(pixels).write_images(str(tmp_path), column="data")
    found = skate.data.read_images(str(tmp_path)).take_all()
    assert sorted(int(row["image"].max()) for row in found) == [0, 255]
    assert found[0]["image"].shape == (4, 5, 3)


def test_text_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("one\n\ntwo\n")
    path = str(tmp_path / "poem.txt")
    assert skate.data.read_text(path).take_all() == [{"text": "one"}, {"text": "two"}]
    assert skate.data.read_binary_files(path, include_paths=True).take_all() == [
        {"bytes": b"one\n\ntwo\n", "path": path}
    ]


def test_databases(tmp_path: Path) -> None:
    file = str(tmp_path / "db.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE people (id INTEGER, name TEXT)")
    connection.close()
    people = skate.data.from_items([{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo"}])
    people.write_sql("INSERT INTO people VALUES (?, ?)", lambda: sqlite3.connect(file))
    found = skate.data.read_sql("SELECT * FROM people ORDER BY id", lambda: sqlite3.connect(file))
    assert found.take_all() == people.take_all()


def test_objects_of_other_libraries() -> None:
    frame = pd.DataFrame({"id": [1, 2], "name": ["a", "b"]})
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert skate.data.from_pandas(frame).take_all() == rows
    assert skate.data.from_arrow(pa.Table.from_pylist(rows)).take_all() == rows
    assert skate.data.from_polars(pl.DataFrame(rows)).take_all() == rows
    assert skate.data.from_items(rows).take_all() == rows
    assert [row["data"] for row in skate.data.from_numpy(np.arange(3)).take_all()] == [0, 1, 2]


def test_torch_datasets() -> None:
    torch = pytest.importorskip("torch")

    class Squares(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, place: int) -> int:
            if place >= len(self):
                raise IndexError(place)
            return place**2

    assert sorted(row["item"] for row in skate.data.from_torch(Squares()).take_all()) == [0, 1, 4, 9]


def test_files_are_put_into_folders_by_their_values(tmp_path: Path) -> None:
    ds = skate.data.from_items([{"id": i, "kind": "even" if i % 2 == 0 else "odd"} for i in range(10)])
    ds.write_parquet(str(tmp_path), partition_cols=["kind"])
    assert {path.name for path in tmp_path.iterdir()} == {"kind=even", "kind=odd"}
    found = skate.data.read_parquet(str(tmp_path)).filter(expr="kind == 'odd'").take_all()
    assert sorted(row["id"] for row in found) == [1, 3, 5, 7, 9]


def test_overwriting_leaves_only_what_is_new(tmp_path: Path) -> None:
    written(tmp_path, "parquet")
    skate.data.range(3).write_parquet(str(tmp_path), mode=SaveMode.OVERWRITE)
    assert sorted(row["id"] for row in skate.data.read_parquet(str(tmp_path)).take_all()) == [0, 1, 2]
    with pytest.raises(ValueError, match="exist"):
        skate.data.range(3).write_parquet(str(tmp_path), mode=SaveMode.ERROR)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        skate.data.read_parquet(str(tmp_path / "nowhere"))


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "hollow").mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match="hollow"):
        skate.data.read_csv(str(tmp_path / "hollow")).take_all()


def test_a_corrupt_file_among_good_ones_is_named(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"good{number}.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and then something else")
    with pytest.raises(Exception, match=r"bad\.parquet"):
        skate.data.read_parquet(str(tmp_path)).take_all()


def test_files_whose_columns_differ_have_one_schema(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": pa.nulls(1)}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [2.5], "b": ["x"]}), tmp_path / "1.parquet")
    found = skate.data.read_parquet(str(tmp_path))
    assert found.schema().types == [pa.float64(), pa.string()]
    assert found.take_all() == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}]


def test_a_write_that_fails_leaves_no_half_file(tmp_path: Path) -> None:
    def fails_late(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 25:
            raise ValueError("at twenty-five")
        return row

    with pytest.raises(ValueError, match="at twenty-five"):
        skate.data.range(30, override_num_blocks=1).map(fails_late).write_parquet(str(tmp_path / "out"))
    assert not list((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True


def test_shuffled_files_come_in_another_order_each_time(tmp_path: Path) -> None:
    for number in range(20):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number:02}.parquet")
    ds = skate.data.read_parquet(str(tmp_path), shuffle=skate.data.FileShuffleConfig(seed=3))
    first, second = ([row["id"] for row in ds.take_all()] for _ in range(2))
    assert first != second
    assert sorted(first) == sorted(second) == list(range(20))
