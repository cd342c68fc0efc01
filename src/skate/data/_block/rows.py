"""Rows, as dicts: what `map`, `filter`, `flat_map` and `iter_rows` see of a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import pyarrow as pa

from skate.data._block import tables, values
from skate.data._block.columns import from_values
from skate.data._block.errors import BatchTypeError

# Rows are made in portions: the first comes soon, and a block never exists as rows in full.
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
    """Return all rows of a block at once."""
    names = block.column_names
    if not names:
        return [{} for _ in range(block.num_rows)]
    return values.to_dicts(names, [values.to_list(column) for column in block.columns])


def to_block(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a block; a row without a key that others have gets a null there.

    The columns come in the order in which the rows first name them.

    Raises:
        BatchTypeError: A row is no mapping.
        MixedTypesError: The values of a column share no type.

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


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    first = rows[0]
    # Almost always all rows have the same keys. Then each has all of the first one's, and no row has more.
    if isinstance(first, Mapping):
        try:
            columns = {_checked_name(name): [row[name] for row in rows] for name in first}
            if sum(map(len, rows)) == len(first) * len(rows):
                return columns
        except (KeyError, TypeError, IndexError):
            pass  # a key is missing, or a row is no mapping: that is looked into below
    names: dict[str, None] = {}
    for index, row in enumerate(cast(Sequence[Any], rows)):
        if not isinstance(row, Mapping):
            allowed = "a dict of column names and values, such as {'id': 1}"
            raise BatchTypeError(f"row {index}", type(row).__qualname__, allowed)
        names.update(dict.fromkeys(row))
    return {_checked_name(name): [row.get(name) for row in rows] for name in names}


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise BatchTypeError(f"column name {name!r}", type(name).__qualname__, "a string")
    return name
