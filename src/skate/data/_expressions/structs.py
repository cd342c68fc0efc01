"""Functions of records: `col("user").struct`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from skate.data._arguments import checked_methods
from skate.data._expressions.calls import PyArrowComputeUDFExpr, compute

if TYPE_CHECKING:
    from skate.data._expressions.expr import Expr


@checked_methods("index")
class StructNamespace:
    """The functions of records.

    >>> from skate.data.expressions import col
    >>> col("user").struct["name"]
    UDF(struct.field)
        └── arg[0]: COL('user')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def __getitem__(self, key: str | int) -> PyArrowComputeUDFExpr:
        """Take a field by its name or position."""
        if isinstance(key, str):
            return self.field(key)
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"Struct indices must be strings or integers, got {key!r}")
        return self.field_by_index(int(key))

    def field(self, field_name: str) -> PyArrowComputeUDFExpr:
        """Take a field by its name."""
        # A list is a path; a plain string would be parsed as one, and a name may hold a dot.
        return compute("struct.field", pc.struct_field, self._expr, positional=([field_name],))

    def field_by_index(self, index: int) -> PyArrowComputeUDFExpr:
        """Take a field by its position, counted from zero."""
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"Struct field index must be an integer, got {index!r}")
        if index < 0:
            raise ValueError(f"Struct field index must be non-negative, got {index}")
        return compute("struct.field_by_index", pc.struct_field, self._expr, positional=([int(index)],))
