from __future__ import annotations

import decimal
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skate.data._block import batches, rows, schemas
from skate.data._block.errors import ColumnCastError, SchemaConflictError
from skate.data._block.objects import PythonObjectType
from skate.data._block.tensors import VariableShapedTensorType

TENSOR = pa.fixed_shape_tensor


def of(type_: pa.DataType) -> pa.Schema:
    return pa.schema({"x": type_})


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (pa.null(), pa.string(), pa.string()),
        (pa.null(), TENSOR(pa.int8(), [2]), TENSOR(pa.int8(), [2])),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint64(), pa.int8(), pa.int64()),
        (pa.uint64(), pa.uint8(), pa.uint64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.float16(), pa.float64(), pa.float64()),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.string(), pa.string_view(), pa.string()),
        (pa.string(), pa.binary(), pa.binary()),
        (pa.binary(3), pa.binary(4), pa.binary()),
        (pa.decimal128(5, 2), pa.decimal128(6, 1), pa.decimal128(7, 2)),
        (pa.decimal128(5, 2), pa.int32(), pa.decimal128(12, 2)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal256(48, 10)),
        (pa.decimal128(5, 2), pa.float32(), pa.float64()),
        (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("s", "UTC"), pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("ms", "UTC")),
        (pa.date32(), pa.timestamp("ms"), pa.timestamp("ms")),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.duration("s"), pa.duration("ns"), pa.duration("ns")),
        (pa.time32("s"), pa.time64("us"), pa.time64("us")),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (
            pa.dictionary(pa.int8(), pa.string()),
            pa.dictionary(pa.int32(), pa.string()),
            pa.dictionary(pa.int32(), pa.string()),
        ),
        (pa.list_(pa.null()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.large_list(pa.int64())),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int16(), 2), pa.list_(pa.int16(), 2)),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (
            pa.struct({"a": pa.int8(), "b": pa.null()}),
            pa.struct({"b": pa.string(), "c": pa.int8()}),
            pa.struct({"a": pa.int8(), "b": pa.string(), "c": pa.int8()}),
        ),
        (
            pa.map_(pa.string(), pa.int8()),
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.string(), pa.int64()),
        ),
        (TENSOR(pa.int8(), [2]), TENSOR(pa.float64(), [2]), TENSOR(pa.float64(), [2])),
        (TENSOR(pa.int8(), [2]), TENSOR(pa.int8(), [3]), VariableShapedTensorType(pa.int8(), 1)),
        (TENSOR(pa.int8(), [2]), TENSOR(pa.int8(), [2, 2]), VariableShapedTensorType(pa.int8(), None)),
        (
            TENSOR(pa.int8(), [2]),
            VariableShapedTensorType(pa.int16(), 1),
            VariableShapedTensorType(pa.int16(), 1),
        ),
        (PythonObjectType(), pa.int64(), PythonObjectType()),
        (PythonObjectType(), TENSOR(pa.int8(), [2]), PythonObjectType()),
    ],
    ids=str,
)
def test_two_types_become_the_one_that_holds_both(
    left: pa.DataType, right: pa.DataType, common: pa.DataType
) -> None:
    assert schemas.unify([of(left), of(right)]) == of(common)
    assert set(schemas.unify([of(right), of(left)]).types) == {common} or pa.types.is_struct(common)
    for type_ in (left, right):
        empty, nulls = of(type_).empty_table(), pa.table({"x": pa.nulls(3, type_)})
        assert schemas.conform(empty, of(common)).schema == of(common)
        assert schemas.conform(nulls, of(common))["x"].to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (pa.int64(), pa.string(), "column 'x' is int64 in one block and string in another"),
        (pa.bool_(), pa.int64(), "bool in one block and int64"),
        (pa.timestamp("s"), pa.timestamp("s", "UTC"), "tz=UTC"),
        (pa.list_(pa.int8()), pa.list_(pa.string()), r"column 'x\[\]' is int8 .* string"),
        (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.string()}), r"column 'x\.a' is int8"),
        (TENSOR(pa.int8(), [2]), pa.list_(pa.int8()), "fixed_shape_tensor"),
        (pa.date32(), pa.int32(), "date32"),
        (pa.duration("s"), pa.timestamp("s"), "duration"),
    ],
    ids=str,
)
def test_a_conflict_names_the_column_and_both_types(
    left: pa.DataType, right: pa.DataType, message: str
) -> None:
    with pytest.raises(SchemaConflictError, match=message) as caught:
        schemas.unify([of(left), of(right)])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_columns_come_in_the_order_in_which_they_are_first_seen() -> None:
    unified = schemas.unify([pa.schema({"b": pa.int8()}), pa.schema({"a": pa.int8(), "b": pa.int8()})])
    assert unified.names == ["b", "a"]


