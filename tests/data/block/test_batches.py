from __future__ import annotations

import datetime as dt
import pickle
from collections import UserDict
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from skate.data._block import batcher, batches, schemas, values
from skate.data._block.errors import (
    BatchTypeError,
    ColumnLengthsError,
    DuplicateColumnsError,
    MixedTypesError,
)
from skate.data._block.objects import PythonObjectType
from skate.data._block.tensors import VariableShapedTensorType


class Thing:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)

    __hash__ = None  # type: ignore[assignment]  # so that nobody relies on it


def column_of(values: Any) -> pa.ChunkedArray:
    return batches.to_block({"x": values})["x"]


def through(values: Any) -> Any:
    return batches.to_batch(batches.to_block({"x": values}), "numpy")["x"]


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, 2], pa.int64()),
        ((1, 2), pa.int64()),
        (range(2), pa.int64()),
        ([1, None], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([np.int32(1), np.int32(2)], pa.int32()),
        ([np.float32(1), None], pa.float32()),
        (np.arange(2, dtype=np.uint8), pa.uint8()),
        (["a", None], pa.string()),
        (np.array(["a", "bc"]), pa.string()),
        ([b"a\x00", b""], pa.binary()),
        ([True, None], pa.bool_()),
        ([None, None], pa.null()),
        ([], pa.null()),
        ([[1], [2, 3]], pa.list_(pa.int64())),
        ([{"a": 1}, {"b": "x"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ([2**63], pa.uint64()),
        ([2**70], PythonObjectType()),
        ([2**70, 0.5], PythonObjectType()),
        ([1j], PythonObjectType()),
        ([1, Thing()], PythonObjectType()),
        ([(1, "a")], PythonObjectType()),
        ([{"a": np.zeros((2, 2))}], PythonObjectType()),
        ([dt.date(2024, 1, 1)], pa.date32()),
        ([dt.timedelta(1)], pa.duration("us")),
        ([dt.datetime(2024, 1, 1)], pa.timestamp("s")),
        ([dt.datetime(2024, 1, 1, microsecond=1000), None], pa.timestamp("ms")),
        ([dt.datetime(2024, 1, 1, microsecond=1)], pa.timestamp("us")),
        ([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("s", tz="UTC")),
        ([pd.Timestamp(1), pd.NaT], pa.timestamp("ns")),
        ([np.datetime64("2024-01-01"), None], pa.timestamp("s")),
        (np.array(["2024-01-01"], "datetime64[D]"), pa.timestamp("s")),
        (np.zeros((2, 3), np.float32), pa.fixed_shape_tensor(pa.float32(), [3])),
        ([np.zeros((2, 3)), np.zeros((2, 3))], pa.fixed_shape_tensor(pa.float64(), [2, 3])),
        ([np.zeros(2), [1, 2]], pa.fixed_shape_tensor(pa.float64(), [2])),
        ([np.zeros(2), np.zeros(3)], VariableShapedTensorType(pa.float64(), 1)),
        ([np.array(["a", None], dtype=object)], pa.list_(pa.string())),
        (np.array([["a", "b"]], dtype=object), pa.list_(pa.string())),
        (torch.ones(2, 3), pa.fixed_shape_tensor(pa.float32(), [3])),
        (torch.ones(2, requires_grad=True), pa.float32()),
        (torch.ones(2, dtype=torch.bfloat16), pa.float32()),
        ([torch.ones(2), torch.ones(3)], VariableShapedTensorType(pa.float32(), 1)),
        (pd.Series([1, None], dtype="Int64"), pa.int64()),
        (pd.Series(["a", None]), pa.string()),
        (pd.Index([1, 2]), pa.int64()),
        (pd.Categorical(["a", "b"]), pa.dictionary(pa.int8(), pa.string())),
        (pl.Series([1, 2], dtype=pl.Int16), pa.int16()),
        (np.ma.array([1, 2], mask=[False, True]), pa.int64()),
        (np.ma.array([[1, 2]], mask=[[False, True]]), pa.list_(pa.int64())),
        (pl.Series(["a", "b"]), pa.string()),
        (pa.array([1], pa.int8()), pa.int8()),
        (pa.chunked_array([[1], [2]]), pa.int64()),
    ],
    ids=repr,
)
def test_a_column_gets_the_type_of_its_values(values: Any, type_: pa.DataType) -> None:
    assert column_of(values).type == type_


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None], np.array([1.0, np.nan])),
        ([1.0, np.nan], np.array([1.0, np.nan])),
        ([True, None], np.array([True, None], dtype=object)),
        (["a", None], np.array(["a", None], dtype=object)),
        ([b"a\x00"], np.array([b"a\x00"], dtype=object)),
        ([None, None], np.array([None, None], dtype=object)),
        ([dt.datetime(2024, 1, 1)], np.array(["2024-01-01"], "datetime64[s]")),
        ([pd.Timestamp(1)], np.array([1], "datetime64[ns]")),
        ([dt.timedelta(1), None], np.array([86400000000, "NaT"], "timedelta64[us]")),
        ([dt.date(2024, 1, 1)], np.array(["2024-01-01"], "datetime64[D]")),
        (np.ma.array([1, 2], mask=[False, True]), np.array([1, np.nan])),
        (np.float16([1, 2]), np.float16([1, 2])),
        (pd.Categorical(["a", "b"]), np.array(["a", "b"], dtype=object)),
        (pd.Categorical(["a", None]), np.array(["a", None], dtype=object)),
        (pa.array([7, None]).dictionary_encode(), np.array([7, np.nan])),
        ([1, Thing()], np.array([1, Thing()], dtype=object)),
        (torch.ones(2, 2), np.ones((2, 2), np.float32)),
    ],
    ids=repr,
)
def test_a_numpy_batch_has_the_array_that_ray_makes(values: Any, expected: np.ndarray[Any, Any]) -> None:
    array = through(values)
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


