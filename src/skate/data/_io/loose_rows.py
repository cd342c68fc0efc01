"""Rows whose values fit no Arrow type: kept as Python objects, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from skate.data._block import columns, objects, rows


def to_block(found: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a block; a column of mixed types becomes one of Python objects, instead of an error."""
    try:
        return rows.to_block(found)
    except (ValueError, TypeError, pa.ArrowException):
        names = dict.fromkeys(name for row in found for name in row)
        return pa.table({name: _column([row.get(name) for row in found], name) for name in names})


def _column(values: list[Any], name: str) -> pa.Array:
    try:
        return columns.from_values(values, name)
    except (ValueError, TypeError, pa.ArrowException):
        return objects.from_objects(values)
