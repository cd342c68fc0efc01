"""Key columns for sorting, grouping and joining, and their representation in Polars."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from skate.data._kernels import frames


def check_columns(names: Sequence[str], columns: Sequence[str], purpose: str) -> None:
    """Check that columns exist.

    Args:
        names: The existing columns.
        columns: The required columns.
        purpose: Their purpose, such as "sort by", for the message.

    Raises:
        ValueError: A column is missing; the message lists the existing ones.
    """
    for name in columns:
        count = names.count(name)
        if count == 1:
            continue
        if count:
            raise ValueError(f"{count} columns are named {name!r}: rename them before you {purpose} one")
        existing = ", ".join(map(repr, names)) or "none at all"
        raise ValueError(f"there is no column {name!r} to {purpose}; the columns are {existing}")


def or_empty(block: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the block, or, if it has neither rows nor columns, an empty one with these columns.

    An empty dataset may consist of a block whose columns are unknown.
    """
    if block.num_rows or block.num_columns:
        return block
    return pa.table({name: pa.nulls(0) for name in columns})


def check_keys(schema: pa.Schema, keys: Sequence[str], purpose: str) -> None:
    """Check that columns exist and that their values can be compared.

    Raises:
        ValueError: A column is missing; the message lists the existing ones.
        TypeError: The values of a column cannot be compared.
    """
    check_columns(schema.names, keys, purpose)
    for name in keys:
        kind = schema.field(name).type
        if not is_comparable(kind):
            raise TypeError(
                f"cannot {purpose} {name!r}, a column of type {kind}: its values have no order; use a column of"
                " numbers, strings, bytes, dates or times, or derive such a column from it"
            )


def key_frame(block: pa.Table, keys: Sequence[str], purpose: str) -> pl.DataFrame:
    """Return the key columns as a frame with columns named "0", "1", … by their position.

    Equal keys are equal there regardless of layout: dictionaries are decoded, and Polars treats NaN as equal to NaN and
    0.0 as equal to -0.0. The order of values is preserved.

    Raises:
        ValueError: A key column is missing.
        TypeError: The values of a key column, such as lists or tensors, have no order.
    """
    check_keys(block.schema, keys, purpose)
    series = [comparable(block.column(name)).alias(str(i)) for i, name in enumerate(keys)]
    return pl.DataFrame(series)


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether Polars can order values of a type."""
    if pa.types.is_dictionary(kind):
        return is_comparable(kind.value_type)
    return (
        frames.physical_type(kind) is not None
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_decimal(kind)
    )


def comparable(column: pa.ChunkedArray) -> pl.Series:
    """Return a series that orders like a column whose type `is_comparable`."""
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