def test_lists_become_arrays_in_a_numpy_batch() -> None:
    array = through([[1, 2], None, [3]])
    assert array.dtype == object
    assert [None if item is None else item.tolist() for item in array] == [[1, 2], None, [3]]


def test_structs_keep_their_integers_where_others_are_null() -> None:
    array = through([{"a": 1}, {"b": 2}])
    assert array.tolist() == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    assert type(array[0]["a"]) is int


def test_lists_of_structs_become_arrays_of_dicts() -> None:
    array = through([[{"a": 1}], [{"b": 2}, None]])
    assert isinstance(array[0], np.ndarray)
    assert array[1].tolist() == [{"a": None, "b": 2}, None]


def test_a_column_of_several_chunks_is_one_array() -> None:
    parts = [np.arange(4).reshape(2, 2), np.arange(2).reshape(1, 2)]
    block = pa.concat_tables([batches.to_block({"x": part}) for part in parts])
    np.testing.assert_array_equal(batches.to_numpy(block)["x"], np.concatenate(parts))
    holed = pa.concat_tables([block, batches.to_block({"x": [np.array([1, 2]), None]})])
    array = batches.to_numpy(holed)["x"]
    assert [None if item is None else item.tolist() for item in array] == [
        [0, 1],
        [2, 3],
        [0, 1],
        [1, 2],
        None,
    ]


def test_an_empty_block_has_empty_arrays() -> None:
    block = batches.to_block({"x": np.zeros((1, 3)), "s": np.array(["a"]), "o": [Thing()]}).slice(0, 0)
    arrays = batches.to_batch(block, "numpy")
    assert {name: array.shape for name, array in arrays.items()} == {"x": (0, 3), "s": (0,), "o": (0,)}
    without_chunks = block.schema.empty_table()
    assert batches.to_batch(without_chunks, "numpy")["x"].shape == (0, 3)


def test_numbers_are_not_copied_on_the_way_in_and_out() -> None:
    array = np.arange(10)
    assert np.shares_memory(array, through(array))


def test_a_writable_batch_shares_nothing_with_its_block() -> None:
    array = np.arange(10)
    block = batches.to_block({"x": array, "y": [str(i) for i in array]})
    batch = batches.to_batch(block, "numpy", writable=True)
    batch["x"][0] = 99
    assert array[0] == 0
    assert not batches.to_batch(block, "numpy")["x"].flags.writeable


