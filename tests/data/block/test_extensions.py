from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from skate.data._block import batches, objects, tensors
from skate.data.extensions import (
    ArrowPythonObjectArray,
    ArrowPythonObjectType,
    ArrowTensorArray,
    ArrowTensorType,
    ArrowTensorTypeV2,
    ArrowVariableShapedTensorArray,
    ArrowVariableShapedTensorType,
    FixedShapeTensorType,
    TensorArray,
    TensorDtype,
)


def test_rays_names_for_tensors_of_one_shape_stand_for_arrows_type() -> None:
    column = ArrowTensorArray.from_numpy(np.zeros((4, 2, 3)))
    assert column.type == ArrowTensorTypeV2((2, 3), pa.float64()) == ArrowTensorType((2, 3), pa.float64())
    assert isinstance(column.type, ArrowTensorTypeV2)
    assert isinstance(column.type, FixedShapeTensorType)
    assert isinstance(column, ArrowTensorArray)
    assert not isinstance(pa.int64(), ArrowTensorType)


def test_arrays_of_differing_shapes_make_a_column_of_any_shape() -> None:
    column = ArrowTensorArray.from_numpy([np.zeros(2), np.zeros(3)])
    assert column.type == ArrowVariableShapedTensorType(pa.float64(), 1)
    same = ArrowVariableShapedTensorArray.from_numpy([np.zeros(2), np.zeros(2)])
    assert same.type == column.type
    assert [item.shape for item in same.to_numpy()] == [(2,), (2,)]


@pytest.mark.parametrize("arrays", [object(), [], np.array([])])
def test_a_column_of_any_shape_needs_a_tensor(arrays: object) -> None:
    with pytest.raises(ValueError, match="at least one ndarray"):
        ArrowVariableShapedTensorArray.from_numpy(arrays)  # type: ignore[arg-type]  # the mistake that is tested


def test_objects_are_made_under_rays_names() -> None:
    column = ArrowPythonObjectArray.from_objects([1j, None])
    assert column.type == ArrowPythonObjectType() == objects.PythonObjectType()
    assert column.to_numpy().tolist() == [1j, None]


def test_tensors_are_a_column_of_a_frame() -> None:
    array = np.arange(12).reshape(3, 2, 2)
    frame = pd.DataFrame({"x": TensorArray(array), "y": [1, 2, 3]})
    assert frame["x"].dtype == TensorDtype((2, 2), "int64")
    assert frame["x"].iloc[1].tolist() == [[4, 5], [6, 7]]
    np.testing.assert_array_equal(frame["x"].to_numpy(), array)
    assert frame[frame["y"] > 1]["x"].iloc[0].tolist() == [[4, 5], [6, 7]]
    assert pd.concat([frame, frame])["x"].dtype == frame["x"].dtype
    assert frame.iloc[::-1]["x"].iloc[0].tolist() == [[8, 9], [10, 11]]
    assert "x" in repr(frame)


def test_a_frame_of_tensors_becomes_a_block() -> None:
    array = np.arange(12).reshape(3, 2, 2)
    block = batches.to_block(pd.DataFrame({"x": TensorArray(array)}))
    assert block["x"].type == pa.fixed_shape_tensor(pa.int64(), [2, 2])
    np.testing.assert_array_equal(batches.to_numpy(block)["x"], array)
    assert pa.Table.from_pandas(pd.DataFrame({"x": TensorArray(array)}))["x"].type == block["x"].type
    assert batches.to_block({"x": TensorArray(array)}).equals(block)


def test_frames_hold_tensors_of_differing_shapes_and_missing_ones() -> None:
    series = pd.Series(TensorArray([np.zeros(2), None, np.zeros(3)]))
    assert series.isna().tolist() == [False, True, False]
    assert series.dtype == TensorDtype((None,), "float64")
    assert series.reindex([2, 5]).isna().tolist() == [False, True]
    block = batches.to_block(pd.DataFrame({"x": series}))
    assert isinstance(block["x"].type, tensors.VariableShapedTensorType)


def test_a_type_is_made_of_its_name() -> None:
    for dtype in (TensorDtype((2, 3), "int64"), TensorDtype((None,), "float32"), TensorDtype((), "bool")):
        assert pd.api.types.pandas_dtype(dtype.name) == dtype
    with pytest.raises(TypeError, match="not the name of a TensorDtype"):
        TensorDtype.construct_from_string("int64")


@pytest.mark.parametrize("values", [object(), np.array([object()]), [object()]])
def test_what_holds_no_tensors_is_refused(values: object) -> None:
    with pytest.raises(TypeError, match="TensorArray needs"):
        TensorArray(values)


def test_tensors_of_a_frame_are_compared_and_set() -> None:
    array = TensorArray([np.zeros(2), np.ones(2)])
    assert (array == TensorArray([np.zeros(2), np.zeros(2)])).tolist() == [True, False]
    array[0] = np.full(2, 5)
    array[[1]] = [np.full(2, 6)]
    assert [item.tolist() for item in array] == [[5, 5], [6, 6]]
    assert array.take([1, -1], allow_fill=True, fill_value=np.zeros(2))[1].tolist() == [0, 0]
    assert array.nbytes == 32
