"""Unify the schemas of blocks into one for the dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from skate.data._block.casts import cast
from skate.data._block.errors import DuplicateColumnsError
from skate.data._block.types import common_fields


def check_names(names: Sequence[str]) -> None:
    """Raise an error for names that occur more than once.

    Raises:
        DuplicateColumnsError: Names occur more than once; the message lists them.
    """
    if len(set(names)) < len(names):
        raise DuplicateColumnsError(name for name, count in Counter(names).items() if count > 1)


def unify(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the schema that represents the rows of all given schemas.

    A column that only some schemas have is nullable in the result; null is compatible with any type; integers,
    floats, decimals, strings and times are widened; structs and lists are unified recursively; tensors of different
    shapes become variable-shaped tensors. Columns are in the order of their first occurrence.

    Raises:
        SchemaConflictError: The types of a column have no common type; the message names the column and the types.

    Example:
        >>> unify([pa.schema({"x": pa.null()}), pa.schema({"x": pa.int32(), "y": pa.string()})])
        x: int32
        y: string
    """
    distinct: list[pa.Schema] = []
    for schema in schemas:  # thousands of blocks usually share a few schemas
        if not any(schema is known or schema.equals(known) for known in distinct):
            distinct.append(schema)
    if not distinct:
        return pa.schema([])
    if len(distinct) == 1:
        return distinct[0]
    return pa.schema(common_fields([list(schema) for schema in distinct]), metadata=distinct[0].metadata)


def conform(block: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a block to exactly this schema; columns that already match are not copied.

    Columns that the block lacks become null.

    Raises:
        ValueError: The block has a column that the schema lacks, or two columns of the same name.
        ColumnCastError: A value does not fit its column's type.

    Example:
        >>> conform(pa.table({"x": [1]}), pa.schema({"x": pa.float64(), "y": pa.string()})).to_pylist()
        [{'x': 1.0, 'y': None}]
    """
    if block.schema.equals(schema):
        return block
    check_names(block.column_names)
    unknown = [name for name in block.column_names if schema.get_field_index(name) < 0]
    if unknown:
        raise ValueError(f"the block has columns {unknown} that the schema {schema.names} lacks")
    columns = []
    for field in schema:
        index = block.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(block.num_rows, field.type))
        else:
            columns.append(cast(block.column(index), field.type, field.name))
    if not columns:
        return block
    return pa.Table.from_arrays(columns, schema=schema)
