from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from skate.data._block import batches, frames, objects
from skate.data._block.tensors import VariableShapedTensorType


def test_the_index_of_a_frame_is_left_out() -> None:
    block = frames.from_pandas(pd.DataFrame({"x": [1, 2]}, index=["a", "b"]))
    assert block.column_names == ["x"]


def test_a_block_that_was_made_of_a_frame_is_one_again_for_whoever_asks_for_no_format() -> None:
    block = batches.to_block(pd.DataFrame({"x": [1, 2]}))
    assert isinstance(batches.to_batch(block.slice(1), None), pd.DataFrame)
    assert isinstance(batches.to_batch(block, "pyarrow"), pa.Table)
    assert isinstance(batches.to_batch(batches.to_block({"x": [1]}), None), pa.Table)


@pytest.mark.parametrize(
    ("series", "type_"),
    [
        (pd.Series([1.0, None]), pa.float64()),
        (pd.Series([1, None], dtype="Int32"), pa.int32()),
        (pd.Series([True, None], dtype="boolean"), pa.bool_()),
        (pd.Series(["a", None], dtype="string"), pa.large_string()),
        (pd.Series(["a", np.nan], dtype=object), pa.string()),
        (pd.Series(["a", None], dtype="category"), pa.dictionary(pa.int8(), pa.string())),
        (pd.Series([pd.Timestamp(0), pd.NaT]), pa.timestamp("ns")),
        (pd.Series([1, None], dtype=pd.ArrowDtype(pa.int8())), pa.int8()),
    ],
    ids=lambda value: str(getattr(value, "dtype", value)),
)
def test_missing_values_of_a_frame_are_null(series: Any, type_: pa.DataType) -> None:
    column = frames.from_pandas(pd.DataFrame({"x": series}))["x"]
    assert column.null_count == 1
    assert column.type in {type_, pa.string() if type_ == pa.large_string() else type_}


def test_ndarrays_in_a_frame_are_tensors() -> None:
    same = frames.from_pandas(pd.DataFrame({"x": [np.ones((2, 2)), np.ones((2, 2))]}))
    assert same["x"].type == pa.fixed_shape_tensor(pa.float64(), [2, 2])
    ragged = frames.from_pandas(pd.DataFrame({"x": [np.ones((2, 2)), np.ones((3, 3))]}))
    assert ragged["x"].type == VariableShapedTensorType(pa.float64(), 2)


def test_tensors_are_ndarrays_in_a_frame_in_the_place_of_their_column() -> None:
    block = pa.table(
        {
            "a": [1, 2],
            "t": batches.to_block({"t": np.arange(4).reshape(2, 2)})["t"],
            "b": ["x", None],
            "o": objects.from_objects([1j, None]),
        }
    )
    frame = frames.to_pandas(block)
    assert list(frame.columns) == ["a", "t", "b", "o"]
    assert frame["t"][1].tolist() == [2, 3]
    assert frame["o"].tolist() == [1j, None]
    assert frames.from_pandas(frame).equals(block)


def test_columns_of_a_frame_may_be_numbered() -> None:
    assert frames.from_pandas(pd.DataFrame(np.ones((1, 2)))).column_names == ["0", "1"]


def test_a_frame_without_columns_keeps_its_rows() -> None:
    assert frames.from_pandas(pd.DataFrame(index=range(3))).num_rows == 3


def test_an_empty_frame_keeps_its_columns() -> None:
    block = frames.from_pandas(pd.DataFrame({"x": pd.Series([], dtype="int32")}))
    assert block.schema == pa.schema({"x": pa.int32()})
    assert list(frames.to_pandas(block).columns) == ["x"]


@pytest.mark.parametrize("shape", [(4, 2), (4, 2, 3)])
def test_tensors_are_arrays_in_polars(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    frame = frames.to_polars(batches.to_block({"x": array, "y": [1] * 4}))
    assert frame.columns == ["x", "y"]
    assert frame["x"].dtype == pl.Array(pl.Int64, shape[1:])
    np.testing.assert_array_equal(batches.to_numpy(frames.from_polars(frame))["x"], array)


def test_ragged_tensors_are_lists_in_polars() -> None:
    frame = frames.to_polars(batches.to_block({"x": [np.array([1]), None, np.array([2, 3])]}))
    assert frame["x"].to_list() == [[1], None, [2, 3]]


def test_objects_pass_through_polars() -> None:
    block = pa.table({"x": objects.from_objects([1j, None])})
    assert frames.from_polars(frames.to_polars(block)).equals(block)