@pytest.mark.parametrize("batch_format", ["numpy", "default", "pandas", "pyarrow", None, "polars"])
def test_every_format_gives_the_block_back(batch_format: str | None) -> None:
    block = batches.to_block(
        {"i": [1, 2], "s": ["a", "b"], "t": np.arange(4).reshape(2, 2), "b": [True, False]}
    )
    batch = batches.to_batch(block, batch_format)
    kinds = {"numpy": dict, "default": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame}
    assert isinstance(batch, kinds.get(batch_format or "", pa.Table))
    back = batches.to_block(batch)
    assert back["t"].type == block["t"].type
    # Polars has strings with wide offsets only.
    assert schemas.conform(back, block.schema).equals(block)


def test_a_mapping_that_is_no_dict_is_a_batch() -> None:
    assert batches.to_block(UserDict({"x": [1]})).to_pydict() == {"x": [1]}


def test_a_record_batch_is_a_batch() -> None:
    assert batches.to_block(pa.record_batch({"x": [1]})).equals(pa.table({"x": [1]}))


def test_a_batch_without_columns_has_no_rows() -> None:
    assert batches.to_block({}).num_rows == 0


def test_columns_of_differing_lengths_are_named_with_their_lengths() -> None:
    with pytest.raises(ColumnLengthsError) as caught:
        batches.to_block({"a": [1, 2], "b": np.arange(3), "c": [1, 2]})
    assert "'a': 2, 'b': 3, 'c': 2" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).lengths == {"a": 2, "b": 3, "c": 2}


@pytest.mark.parametrize("batch", [np.arange(3), [1], "text", 5, object()])
def test_what_is_no_batch_is_named_with_what_is_allowed(batch: Any) -> None:
    with pytest.raises(
        BatchTypeError, match=f"a batch is of type {type(batch).__name__}, .*a dict of columns"
    ):
        batches.to_block(batch)


@pytest.mark.parametrize("column", ["text", b"bytes", 5, np.int64(5), object(), {"a": 1}, np.array(5)])
def test_what_is_no_column_is_named(column: Any) -> None:
    with pytest.raises(ValueError, match=r"column 'x' of a batch is of type .* a list or another sequence"):
        batches.to_block({"x": column})


@pytest.mark.parametrize(
    "batch",
    [
        pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]),
        pa.table([[1], [2], [3]], names=["a", "b", "a"]),
        pa.record_batch([pa.array([1])] * 3, names=["a", "b", "a"]),
    ],
    ids=["pandas", "table", "record batch"],
)
def test_two_columns_of_one_name_are_refused(batch: Any) -> None:
    with pytest.raises(DuplicateColumnsError, match=r"more than once: \['a'\]") as caught:
        batches.to_block(batch)
    assert pickle.loads(pickle.dumps(caught.value)).names == ["a"]


def test_text_in_views_becomes_plain_text() -> None:
    views = pa.array([["a", None], None, ["longer than twelve bytes"]], pa.list_(pa.string_view()))
    table = pa.table({"x": views, "y": pa.array(["a", None, "b"], pa.string_view())})
    block = batches.to_block(table)
    assert block.schema.types == [pa.list_(pa.string()), pa.string()]
    assert block.to_pylist() == table.to_pylist()


def test_a_column_name_is_a_string() -> None:
    with pytest.raises(BatchTypeError, match="column name 1 is of type int"):
        batches.to_block({1: [1]})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, None, "a", "b"], r"column 'x' mixes int \(first in row 0: 1\), str \(first in row 2: 'a'\)"),
        ([True, 1], r"mixes bool \(first in row 0: True\), int \(first in row 1: 1\)"),
        (["a", [1]], r"mixes str .*, list \(first in row 1: \[1\]\)"),
        ([dt.datetime(2024, 1, 1), "a"], r"mixes datetime .*, str"),
        (np.array([{"a": 1}, 5], dtype=object), r"mixes dict .*, int"),
        (["a" * 100, 1], r"'a{36}\.\.\."),
    ],
)
def test_mixed_types_are_named_with_their_first_rows(values: Any, message: str) -> None:
    with pytest.raises(MixedTypesError, match=message) as caught:
        batches.to_block({"x": values})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_unknown_format_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"batch_format is 'jax', .* 'numpy', 'pandas', 'pyarrow'"):
        batches.to_batch(pa.table({}), "jax")


