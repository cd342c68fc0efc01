"""Blocks preserve their contents: rows and batches of any values, and slices through any transport."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skate.data._block import batches, rows, schemas, tables
from skate.data._io import pickled_columns
from tests.data.block.test_tensors import TRANSPORTS

TEXT = st.text(max_size=20).filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text))
INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int": INT64,
    "float": st.floats(),
    "bool": st.booleans(),
    "text": TEXT,
    "bytes": st.binary(max_size=20),
    "datetime": st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)),
    "date": st.dates(),
    "timedelta": st.timedeltas(dt.timedelta(-10_000), dt.timedelta(10_000)),
    "complex": st.complex_numbers(),
    "huge int": st.integers(2**64, 2**90),
}


def nested(scalar: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "list": st.lists(st.none() | scalar, max_size=4),
        "list of lists": st.lists(st.none() | st.lists(scalar, max_size=3), max_size=3),
        "struct": st.fixed_dictionaries({"a": st.none() | scalar, "b": st.lists(scalar, max_size=2)}),
    }


DTYPES = st.sampled_from(["bool", "int8", "uint32", "int64", "float16", "float32", "float64"])
TENSORS = {
    "tensor": hnp.arrays(np.float32, (2, 3)),
    "ragged": hnp.arrays(np.int16, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4)),
    "any shape": hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)),
}
VALUES = {**SCALARS, **nested(INT64), **TENSORS}


def same(left: Any, right: Any) -> bool:
    """Return whether values are equal, NaN equal to itself, and arrays equal in shape and type too."""
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and np.array_equal(left, right, equal_nan=left.dtype.kind in "fc")
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    if isinstance(left, complex) and left != left:
        return bool(right != right)
    return type(left) is type(right) and bool(left == right)


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_rows_come_back_as_they_were(kind: str, data: st.DataObject) -> None:
    given_rows = data.draw(
        st.lists(st.fixed_dictionaries({"x": st.none() | VALUES[kind], "y": INT64}), max_size=10)
    )
    block = rows.to_block(given_rows)
    block.validate(full=True)
    back = list(rows.to_rows(block))
    if any(row["x"] is not None for row in given_rows):
        assert same(back, given_rows)
    else:
        assert back == given_rows


@settings(deadline=None)
@given(
    given_rows=st.lists(
        st.dictionaries(st.sampled_from("abc"), st.none() | INT64, max_size=3), min_size=1, max_size=10
    )
)
def test_keys_that_a_row_lacks_come_back_as_none(given_rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in given_rows for name in row))
    back = list(rows.to_rows(rows.to_block(given_rows)))
    assert back == [{name: row.get(name) for name in names} for row in given_rows]


@st.composite
def numpy_batches(draw: st.DrawFn) -> dict[str, np.ndarray[Any, Any]]:
    length = draw(st.integers(0, 6))
    shapes = st.lists(st.integers(0, 3), max_size=2)
    arrays = {
        f"c{i}": draw(hnp.arrays(draw(DTYPES), (length, *draw(shapes))))
        for i in range(draw(st.integers(1, 3)))
    }
    arrays["text"] = np.array(draw(st.lists(TEXT, min_size=length, max_size=length)), dtype=object)
    return arrays


@settings(deadline=None)
@given(batch=numpy_batches())
def test_a_numpy_batch_comes_back_as_it_was(batch: dict[str, np.ndarray[Any, Any]]) -> None:
    block = batches.to_block(batch)
    block.validate(full=True)
    back = batches.to_batch(block, "numpy")
    assert list(back) == list(batch)
    for name, array in batch.items():
        assert back[name].shape == array.shape
        assert same(back[name], array)


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "polars", "pyarrow"])
@settings(max_examples=25, deadline=None)
@given(batch=numpy_batches())
def test_a_block_comes_back_from_every_format(
    batch_format: str, batch: dict[str, np.ndarray[Any, Any]]
) -> None:
    # Polars has no float16; an array with an empty side says nothing of its shape to pandas or Polars.
    kept = {name: array for name, array in batch.items() if array.dtype != np.float16 and array.size}
    block = batches.to_block(kept)
    back = batches.to_block(batches.to_batch(block, batch_format))
    assert back.column_names == block.column_names
    conformed = schemas.conform(back, block.schema)
    for name, array in kept.items():
        assert same(batches.to_numpy(conformed)[name], array)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_slices_survive_transport(transport: Any, kind: str, data: st.DataObject) -> None:
    given_rows = data.draw(
        st.lists(st.fixed_dictionaries({"x": st.none() | VALUES[kind]}), min_size=1, max_size=10)
    )
    start = data.draw(st.integers(0, len(given_rows)))
    stop = data.draw(st.integers(start, len(given_rows)))
    block = rows.to_block(given_rows)
    part = tables.slice_rows(block, start, stop)
    for sent in (part, tables.compact(part)):
        back = pickled_columns.restore_objects(transport(sent), trusted=True)
        back.validate(full=True)
        # Parquet has no times in whole seconds.
        back = schemas.conform(back, schemas.unify([block.schema, back.schema]))
        assert same([row["x"] for row in rows.to_rows(back)], [row["x"] for row in rows.to_rows(part)])


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_blocks_of_one_kind_are_always_joined(kind: str, data: st.DataObject) -> None:
    values = st.none() | VALUES[kind]
    groups = data.draw(st.lists(st.lists(st.fixed_dictionaries({"x": values}), max_size=4), max_size=4))
    whole = tables.concat([rows.to_block(group) for group in groups])
    whole.validate(full=True)
    expected = [row["x"] for group in groups for row in group]
    assert same([row["x"] for row in rows.to_rows(whole)], expected)
    if expected:
        order = data.draw(st.permutations(range(len(expected))))
        taken = tables.take(whole, order)
        assert same([row["x"] for row in rows.to_rows(taken)], [expected[i] for i in order])
