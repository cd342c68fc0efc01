"""Columns of tensors, under Ray's names.

Ray has three types for tensors of one shape; all of them create Arrow's own type here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa

from skate.data._block import columns
from skate.data._block.tensor_formats import ArrowTensorTypeV2, FixedShapeTensorFormat
from skate.data._block.tensors import VariableShapedTensorArray as ArrowVariableShapedTensorArray
from skate.data._block.tensors import VariableShapedTensorType as ArrowVariableShapedTensorType

if TYPE_CHECKING:
    from skate.data.extensions._pandas import TensorArray, TensorDtype

__all__ = [
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
    "FixedShapeTensorFormat",
    "FixedShapeTensorType",
    "TensorArray",
    "TensorDtype",
]

FixedShapeTensorType = pa.FixedShapeTensorType


ArrowTensorType = ArrowTensorTypeV2


class _ArrowArrayAlias(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pa.FixedShapeTensorArray)


class ArrowTensorArray(metaclass=_ArrowArrayAlias):
    """Create columns of tensors, as arrays of Arrow's own type.

    Example:
        >>> import numpy as np
        >>> len(ArrowTensorArray.from_numpy(np.zeros((4, 2, 2))))
        4
    """

    @staticmethod
    def from_numpy(arr: npt.NDArray[Any] | Sequence[Any], column_name: str | None = None) -> Any:
        """Create a column with one tensor per item of an array or of a list of arrays.

        A one-dimensional array gives a plain column; arrays of different shapes give variable-shaped tensors.
        """
        return columns.to_column(arr, column_name or "")


def __getattr__(name: str) -> Any:
    """Import the classes that need pandas on their first use: pandas takes longer to import than all of Arrow."""
    if name not in {"TensorArray", "TensorDtype"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from skate.data.extensions import _pandas

    return getattr(_pandas, name)
