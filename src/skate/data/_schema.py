"""The schema of a dataset, as programs see it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from skate.data._block.tensors import VariableShapedTensorType


class Schema:
    """The names and types of a dataset's columns.

    Args:
        base_schema: The Arrow schema.
        data_context: Accepted as in Ray; a schema does not depend on it.

    Example:
        >>> schema = Schema(pa.schema({"id": pa.int64(), "name": pa.string()}))
        >>> schema.names
        ['id', 'name']
        >>> schema
        Column  Type
        ------  ----
        id      int64
        name    string
    """

    def __init__(self, base_schema: pa.Schema, *, data_context: Any = None) -> None:
        if not isinstance(base_schema, pa.Schema):
            raise TypeError(f"Schema needs a pyarrow.Schema, got {type(base_schema).__qualname__}")
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.base_schema.names)

    @property
    def types(self) -> list[pa.DataType]:
        """The Arrow types of the columns, in order."""
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        # Metadata describes the origin of a file, not a column.
        return bool(self.base_schema.equals(other.base_schema, check_metadata=False))

    def __hash__(self) -> int:
        return hash((tuple(self.names), tuple(map(str, self.types))))

    def __repr__(self) -> str:
        lines = [("Column", "Type"), ("------", "----")]
        lines += [(name, type_text(type_)) for name, type_ in zip(self.names, self.types, strict=True)]
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {type_}" for name, type_ in lines)


def type_text(type_: pa.DataType) -> str:
    """Return the type of a column as text; tensors have the names that Ray uses."""
    if isinstance(type_, pa.FixedShapeTensorType):
        return f"ArrowTensorTypeV2(shape={tuple(type_.shape)}, dtype={type_.value_type})"
    if isinstance(type_, VariableShapedTensorType):
        return f"ArrowVariableShapedTensorType(ndim={type_.ndim}, dtype={type_.value_type})"
    return str(type_)