WORDS = [f"word {number % 7}" for number in range(2000)]


def test_text_that_repeats_is_converted_once_per_value() -> None:
    array = batches.to_batch(pa.table({"x": WORDS}), "numpy")["x"]
    assert array.tolist() == WORDS
    assert len(set(map(id, array))) == 7


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("distinct", [3, 2000])
def test_text_is_the_same_whether_it_repeats_or_not(kind: pa.DataType, distinct: int) -> None:
    column = pa.array([None if row % 5 == 0 else str(row % distinct) for row in range(2000)]).cast(kind)
    sliced = pa.chunked_array([column.slice(3, 1500), column])
    for each in (sliced, pa.chunked_array([column]), pa.chunked_array([column.slice(100)])):
        assert values.to_ndarray(each).tolist() == each.to_pylist() == values.to_list(each)


def text_and(returned: Any) -> tuple[pa.Table, Any]:
    """Return a block of text, and what becomes of a batch of it that a function has changed."""
    block = pa.table({"x": pa.array(WORDS)})
    batch = batches.to_batch(block, "numpy")
    given = batches.GivenText(block, batch)
    return block, batches.to_block(returned(batch), given)


def test_text_that_a_function_returns_unchanged_is_the_text_of_the_block() -> None:
    block, made = text_and(lambda batch: {"again": batch["x"], "y": np.arange(2000)})
    assert made["again"].to_pylist() == WORDS
    assert made["again"].chunk(0).buffers()[2].address == block["x"].chunk(0).buffers()[2].address


def test_text_that_a_function_changes_in_place_is_converted() -> None:
    def change(batch: dict[str, Any]) -> dict[str, Any]:
        batch["x"][1] = "changed"
        return batch

    _, made = text_and(change)
    assert made["x"].to_pylist() == [WORDS[0], "changed", *WORDS[2:]]


def test_text_that_a_function_replaces_by_equal_text_of_another_shape_is_converted() -> None:
    def cut(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["x"][::2]}

    _, made = text_and(cut)
    assert made["x"].to_pylist() == WORDS[::2]


@pytest.mark.parametrize(
    "column", [pa.array([None, None], pa.string()), pa.array(["a"]).cast(pa.large_string())]
)
def test_text_of_another_type_than_arrow_gives_it_is_converted(column: pa.Array) -> None:
    block = pa.table({"x": column})
    batch = batches.to_batch(block, "numpy")
    assert batches.to_block(batch, batches.GivenText(block, batch)).schema == batches.to_block(batch).schema


@pytest.mark.parametrize("size", [1, 300, 1999, 5000, None])
@pytest.mark.parametrize("format", ["numpy", "pyarrow", "pandas"])
def test_slices_are_converted_as_blocks_are(size: int | None, format: str) -> None:
    numbers = [None if row % 700 == 0 else row for row in range(2000)]
    block = pa.table({"x": WORDS, "n": numbers, "other": list(map(str, range(2000)))})
    blocks = [block.slice(0, 50), block, block.slice(7)]
    found = list(batches.slices_to_batches(batcher.batch_slices(iter(blocks), size), format))
    wanted = [(len(cut), batches.to_batch(cut, format)) for cut in batcher.batch_blocks(iter(blocks), size)]
    assert [rows for rows, _ in found] == [rows for rows, _ in wanted]
    for (_, left), (_, right) in zip(found, wanted, strict=True):
        assert list(left) == list(right) if format != "pyarrow" else left == right
        if format == "numpy":
            for name in left:
                np.testing.assert_array_equal(left[name], right[name])
                assert left[name].dtype == right[name].dtype


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "f2", "f4", "f8"])
def test_numbers_are_views_that_cannot_be_changed(dtype: str) -> None:
    array = np.arange(10).astype(dtype)
    block = batches.to_block({"x": array}).slice(2, 5)
    made = batches.to_batch(block, "numpy")["x"]
    assert made.dtype == array.dtype
    assert made.tolist() == [2, 3, 4, 5, 6]
    assert not made.flags.writeable
    assert np.shares_memory(made, array)
    assert block.schema.field("x").type == pa.from_numpy_dtype(array.dtype)
