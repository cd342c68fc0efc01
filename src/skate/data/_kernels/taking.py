"""Take rows of a block by their positions, the last step of sorting, partitioning and joining.

Polars gathers plain columns two to three times as fast as Arrow; Arrow takes columns that Polars cannot hold. So
blocks with columns of any type can be sorted, partitioned and joined: only the keys must be of plain types.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import polars as pl
import pyarrow as pa

from skate.data._kernels import frames


def take(block: pa.Table, rows: pl.Series | npt.NDArray[Any]) -> pa.Table:
    """Return the rows of a block at the given positions, in their order.

    Args:
        block: The table to take from.
        rows: Positions; a null position gives a row of nulls.
    """
    positions = rows if isinstance(rows, pl.Series) else pl.Series(rows)
    if not block.num_columns:
        return _without_columns(len(positions))
    gathered = _gather(block, positions)
    columns = [
        frames.to_arrow(gathered[str(place)], column.type)
        if str(place) in gathered
        else _take_column(column, positions)
        for place, column in enumerate(block.columns)
    ]
    return pa.Table.from_arrays(columns, schema=block.schema)


def _gather(block: pa.Table, positions: pl.Series) -> dict[str, pl.Series]:
    """Gather the plain columns, by position; Polars does so in parallel."""
    plain = {
        # Random access to a column of many chunks takes seven times as long as combining them first.
        str(place): frames.to_series(column).rechunk()
        for place, column in enumerate(block.columns)
        if frames.physical_type(column.type) is not None
    }
    if not plain:
        return {}
    return pl.DataFrame(plain).select(pl.all().gather(positions)).to_dict(as_series=True)


def _without_columns(rows: int) -> pa.Table:
    return pa.table({"rows": pa.nulls(rows)}).select([])


def _take_column(column: pa.ChunkedArray, positions: pl.Series) -> pa.ChunkedArray:
    indices = positions.to_arrow()
    if _fits(column, len(positions)):
        return _to_chunked(column.take(indices))
    return _take_wide(column, indices)


def _to_chunked(column: Any) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _fits(column: pa.ChunkedArray, rows: int) -> bool:
    """Return whether 32-bit offsets suffice for the column and for the taken rows."""
    if widen(column.type) == column.type:
        return True
    size = column.nbytes
    # Rows differ in size, and a join may take a row many times: leave a wide margin.
    return bool(
        size <= frames.LARGEST_OFFSET
        and size * max(1, rows / max(1, len(column))) * 4 <= frames.LARGEST_OFFSET
    )


def _take_wide(column: pa.ChunkedArray, indices: pa.Array) -> pa.ChunkedArray:
    """Take with 64-bit offsets, then convert back to the column's own type in pieces that fit."""
    wide = column.cast(widen(column.type)).combine_chunks()
    if isinstance(wide, pa.ChunkedArray):
        wide = wide.chunk(0) if wide.num_chunks == 1 else pa.concat_arrays(wide.chunks)
    pieces: list[pa.Array] = []
    pending = [indices]
    while pending:
        some = pending.pop()
        taken = wide.take(some)
        if len(some) > 1 and taken.nbytes > frames.LARGEST_OFFSET:
            # Take again instead of slicing: a slice keeps the offsets of the whole array.
            half = len(some) // 2
            pending += [some.slice(half), some.slice(0, half)]
        else:
            pieces.append(taken.cast(column.type))
    return pa.chunked_array(pieces, column.type)


def widen(kind: pa.DataType) -> pa.DataType:
    """Return a type with 64-bit offsets instead of 32-bit ones; maps and unions stay unchanged."""
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(widen(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(widen(kind.value_type)), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(widen(field.type)) for field in kind])
    return kind
