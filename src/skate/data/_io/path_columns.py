"""Columns derived from the path of a file: partition values, and the path itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data.datasource.partitioning import PathPartitionParser

PATH = "path"


def add_partition_columns(
    block: pa.Table, values: dict[str, Any], parser: PathPartitionParser | None
) -> pa.Table:
    """Add columns for the partition values of a block.

    If the file already holds a column, its values must match the path; nulls are filled.

    Raises:
        ValueError: A column of the file contradicts its path.
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
            raise ValueError(f"the path has {key}={value}, but the column {key!r} holds other values")
        block = block.set_column(index, block.field(index), pc.fill_null(column, expected))
    return block


def add_path_column(block: pa.Table, path: str) -> pa.Table:
    """Add the column `path`."""
    if PATH in block.column_names:
        block = block.drop_columns([PATH])
    return block.append_column(pa.field(PATH, pa.string()), repeat_value(path, block.num_rows, pa.string()))


def repeat_value(value: Any, length: int, type_: pa.DataType) -> pa.Array:
    """Return an array that repeats one value."""
    return pa.repeat(pa.scalar(value, type_), length)
