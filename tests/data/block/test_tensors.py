from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skate.data._block import tensors, values
from skate.data._block.tensors import VariableShapedTensorType

DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "datetime64[us]", "<U5"]


def some(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if dtype == "bool":
        return numbers % 3 == 0
    return numbers.astype("int64").astype(dtype) if dtype.startswith("datetime") else numbers.astype(dtype)


def through_ipc(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def through_parquet(table: pa.Table) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return pq.read_table(io.BytesIO(sink.getvalue()))


def through_pickle(table: pa.Table) -> pa.Table:
    return pickle.loads(pickle.dumps(table, protocol=5))


TRANSPORTS = [through_ipc, through_parquet, through_pickle]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 2), (4, 2, 3), (4, 1, 1, 5), (0, 2)])
def test_tensors_of_one_shape_come_back_as_they_were(shape: tuple[int, ...], dtype: str) -> None:
    array = some(shape, dtype)
    column = tensors.from_ndarray(array)
    assert isinstance(column.type, pa.FixedShapeTensorType)
    back = tensors.to_ndarray(column)
    np.testing.assert_array_equal(back, array)
    assert back.dtype.kind == array.dtype.kind
    assert back.shape == array.shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_slice_of_tensors_holds_its_rows_alone(dtype: str) -> None:
    array = some((10, 2, 3), dtype)
    np.testing.assert_array_equal(tensors.to_ndarray(tensors.from_ndarray(array).slice(3, 4)), array[3:7])


def test_tensors_with_an_empty_dimension_keep_their_number() -> None:
    assert tensors.to_ndarray(tensors.from_ndarray(np.zeros((3, 0, 2)))).shape == (3, 0, 2)


def test_numbers_are_not_copied_on_the_way_in_or_out() -> None:
    array = np.arange(12.0).reshape(3, 4)
    back = tensors.to_ndarray(tensors.from_ndarray(array))
    assert np.shares_memory(array, back)


def test_an_array_in_another_order_is_laid_out_in_rows() -> None:
    array = np.asfortranarray(np.arange(12).reshape(3, 2, 2))
    np.testing.assert_array_equal(tensors.to_ndarray(tensors.from_ndarray(array)), array)


def test_missing_tensors_are_none_among_the_others() -> None:
    column = tensors.from_ndarrays([np.array([1, 2]), None, np.array([3, 4])])
    assert isinstance(column.type, pa.FixedShapeTensorType)
    back = tensors.to_ndarray(column)
    assert back.dtype == object
    assert back[1] is None
    np.testing.assert_array_equal(back[2], [3, 4])


def test_scalars_in_arrays_are_a_plain_column() -> None:
    assert tensors.from_ndarrays([np.array(1), np.array(2)]).equals(pa.array([1, 2]))
    assert tensors.from_ndarrays([np.array(1), None]).equals(pa.array([1, None]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_differing_shapes_come_back_as_they_were(dtype: str) -> None:
    arrays = [some((2, 3), dtype), some((1, 4), dtype), some((0, 2), dtype)]
    column = tensors.from_ndarrays(arrays)
    assert column.type.shape == (None, None)
    for back, array in zip(tensors.to_ndarray(column), arrays, strict=True):
        np.testing.assert_array_equal(back, array)
        assert back.dtype.kind == array.dtype.kind


def test_tensors_may_differ_in_their_number_of_dimensions() -> None:
    column = tensors.from_ndarrays([np.array([1]), np.array([[2, 3]]), None, np.array(4)])
    assert column.type.ndim is None
    assert [None if item is None else item.tolist() for item in tensors.to_ndarray(column)] == [
        [1],
        [[2, 3]],
        None,
        4,
    ]


def test_integers_and_floats_in_ragged_tensors_become_floats() -> None:
    column = tensors.from_ndarrays([np.array([1, 2]), np.array([1.5])])
    assert column.type.value_type == pa.float64()


def test_a_slice_of_ragged_tensors_holds_its_rows_alone() -> None:
    arrays = [np.arange(i) for i in range(10)]
    back = tensors.to_ndarray(tensors.from_ndarrays(arrays).slice(4, 3))
    assert [item.tolist() for item in back] == [array.tolist() for array in arrays[4:7]]


def test_one_ragged_tensor_of_a_column_is_an_ndarray() -> None:
    column = tensors.from_ndarrays([np.ones((1, 2)), None, np.ones((2, 2))])
    assert column[2].as_py().shape == (2, 2)
    assert column[1].as_py() is None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tensor_columns_survive_transport(transport: Any) -> None:
    table = pa.table(
        {
            "fixed": tensors.from_ndarray(np.arange(12, dtype=np.float32).reshape(3, 2, 2)),
            "ragged": tensors.from_ndarrays([np.ones(2), None, np.ones(3)]),
            "any": tensors.from_ndarrays([np.ones(2), np.ones((1, 1)), np.ones(1)]),
        }
    )
    back = transport(table)
    assert back.schema.equals(table.schema)
    assert back.equals(table)
    assert isinstance(back.schema.field("ragged").type, VariableShapedTensorType)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("length", [0, 3])
def test_columns_without_any_tensor_survive_transport(transport: Any, length: int) -> None:
    fixed, ragged = pa.fixed_shape_tensor(pa.int32(), [2]), VariableShapedTensorType(pa.int32(), 2)
    table = pa.table({"fixed": pa.nulls(length, fixed), "ragged": pa.nulls(length, ragged)})
    back = transport(table)
    assert back.schema.equals(table.schema)
    assert [list(values.to_ndarray(column)) for column in back.columns] == [[None] * length] * 2


def test_a_permuted_tensor_has_its_logical_shape() -> None:
    type_ = pa.fixed_shape_tensor(pa.int64(), [2, 3], permutation=[1, 0])
    storage = pa.array([list(range(6))], pa.list_(pa.int64(), 6))
    back = tensors.to_ndarray(pa.ExtensionArray.from_storage(type_, storage))
    np.testing.assert_array_equal(back, np.arange(6).reshape(1, 2, 3).transpose(0, 2, 1))


@pytest.mark.parametrize(("unit", "arrow"), [("D", "s"), ("h", "s"), ("ms", "ms"), ("ps", "ns")])
def test_times_take_the_nearest_unit_that_arrow_has(unit: str, arrow: str) -> None:
    assert tensors.flat_values(np.ones(2, f"datetime64[{unit}]")).type == pa.timestamp(arrow)
    assert tensors.flat_values(np.ones(2, f"timedelta64[{unit}]")).type == pa.duration(arrow)


def test_numbers_of_the_other_byte_order_are_turned_round() -> None:
    assert tensors.flat_values(np.arange(3, dtype=">i4")).equals(pa.array([0, 1, 2], pa.int32()))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("shape", [(0,), (0, 0), (3, 0)])
def test_tensors_without_elements_survive_transport(transport: Any, shape: tuple[int, ...]) -> None:
    back = transport(pa.table({"x": tensors.from_ndarrays([np.zeros(shape)] * 2)}))
    back.validate(full=True)
    assert [array.shape for array in values.to_ndarray(back["x"])] == [shape] * 2
