"""Functions of lists of one length, and of tensors: `col("features").arr`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data._expressions.calls import KernelExpr

if TYPE_CHECKING:
    from skate.data._expressions.expr import Expr


class ArrayNamespace:
    """The functions of lists of one length, and of tensors.

    >>> from skate.data.expressions import col
    >>> col("features").arr.to_list()
    UDF(arr.to_list)
        └── arg[0]: COL('features')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def to_list(self) -> KernelExpr:
        """Make plain lists of them; a tensor becomes the list of its elements, row by row."""
        return KernelExpr(_as_lists, (self._expr,), method="arr.to_list")


def _as_lists(column: Any) -> Any:
    if isinstance(column.type, pa.FixedShapeTensorType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return column
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_field))
    raise pa.ArrowInvalid(f"to_list() can only be called on list-like columns, but got {column.type}")
