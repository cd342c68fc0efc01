"""Choices of columns, checked against what there is."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa


def chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of some columns.

    Raises:
        ValueError: There is no such column; names the closest one.
    """
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        close = difflib.get_close_matches(missing[0], schema.names, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {schema.names}"
        raise ValueError(f"no column {missing[0]!r} to read: {hint}")
    return pa.schema([schema.field(name) for name in columns])
