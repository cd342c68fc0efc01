"""Columns that a path adds to the rows of its file: partition values, and the path itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data.datasource.partitioning import PathPartitionParser

PATH = "path"


def add_partition_columns(
    block: pa.Table, values: dict[str, Any], parser: PathPartitionParser | None
) -> pa.Table:
    """Return a block with columns for partition values.

    A column that the file holds itself stays, if it says the same as the path; what is null in it is filled.

    Raises:
        ValueError: The file says something else than its path.
    """
    for key, value in values.items():
        assert parser is not None
        if key not in block.column_names:
            block = block.append_column(
                pa.field(key, parser.arrow_type(key)),
                repeat_value(value, block.num_rows, parser.arrow_type(key)),
            )
            continue
        index = block.column_names.index(key)
        column = block.column(index)
        try:
            expected = pa.scalar(value).cast(column.type)
            same = pc.all(pc.equal(column, expected), skip_nulls=True, min_count=0).as_py()
        except pa.ArrowInvalid:
            same = False
        if not same:
            raise ValueError(f"its path says {key}={value}, but its column {key!r} holds other values")
        block = block.set_column(index, block.field(index), pc.fill_null(column, expected))
    return block


def add_path_column(block: pa.Table, path: str) -> pa.Table:
    """Return a block with the column `path`."""
    if PATH in block.column_names:
        block = block.drop_columns([PATH])
    return block.append_column(pa.field(PATH, pa.string()), repeat_value(path, block.num_rows, pa.string()))


def repeat_value(value: Any, length: int, type_: pa.DataType) -> pa.Array:
    """Return a column that holds one value."""
    return pa.repeat(pa.scalar(value, type_), length)
