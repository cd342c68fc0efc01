"""One schema for a dataset, whatever its blocks look like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from skate.data._block.casts import cast
from skate.data._block.errors import DuplicateColumnsError
from skate.data._block.types import common_fields


def check_names(names: Sequence[str]) -> None:
    """Refuse names that occur more than once.

    Raises:
        DuplicateColumnsError: There are some; names them.
    """
    if len(set(names)) < len(names):
        raise DuplicateColumnsError(name for name, count in Counter(names).items() if count > 1)


def unify(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the schema that holds the rows of all these.

    A column that only some of them have is nullable in the result; null gives way to any type; integers,
    floats, decimals, strings and times become the wider one; structs and lists are unified inside; tensors of
    differing shapes become tensors of any shape. Columns come in the order in which they are first seen.

    Raises:
        SchemaConflictError: A column's types have none in common; names the column and both.

    Example:
        >>> unify([pa.schema({"x": pa.null()}), pa.schema({"x": pa.int32(), "y": pa.string()})])
        x: int32
        y: string
    """
    distinct: list[pa.Schema] = []
    for schema in schemas:  # a dataset has thousands of blocks, and seldom more than a few schemas
        if not any(schema is known or schema.equals(known) for known in distinct):
            distinct.append(schema)
    if not distinct:
        return pa.schema([])
    if len(distinct) == 1:
        return distinct[0]
    return pa.schema(common_fields([list(schema) for schema in distinct]), metadata=distinct[0].metadata)


def conform(block: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a block with exactly this schema; columns that fit already are not copied.

    A column that the block lacks becomes null.

    Raises:
        ValueError: The block has a column that the schema lacks, or two of one name.
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
