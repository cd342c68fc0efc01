"""The types that Ray has for columns of tensors of one shape."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


class _ArrowTypeAlias(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, pa.FixedShapeTensorType)


class ArrowTensorTypeV2(metaclass=_ArrowTypeAlias):
    """Return the Arrow type of a column of tensors of one shape.

    Args:
        shape: The shape of a tensor.
        dtype: The Arrow type of an element.

    Example:
        >>> isinstance(ArrowTensorTypeV2((2, 3), pa.int64()), ArrowTensorTypeV2)
        True
    """

    def __new__(cls, shape: Sequence[int], dtype: pa.DataType) -> Any:
        return pa.fixed_shape_tensor(dtype, list(shape))


class FixedShapeTensorFormat(enum.Enum):
    """The types that Ray has for tensors of one shape. `DataContext` accepts them; the columns are the same with each.

    Example:
        >>> FixedShapeTensorFormat.V2.to_type()((2, 3), pa.int64()).shape
        [2, 3]
    """

    V1 = "v1"
    V2 = "v2"
    ARROW_NATIVE = "native"

    def to_type(self) -> type:
        """Return the class of the type."""
        native = self is FixedShapeTensorFormat.ARROW_NATIVE
        return pa.FixedShapeTensorType if native else ArrowTensorTypeV2
