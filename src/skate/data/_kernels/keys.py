"""Key columns: what may be sorted, grouped and joined by, and how Polars sees it."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from skate.data._kernels import frames


def check_columns(names: Sequence[str], columns: Sequence[str], purpose: str) -> None:
    """Raise if a column is missing.

    Args:
        names: The columns that there are.
        columns: The columns that there should be.
        purpose: What they are for, as in "sort by": a part of the message.

    Raises:
        ValueError: Says which column is missing, and which there are.
    """
    for name in columns:
        count = names.count(name)
        if count == 1:
            continue
        if count:
            raise ValueError(
                f"there are {count} columns called {name!r}: rename them before you {purpose} one"
            )
        existing = ", ".join(map(repr, names)) or "none at all"
        raise ValueError(f"there is no column {name!r} to {purpose}; the columns are {existing}")


def or_empty(block: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the block, or, if it has neither rows nor columns, one without rows that has these columns.

    A data set without rows may come as a block of nothing, of which nobody knows what columns it would have had.
    """
    if block.num_rows or block.num_columns:
        return block
    return pa.table({name: pa.nulls(0) for name in columns})


def check_keys(schema: pa.Schema, keys: Sequence[str], purpose: str) -> None:
    """Raise if a column is missing, or if its values cannot be compared.

    Raises:
        ValueError: Says which column is missing, and which there are.
        TypeError: Says which column is of what type.
    """
    check_columns(schema.names, keys, purpose)
    for name in keys:
        kind = schema.field(name).type
        if not is_comparable(kind):
            raise TypeError(
                f"cannot {purpose} {name!r}, a column of type {kind}: its values have no order; use a column of"
                " numbers, strings, bytes, dates or times, or add one with the part that matters"
            )


def key_frame(block: pa.Table, keys: Sequence[str], purpose: str) -> pl.DataFrame:
    """Return the key columns as a frame whose columns are named "0", "1", … by their place among the keys.

    Equal keys are equal there, whatever the layout: dictionaries are decoded, and Polars takes NaN as equal to NaN
    and 0.0 as equal to -0.0. The order of values is kept, too.

    Raises:
        ValueError: A key column is missing.
        TypeError: A key column is of a type whose values have no order, such as lists or tensors.
    """
    check_keys(block.schema, keys, purpose)
    series = [comparable(block.column(name)).alias(str(i)) for i, name in enumerate(keys)]
    return pl.DataFrame(series)


def is_comparable(kind: pa.DataType) -> bool:
    """Whether Polars can tell which of two values of a type is smaller."""
    if pa.types.is_dictionary(kind):
        return is_comparable(kind.value_type)
    return (
        frames.physical_type(kind) is not None
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_decimal(kind)
    )


def comparable(column: pa.ChunkedArray) -> pl.Series:
    """Return a series that compares as a column does whose type `is_comparable`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return comparable(column.cast(kind.value_type))
    if pa.types.is_float16(kind):
        return frames.to_series(column.cast(pa.float32()))
    if pa.types.is_decimal(kind):
        decimals = pl.from_arrow(column.cast(pa.decimal128(38, kind.scale)), rechunk=False)
        assert isinstance(decimals, pl.Series)
        return decimals
    if pa.types.is_fixed_size_binary(kind):
        return frames.to_series(column.cast(pa.binary()))
    return frames.to_series(column)
