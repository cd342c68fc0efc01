from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from skate.data._schema import Schema
from skate.data.block import BlockAccessor, BlockMetadata


def accessor(**columns: Any) -> BlockAccessor:
    return BlockAccessor.for_block(BlockAccessor.batch_to_block(columns))


def test_an_accessor_knows_rows_bytes_and_columns() -> None:
    made = accessor(x=[1, 2, 3])
    assert (made.num_rows(), made.size_bytes(), made.column_names()) == (3, 24, ["x"])
    assert made.schema() == pa.schema({"x": pa.int64()})
    assert made.get_metadata(input_files=["a.csv"]) == BlockMetadata(3, 24, input_files=["a.csv"])
    assert list(made.iter_rows(True)) == [{"x": 1}, {"x": 2}, {"x": 3}]


def test_a_frame_is_accessed_as_a_block() -> None:
    made = BlockAccessor.for_block(pd.DataFrame({"x": [1]}))
    assert made.to_arrow().equals(pa.table({"x": [1]}))
    assert made.to_block() is made.to_default()


def test_what_is_no_block_is_refused() -> None:
    with pytest.raises(TypeError, match="a block is of type list"):
        BlockAccessor.for_block([1, 2])


def test_columns_are_taken_by_their_names() -> None:
    made = accessor(x=[1, 2], y=np.ones((2, 2)))
    array = made.to_numpy("x")
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [1, 2]
    assert list(made.to_numpy()) == ["x", "y"]
    assert list(made.to_numpy(["y"])) == ["y"]
    with pytest.raises(ValueError, match=r"no column 'z'; the columns are \['x', 'y'\]"):
        made.to_numpy("z")


def test_blocks_become_batches_of_every_format() -> None:
    made = accessor(x=[1])
    assert isinstance(made.to_batch_format("pandas"), pd.DataFrame)
    assert made.to_pandas()["x"].tolist() == [1]
    assert made.to_batch_format("numpy")["x"].tolist() == [1]


def test_a_slice_is_a_view_or_a_copy() -> None:
    made = accessor(x=np.arange(10))
    view, copy = made.slice(2, 5), made.slice(2, 5, copy=True)
    assert view["x"].to_pylist() == copy["x"].to_pylist() == [2, 3, 4]
    assert view["x"].chunk(0).offset == 2
    assert copy["x"].chunk(0).offset == 0


def test_columns_are_selected_dropped_renamed_and_set() -> None:
    made = accessor(x=[1, 2], y=[3, 4])
    assert made.select(["y"]).column_names == ["y"]
    assert made.drop(["y"]).column_names == ["x"]
    assert made.rename_columns({"x": "z"}).column_names == ["z", "y"]
    assert made.upsert_column("x", [5, 6]).to_pydict() == {"x": [5, 6], "y": [3, 4]}
    assert made.fill_column("w", "a").to_pydict() == {"x": [1, 2], "y": [3, 4], "w": ["a", "a"]}
    with pytest.raises(ValueError, match="select takes column names"):
        made.select([lambda row: row])  # type: ignore[list-item]  # the mistake that is tested


def test_rows_are_taken_and_shuffled() -> None:
    made = accessor(x=list(range(100)))
    assert made.take([5, 1])["x"].to_pylist() == [5, 1]
    shuffled = made.random_shuffle(1)["x"].to_pylist()
    assert sorted(shuffled) == list(range(100)) != shuffled
    assert made.random_shuffle(1)["x"].to_pylist() == shuffled


def test_blocks_are_zipped_side_by_side() -> None:
    zipped = accessor(x=[1], y=[2]).zip(pa.table({"x": [3], "z": [4]}))
    assert zipped.to_pydict() == {"x": [1], "y": [2], "x_1": [3], "z": [4]}
    with pytest.raises(ValueError, match="got 1 and 2"):
        accessor(x=[1]).zip(pa.table({"x": [1, 2]}))


@pytest.mark.parametrize(
    ("ignore_nulls", "expected"), [(True, (2, 4, 1, 3, 2.0, 2.0)), (False, (3, *[None] * 5))]
)
def test_columns_are_aggregated(ignore_nulls: bool, expected: tuple[Any, ...]) -> None:
    made = accessor(x=[1, None, 3])
    assert expected == (
        made.count("x", ignore_nulls),
        made.sum("x", ignore_nulls),
        made.min("x", ignore_nulls),
        made.max("x", ignore_nulls),
        made.mean("x", ignore_nulls),
        made.sum_of_squared_diffs_from_mean("x", ignore_nulls),
    )


def test_a_schema_has_names_and_types() -> None:
    schema = Schema(pa.schema({"id": pa.int64(), "a longer name": pa.string()}))
    assert schema.names == ["id", "a longer name"]
    assert schema.types == [pa.int64(), pa.string()]
    assert repr(schema).splitlines() == [
        "Column         Type",
        "------         ----",
        "id             int64",
        "a longer name  string",
    ]


def test_schemas_are_equal_whatever_their_metadata() -> None:
    base = pa.schema({"id": pa.int64()})
    assert Schema(base) == Schema(base.with_metadata({"pandas": "{}"}))
    assert hash(Schema(base)) == hash(Schema(base))
    assert Schema(base) != Schema(pa.schema({"id": pa.int32()}))
    assert Schema(base) != base
    with pytest.raises(TypeError, match=r"needs a pyarrow.Schema, got dict"):
        Schema({})
