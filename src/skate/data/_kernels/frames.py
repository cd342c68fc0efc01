"""Conversion of columns to Polars and back, without a change of type and mostly without a copy.

Polars has fewer types than Arrow. Types that Polars lacks but Arrow stores as plain numbers (a timestamp with an
unusual time zone, a time in seconds) are converted as those numbers and restored afterwards. All other types
(lists, structs, tensors, Python objects) stay in Arrow: see `skate.data._kernels.taking`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

# String and binary arrays of Arrow's plain types have 32-bit offsets.
LARGEST_OFFSET = 2**31 - 1

_MIN_STRINGS_PER_THREAD = 250_000  # strings: about 2 ms of work

_SAME = {
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.null()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
}


def physical_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type with the same bits that Polars supports; None if there is none."""
    if kind in _SAME:
        return kind
    if pa.types.is_float16(kind):
        return pa.uint16()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return None


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of single values of a column."""
    if pa.types.is_dictionary(kind):
        return value_type(kind.value_type)
    return pa.float32() if pa.types.is_float16(kind) else kind


def to_series(column: pa.ChunkedArray) -> pl.Series:
    """Convert a column whose `physical_type` is not None to a Polars series, without copying numbers."""
    physical = physical_type(column.type)
    assert physical is not None, column.type
    if physical != column.type:
        column = pa.chunked_array([chunk.view(physical) for chunk in column.chunks], physical)
    series = pl.from_arrow(column, rechunk=False)
    assert isinstance(series, pl.Series)
    return series


def to_arrow(series: pl.Series, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert a series to an Arrow column of type `kind`, its type before `to_series`."""
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.nulls(len(series))])
    column = export_series(series)
    physical = physical_type(kind)
    if physical is None or physical == kind:
        return _cast(column, kind)
    chunks = [chunk.view(kind) for chunk in _cast(column, physical).chunks]
    return pa.chunked_array(chunks, kind)


def export_series(series: pl.Series) -> pa.ChunkedArray:
    """Convert a series to an Arrow column of the type that Polars chooses."""
    parts = series.get_chunks()
    if series.dtype in (pl.String, pl.Binary) and len(series) >= 2 * _MIN_STRINGS_PER_THREAD:
        # The string layout is converted, which is slow; Polars uses a single thread for it.
        size = max(_MIN_STRINGS_PER_THREAD, -(-len(series) // pl.thread_pool_size()))
        parts = [part[start : start + size] for part in parts for start in range(0, len(part), size)]
        with ThreadPoolExecutor(pl.thread_pool_size()) as threads:
            chunks = list(threads.map(_export, parts))
    else:
        chunks = [_export(part) for part in parts]
    return pa.chunked_array(chunks, chunks[0].type)


def _export(part: pl.Series) -> pa.Array:
    return part.to_arrow(compat_level=pl.CompatLevel.oldest())


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if kind in {pa.string(), pa.binary()} and column.type in {pa.large_string(), pa.large_binary()}:
        return pa.chunked_array(
            [piece for chunk in column.chunks for piece in _split_large_strings(chunk, kind)], kind
        )
    return column.cast(kind)


def _split_large_strings(chunk: Any, kind: pa.DataType) -> list[Any]:
    """Convert an array of large strings to arrays of plain strings, split so that 32-bit offsets suffice."""
    _, _, data = chunk.buffers()
    offsets = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    if not len(chunk) or offsets[-1] <= LARGEST_OFFSET:
        return [chunk.cast(kind)]
    pieces, start = [], 0
    while start < len(chunk):
        # Up to the first row that does not fit; a single value always fits, because it came from such an array.
        stop = int(np.searchsorted(offsets, offsets[start] + LARGEST_OFFSET, side="right")) - 1
        part = chunk.slice(start, stop - start)
        # Through NumPy: Arrow would share the bitmap of the whole array, which may start within a byte.
        valid = (
            pa.array(part.is_valid().to_numpy(zero_copy_only=False)).buffers()[1] if part.null_count else None
        )
        own = pa.py_buffer((offsets[start : stop + 1] - offsets[start]).astype(np.int32))
        text = data.slice(int(offsets[start]), int(offsets[stop] - offsets[start]))
        pieces.append(pa.Array.from_buffers(kind, len(part), [valid, own, text], part.null_count))
        start = stop
    return pieces
