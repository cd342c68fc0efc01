from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.data._block import batches, rows
from skate.data._kernels import frames, taking

COLUMNS = {
    "int": pa.array([1, None, 3]),
    "uint8": pa.array([1, None, 3], pa.uint8()),
    "float16": pa.array(np.array([1.5, -0.0, np.nan], np.float16)),
    "float": pa.array([0.1, None, float("inf")]),
    "bool": pa.array([True, None, False]),
    "null": pa.nulls(3),
    "string": pa.array(["a", None, "a string longer than twelve bytes"]),
    "large string": pa.array(["a", None, ""], pa.large_string()),
    "string view": pa.array(["a", None, "a string longer than twelve bytes"], pa.string_view()),
    "bytes": pa.array([b"a", None, b"\xff"]),
    "bytes view": pa.array([b"a", None, b"\xff"], pa.binary_view()),
    "fixed bytes": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "date": pa.array([datetime.date(1969, 1, 1), None, datetime.date(2020, 1, 1)]),
    "date64": pa.array([datetime.date(1969, 1, 1), None, datetime.date(2020, 1, 1)], pa.date64()),
    "time": pa.array([1, None, 3], pa.time32("s")),
    "timestamp": pa.array([1, None, 3], pa.timestamp("s", "+02:00")),
    "duration": pa.array([1, None, 3], pa.duration("s")),
    "decimal": pa.array([1, None, 3], pa.decimal128(5, 2)),
    "wide decimal": pa.array([1, None, 3], pa.decimal256(50, 2)),
    "list": pa.array([[1], None, []]),
    "struct": pa.array([{"a": 1}, None, {"a": None}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    ),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2)),
    "ragged": batches.to_block({"x": [np.zeros(1), np.zeros((2, 2)), np.zeros(3)]}).column(0).chunk(0),
    "object": rows.to_block([{"x": {1, 2}}, {"x": None}, {"x": {3}}]).column(0).chunk(0),
}


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_rows_of_any_type_are_taken_and_keep_their_type(column: pa.Array, chunks: int) -> None:
    whole = pa.chunked_array([column] if chunks == 1 else [column.slice(0, 1), column.slice(1)])
    taken = taking.take(pa.table({"x": whole}), np.array([2, 0, 0, 1], np.uint32))
    taken.validate(full=True)
    assert taken.schema.field("x").type == column.type
    values = [str(value) for value in column.to_pylist()]
    assert [str(value) for value in taken["x"].to_pylist()] == [values[i] for i in (2, 0, 0, 1)]


@pytest.mark.parametrize("column", [COLUMNS[name] for name in COLUMNS if name != "union"])
def test_no_position_is_a_row_of_nulls(column: pa.Array) -> None:
    taken = taking.take(pa.table({"x": column}), pl.Series([0, None], dtype=pl.UInt32))
    taken.validate(full=True)
    assert taken["x"].type == column.type
    assert taken["x"].is_null().to_pylist() == [not column[0].is_valid, True]


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_nothing_is_taken_from_nothing(column: pa.Array) -> None:
    taken = taking.take(pa.table({"x": column.slice(0, 0)}), np.array([], np.uint32))
    assert taken.num_rows == 0
    assert taken.schema.field("x").type == column.type


def test_rows_without_columns_are_counted() -> None:
    taken = taking.take(pa.table({"x": [1, 2]}).select([]), np.array([0, 0, 1], np.uint32))
    assert (taken.num_rows, taken.num_columns) == (3, 0)


def test_metadata_of_the_schema_stays() -> None:
    table = pa.table({"x": [1]}).replace_schema_metadata({"a": "b"})
    assert taking.take(table, np.array([0], np.uint32)).schema.metadata == {b"a": b"b"}


texts = st.lists(st.none() | st.text(max_size=10), min_size=1, max_size=30)


@settings(deadline=None)
@given(texts, st.data())
def test_what_offsets_cannot_address_comes_in_pieces(values: list[str | None], data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=40))
    nested: list[Any] = [None if value is None else [value, value] for value in values]
    table = pa.table(
        {"text": pa.array(values, pa.string()), "texts": pa.array(nested, pa.list_(pa.string()))}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "LARGEST_OFFSET", 40)  # as many bytes as the longest of the values needs
        taken = taking.take(table, np.array(positions, np.uint32))
    taken.validate(full=True)
    assert taken.schema.equals(table.schema)
    assert taken["text"].to_pylist() == [values[i] for i in positions]
    assert taken["texts"].to_pylist() == [nested[i] for i in positions]
    assert all(
        sum(len((text or "").encode()) for text in chunk.to_pylist()) <= 40 for chunk in taken["text"].chunks
    )
