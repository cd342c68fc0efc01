"""Columns of tensors, under the names Ray has for them.

Ray has three types for tensors of one shape; here it is always Arrow's own, and their names build that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from skate.data._block import columns
from skate.data._block.tensors import VariableShapedTensorArray as ArrowVariableShapedTensorArray
from skate.data._block.tensors import VariableShapedTensorType as ArrowVariableShapedTensorType
from skate.data.extensions._pandas import TensorArray, TensorDtype

__all__ = [
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
    "FixedShapeTensorType",
    "TensorArray",
    "TensorDtype",
]

FixedShapeTensorType = pa.FixedShapeTensorType


class _NameOfArrowsType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pa.FixedShapeTensorType)


class ArrowTensorTypeV2(metaclass=_NameOfArrowsType):
    """Return the Arrow type of a column whose tensors have one shape.

    Args:
        shape: The shape of a tensor.
        dtype: The Arrow type of an element.

    Example:
        >>> isinstance(ArrowTensorTypeV2((2, 3), pa.int64()), ArrowTensorTypeV2)
        True
    """

    def __new__(cls, shape: Sequence[int], dtype: pa.DataType) -> Any:  # noqa: D102  # the class says it
        return pa.fixed_shape_tensor(dtype, list(shape))


ArrowTensorType = ArrowTensorTypeV2


class _NameOfArrowsArray(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pa.FixedShapeTensorArray)


class ArrowTensorArray(metaclass=_NameOfArrowsArray):
    """Make columns of tensors; what it makes is Arrow's own array of tensors.

    Example:
        >>> import numpy as np
        >>> len(ArrowTensorArray.from_numpy(np.zeros((4, 2, 2))))
        4
    """

    @staticmethod
    def from_numpy(arr: npt.NDArray[Any] | Sequence[Any], column_name: str | None = None) -> Any:
        """Return a column with a tensor for each item of an array, or of a list of arrays.

        One of a single dimension is a plain column; arrays of differing shapes are a column of such.
        """
        return columns.to_column(arr, column_name or "")
