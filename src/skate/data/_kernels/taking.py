"""Take rows of a block by their positions: what sorting, partitioning and joining end in.

Polars gathers plain columns two to three times as fast as Arrow takes them; Arrow takes what Polars cannot hold.
So a block with any column in it can be sorted, partitioned and joined: only its keys have to be of plain types.
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
        rows: Positions; where one is null, the row is all null.
    """
    positions = rows if isinstance(rows, pl.Series) else pl.Series(rows)
    if not block.num_columns:
        return _without_columns(len(positions))
    gathered = _gathered(block, positions)
    columns = [
        frames.to_arrow(gathered[str(place)], column.type)
        if str(place) in gathered
        else _take_column(column, positions)
        for place, column in enumerate(block.columns)
    ]
    return pa.Table.from_arrays(columns, schema=block.schema)


def _gathered(block: pa.Table, positions: pl.Series) -> dict[str, pl.Series]:
    """Return what is taken of each plain column, by its place; all of them at once, which Polars does in parallel."""
    plain = {
        # A position in a column of many chunks has to be looked for: that takes seven times as long as a copy and this.
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
        return _chunked(column.take(indices))
    return _take_wide(column, indices)


def _chunked(column: Any) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _fits(column: pa.ChunkedArray, rows: int) -> bool:
    """Whether 32-bit offsets are enough for all of the column at once, and for what is taken from it."""
    if widened(column.type) == column.type:
        return True
    size = column.nbytes
    # A row may be taken many times (a join), and rows differ in size: be careful long before the limit.
    return bool(
        size <= frames.LARGEST_OFFSET
        and size * max(1, rows / max(1, len(column))) * 4 <= frames.LARGEST_OFFSET
    )


def _take_wide(column: pa.ChunkedArray, indices: pa.Array) -> pa.ChunkedArray:
    """Take with 64-bit offsets, then go back to the column's own type in pieces that fit it."""
    wide = column.cast(widened(column.type)).combine_chunks()
    if isinstance(wide, pa.ChunkedArray):
        wide = wide.chunk(0) if wide.num_chunks == 1 else pa.concat_arrays(wide.chunks)
    pieces: list[pa.Array] = []
    pending = [indices]
    while pending:
        some = pending.pop()
        taken = wide.take(some)
        if len(some) > 1 and taken.nbytes > frames.LARGEST_OFFSET:
            # Taken again, and not sliced: a slice has the offsets of the whole.
            half = len(some) // 2
            pending += [some.slice(half), some.slice(0, half)]
        else:
            pieces.append(taken.cast(column.type))
    return pa.chunked_array(pieces, column.type)


def widened(kind: pa.DataType) -> pa.DataType:
    """Return a type with 64-bit offsets wherever it has 32-bit ones; maps and unions stay as they are."""
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(widened(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(widened(kind.value_type)), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(widened(field.type)) for field in kind])
    return kind
