"""Conversions between blocks and rows, the dicts that `map`, `filter`, `flat_map` and `iter_rows` use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import pyarrow as pa

from skate.data._block import objects, tables, values
from skate.data._block.columns import from_values
from skate.data._block.errors import BatchTypeError

# Rows are converted in portions, so that the first is available soon and a block never exists entirely as rows.
_PORTION = 2048


def to_rows(block: pa.Table) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a block as dicts of Python values; tensors are ndarrays.

    Example:
        >>> list(to_rows(pa.table({"id": [1, 2], "name": ["a", None]})))
        [{'id': 1, 'name': 'a'}, {'id': 2, 'name': None}]
    """
    starts = range(0, block.num_rows, _PORTION)
    return chain.from_iterable(
        to_row_list(tables.slice_rows(block, start, start + _PORTION)) for start in starts
    )


def to_row_list(block: pa.Table) -> list[dict[str, Any]]:
    """Return all rows of a block."""
    names = block.column_names
    if not names:
        return [{} for _ in range(block.num_rows)]
    return values.to_dicts(names, [values.to_list(column) for column in block.columns])


def to_block(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Convert rows to a block; a key that a row lacks becomes null.

    Columns are in the order in which the rows first name them.

    Raises:
        BatchTypeError: A row is not a mapping.
        MixedTypesError: The values of a column have no common type.

    Example:
        >>> to_block([{"id": 1}, {"id": 2, "name": "b"}]).to_pydict()
        {'id': [1, 2], 'name': [None, 'b']}
    """
    if not rows:
        return pa.table({})
    columns = _columns(rows)
    if not columns:
        return tables.empty_rows(len(rows))
    arrays = [from_values(column, name) for name, column in columns.items()]
    return pa.Table.from_arrays(arrays, names=list(columns))


def normalize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as if converted to a block and back, for the next function of a fused step.

    Functions see the same values whether or not a block is created between them: a tuple becomes a list, a tensor an
    ndarray, a NumPy scalar a Python number. Columns of plain Python values, which do not change, are skipped.

    Raises:
        BatchTypeError: A row is not a mapping.
        MixedTypesError: The values of a column have no common type.

    Example:
        >>> normalize([{"id": 1, "pair": (1, 2)}])
        [{'id': 1, 'pair': [1, 2]}]
    """
    if not rows:
        return rows
    first = rows[0]
    if not all(type(row) is dict for row in rows) or sum(map(len, rows)) != len(first) * len(rows):
        return to_row_list(to_block(rows))
    changed = {}
    try:
        for name in first:
            if not _is_plain({type(row[name]) for row in rows}):
                changed[name] = _normalize_column([row[name] for row in rows], _check_name(name))
    except KeyError:  # the rows have different keys
        return to_row_list(to_block(rows))
    if not changed:
        return rows
    # The function may keep the dicts that it returned, so they must not change.
    return [
        {**row, **dict(zip(changed, new, strict=True))}
        for row, *new in zip(rows, *changed.values(), strict=True)
    ]


_PLAIN = frozenset({int, float, str, bytes, bool})
_NONE = type(None)


def _is_plain(types: set[type]) -> bool:
    """Return whether values of these types survive a conversion to a column and back unchanged."""
    types.discard(_NONE)
    return len(types) <= 1 and types <= _PLAIN


def _normalize_column(column: list[Any], name: str) -> list[Any]:
    return values.to_list(from_values(column, name))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    first = rows[0]
    # Fast path: all rows have the same keys as the first one.
    if isinstance(first, Mapping):
        try:
            columns = {_check_name(name): [row[name] for row in rows] for name in first}
            if sum(map(len, rows)) == len(first) * len(rows):
                return columns
        except (KeyError, TypeError, IndexError):
            pass  # a key is missing, or a row is not a mapping: handled below
    names: dict[str, None] = {}
    for index, row in enumerate(cast(Sequence[Any], rows)):
        if not isinstance(row, Mapping):
            allowed = "a dict of column names and values, such as {'id': 1}"
            raise BatchTypeError(f"row {index}", type(row).__qualname__, allowed)
        names.update(dict.fromkeys(row))
    return {_check_name(name): [row.get(name) for row in rows] for name in names}


def _check_name(name: object) -> str:
    if not isinstance(name, str):
        raise BatchTypeError(f"column name {name!r}", type(name).__qualname__, "a string")
    return name


def to_block_with_objects(found: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Convert rows to a block; a column of mixed types becomes a column of Python objects."""
    try:
        return to_block(found)
    except (ValueError, TypeError, pa.ArrowException):
        names = dict.fromkeys(name for row in found for name in row)
        return pa.table({name: _column_or_objects([row.get(name) for row in found], name) for name in names})


def _column_or_objects(values: list[Any], name: str) -> pa.Array:
    try:
        return from_values(values, name)
    except (ValueError, TypeError, pa.ArrowException):
        return objects.from_objects(values)
