"""The types of columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from skate.data._block.tensors import VariableShapedTensorType
from skate.data.datatype import DataType, TypeCategory

PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "binary": pa.binary(),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_type_is_arrows_of_that_name(name: str) -> None:
    made: DataType = getattr(DataType, name)()
    assert made.is_arrow_type()
    assert made.to_arrow_dtype() == PLAIN[name]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (DataType.list(DataType.int64()), pa.list_(pa.int64())),
        (DataType.large_list(DataType.string()), pa.large_list(pa.string())),
        (DataType.fixed_size_list(DataType.int32(), 5), pa.list_(pa.int32(), 5)),
        (DataType.struct([("x", DataType.int64())]), pa.struct([("x", pa.int64())])),
        (DataType.map(DataType.string(), DataType.int8()), pa.map_(pa.string(), pa.int8())),
        (DataType.tensor((3, 4), DataType.float32()), pa.fixed_shape_tensor(pa.float32(), (3, 4))),
        (DataType.variable_shaped_tensor(DataType.float32(), 2), VariableShapedTensorType(pa.float32(), 2)),
        (DataType.temporal("timestamp"), pa.timestamp("us")),
        (DataType.temporal("timestamp", "ns", "UTC"), pa.timestamp("ns", "UTC")),
        (DataType.temporal("date32"), pa.date32()),
        (DataType.temporal("date64"), pa.date64()),
        (DataType.temporal("time32", "ms"), pa.time32("ms")),
        (DataType.temporal("time64", "ns"), pa.time64("ns")),
        (DataType.temporal("duration", "s"), pa.duration("s")),
        (DataType.from_numpy("int32"), pa.int32()),
        (DataType.from_numpy("U5"), pa.string()),
        (DataType.from_numpy("S5"), pa.binary()),
        (DataType.list(DataType.from_numpy("float32")), pa.list_(pa.float32())),
    ],
)
def test_a_type_with_parameters_is_arrows(made: DataType, expected: pa.DataType) -> None:
    assert made.to_arrow_dtype() == expected


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: DataType.temporal("time32", "us"), "time32 unit must be 's' or 'ms', got 'us'"),
        (lambda: DataType.temporal("time64", "ms"), "time64 unit must be 'us' or 'ns', got 'ms'"),
        (lambda: DataType.temporal("century"), "Invalid temporal_type 'century'; use one of timestamp"),
    ],
)
def test_a_time_has_the_types_and_units_there_are(make: Callable[[], DataType], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


@pytest.mark.parametrize("value", ["string", 123, [1], None, object()])
def test_anything_else_is_no_type(value: Any) -> None:
    with pytest.raises(TypeError, match="supports only PyArrow DataType, NumPy dtype, or Python type"):
        DataType(value)


def test_types_of_different_families_differ() -> None:
    kinds = [DataType.int64(), DataType.from_numpy("int64"), DataType(int), DataType.int32()]
    assert len(set(kinds)) == 4
    assert DataType.int64() == DataType.from_arrow(pa.int64())
    assert DataType.int64() != pa.int64()
    assert DataType(int) != DataType.from_numpy("int64")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (DataType.int64(), "DataType(arrow:int64)"),
        (DataType.from_numpy("float32"), "DataType(numpy:float32)"),
        (DataType(str), "DataType(python:str)"),
    ],
)
def test_a_type_prints_with_its_family(made: DataType, text: str) -> None:
    assert repr(made) == text
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_python_class_needs_values_to_have_an_arrow_type() -> None:
    assert DataType(int).to_arrow_dtype([1]) == pa.int64()
    with pytest.raises(TypeError, match=r"Python-type-backed DataType .* requires values"):
        DataType(int).to_arrow_dtype()


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (DataType.from_numpy("int32"), np.dtype("int32")),
        (DataType.int32(), np.dtype("int32")),
        (DataType.bool(), np.dtype("bool")),
        (DataType.list(DataType.int32()), np.dtype("object")),
        (DataType.tensor((2,), DataType.int8()), np.dtype("object")),
        (DataType(str), np.dtype("object")),
    ],
)
def test_a_type_has_a_numpy_dtype(made: DataType, expected: np.dtype[Any]) -> None:
    assert made.to_numpy_dtype() == expected


def test_only_a_python_class_is_one() -> None:
    assert DataType(list).to_python_type() is list
    with pytest.raises(ValueError, match="is not backed by a Python type"):
        DataType.int64().to_python_type()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (pa.int32(), DataType.int32()),
        (np.dtype("int32"), DataType.from_numpy("int32")),
        ("float32", DataType.from_numpy("float32")),
        (np.int64, DataType.from_numpy("int64")),
        (int, DataType(int)),
        (pd.StringDtype(), DataType.string()),
        (pd.ArrowDtype(pa.int32()), DataType.int32()),
        (pd.Int8Dtype(), DataType.from_numpy("int8")),
        (pd.BooleanDtype(), DataType.from_numpy("bool")),
        (DataType.int8(), DataType.int8()),
        (None, None),
        (object(), None),
        ("category", None),
    ],
)
def test_a_type_is_found_by_any_description(dtype: Any, expected: DataType | None) -> None:
    assert DataType.from_dtype(dtype) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros(2, "int32"), DataType.from_numpy("int32")),
        (np.float32(1), DataType.from_numpy("float32")),
        (1, DataType.int64()),
        ("x", DataType.string()),
        ([1], DataType.list(DataType.int64())),
        (2**80, DataType(int)),
        (1j, DataType(complex)),
    ],
)
def test_a_type_is_found_for_a_value(value: Any, expected: DataType) -> None:
    assert DataType.infer_dtype(value) == expected


TENSOR = DataType.tensor((2,), DataType.int8())
RAGGED = DataType.variable_shaped_tensor(DataType.int8())

QUESTIONS: dict[str, list[DataType]] = {
    "list": [
        DataType.list(DataType.int8()),
        DataType.large_list(DataType.int8()),
        DataType.fixed_size_list(DataType.int8(), 2),
    ],
    "tensor": [TENSOR, RAGGED],
    "struct": [DataType.struct([("x", DataType.int8())])],
    "map": [DataType.map(DataType.string(), DataType.int8())],
    "null": [DataType(pa.null())],
    "boolean": [DataType.bool(), DataType(bool), DataType.from_numpy("bool")],
    "integer": [DataType.uint64(), DataType(int), DataType.from_numpy("uint64")],
    "floating": [DataType.float32(), DataType(float), DataType.from_numpy("float16")],
    "string": [
        DataType.string(),
        DataType(pa.large_string()),
        DataType(pa.string_view()),
        DataType(str),
        DataType.from_numpy("U3"),
    ],
    "binary": [
        DataType.binary(),
        DataType(pa.large_binary()),
        DataType(pa.binary(3)),
        DataType(bytes),
        DataType(bytearray),
    ],
    "temporal": [DataType.temporal("date32"), DataType.from_numpy("datetime64[D]")],
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_has_the_same_answer_in_every_family(question: str) -> None:
    for family, members in QUESTIONS.items():
        for member in members:
            assert getattr(member, f"is_{question}_type")() == (family == question), member


def test_numbers_are_integers_and_floats_and_decimals() -> None:
    decimal = DataType(pa.decimal128(5, 2))
    assert all(
        number.is_numerical_type() for number in [*QUESTIONS["integer"], *QUESTIONS["floating"], decimal]
    )
    assert not any(other.is_numerical_type() for other in [*QUESTIONS["boolean"], *QUESTIONS["string"]])


def test_only_unsigned_integers_of_64_bits_are() -> None:
    assert DataType.uint64().is_uint64_type()
    assert DataType.from_numpy("uint64").is_uint64_type()
    assert not DataType.int64().is_uint64_type()


def test_lists_structs_and_maps_are_nested() -> None:
    nested = [*QUESTIONS["list"], *QUESTIONS["struct"], *QUESTIONS["map"]]
    assert all(member.is_nested_type() for member in nested)
    assert not DataType.string().is_nested_type()


@pytest.mark.parametrize(
    ("made", "category", "expected"),
    [
        (DataType.large_list(DataType.int8()), TypeCategory.LIST, True),
        (DataType.large_list(DataType.int8()), TypeCategory.LARGE_LIST, True),
        (DataType.list(DataType.int8()), TypeCategory.LARGE_LIST, False),
        (DataType.struct([("x", DataType.int8())]), TypeCategory.STRUCT, True),
        (DataType.map(DataType.string(), DataType.int8()), TypeCategory.MAP, True),
        (TENSOR, TypeCategory.TENSOR, True),
        (TENSOR, TypeCategory.LIST, False),
        (DataType.temporal("date32"), TypeCategory.TEMPORAL, True),
        (DataType(int), TypeCategory.LIST, False),
    ],
)
def test_a_type_is_of_its_category(made: DataType, category: TypeCategory, expected: bool) -> None:
    assert made.is_of(category) is expected
    assert made.is_of(category.value) is expected
    assert made.is_of("no such category") is False