def test_no_schemas_make_an_empty_one() -> None:
    assert schemas.unify([]) == pa.schema([])


def test_equal_schemas_are_returned_as_they_are() -> None:
    schema = of(pa.int8())
    assert schemas.unify([schema] * 1000) is schema


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1, 2], [None, 2.5]),
        (["a"], pa.array(["b"], pa.large_string())),
        ([{"a": 1}], [{"b": "x"}, None]),
        ([[{"a": 1}], None, []], [[{"b": [1]}, None]]),
        ([[1, 2], None], pa.array([[3.5]], pa.large_list(pa.float64()))),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2, 3]]),
        (np.arange(4).reshape(2, 2), np.arange(3.0).reshape(1, 3)),
        ([np.ones(2), None], [np.ones((2, 2))]),
        ([np.ones(2), np.ones(3)], np.ones((2, 2), np.float32)),
        ([1, 1j], [2, 3]),
        ([1, 1j], np.ones((2, 2))),
        (pa.array(["a", "b"]).dictionary_encode(), ["c"]),
        ([decimal.Decimal("1.5")], [decimal.Decimal("10.25")]),
        ([None], [[{"a": [1]}]]),
    ],
    ids=repr,
)
def test_values_are_kept_when_blocks_are_made_to_conform(left: Any, right: Any) -> None:
    blocks = [batches.to_block({"x": left}), batches.to_block({"x": right})]
    schema = schemas.unify(block.schema for block in blocks)
    for block in blocks:
        conformed = schemas.conform(block, schema)
        conformed.validate(full=True)
        assert conformed.schema == schema
        assert conformed.num_rows == block.num_rows
        before, after = rows.to_row_list(block), rows.to_row_list(conformed)
        for old, new in zip(before, after, strict=True):
            assert is_kept(old["x"], new["x"])
        assert schemas.conform(block.slice(1), schema).equals(conformed.slice(1))


def is_kept(old: Any, new: Any) -> bool:
    """Return whether nothing is lost: structs may have gained fields, all of them null."""
    if isinstance(old, np.ndarray):
        return bool(old.shape == new.shape and (old == new).all())
    if isinstance(old, dict):
        added = new.keys() - old.keys()
        return all(is_kept(old[k], new[k]) for k in old) and all(new[k] is None for k in added)
    if isinstance(old, list):
        return len(old) == len(new) and all(map(is_kept, old, new))
    return bool(old == new)


def test_columns_that_fit_are_not_copied() -> None:
    block = pa.table({"x": [1, 2], "y": [1, 2]})
    conformed = schemas.conform(block, pa.schema({"x": pa.int64(), "y": pa.float64(), "z": pa.string()}))
    assert conformed["x"].chunk(0).buffers()[1].address == block["x"].chunk(0).buffers()[1].address
    assert conformed["z"].null_count == 2
    assert schemas.conform(block, block.schema) is block


def test_a_column_that_the_schema_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"columns \['y'\] that the schema \['x'\] lacks"):
        schemas.conform(pa.table({"x": [1], "y": [2]}), of(pa.int64()))


def test_a_value_that_does_not_fit_is_an_error_that_names_the_column() -> None:
    with pytest.raises(
        ColumnCastError, match=r"column 'x' cannot be cast from uint64 to int64: .*range"
    ) as e:
        schemas.conform(pa.table({"x": pa.array([2**63], pa.uint64())}), of(pa.int64()))
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


def test_columns_are_put_into_the_order_of_the_schema() -> None:
    conformed = schemas.conform(pa.table({"a": [1], "b": [2]}), pa.schema({"b": pa.int64(), "a": pa.int64()}))
    assert conformed.column_names == ["b", "a"]
