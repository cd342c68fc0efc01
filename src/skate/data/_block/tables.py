"""Blocks as a whole: their size, their parts, and several as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_

from skate.data._block import schemas
from skate.data._block.kinds import is_text

# Offsets of strings and lists have 32 bits.
_LARGEST_OFFSET = 2**31 - 1

# A slice that refers to this little more than it shows is not worth a copy.
_SLACK = 1.1
_SLACK_BYTES = 64

# Chunks smaller than this cost more in every later step than one copy of them.
_SMALL_CHUNK = 256 * 1024


def nbytes(block: pa.Table) -> int:
    """Return the size of what a block shows: for a slice, that of its rows alone."""
    return int(block.nbytes)


def concat(blocks: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several blocks as one, with a schema that holds them all; nothing is copied.

    Blocks without a row and without a column are left out.

    Raises:
        SchemaConflictError: A column's types in two blocks have none in common.
    """
    if len(blocks) == 1:
        return blocks[0]
    filled = [block for block in blocks if block.num_columns or block.num_rows]
    if not filled:
        return blocks[0] if blocks else pa.table({})
    schema = schemas.unify(block.schema for block in filled)
    if not schema.names:
        return empty_rows(sum(block.num_rows for block in filled))
    parts = [schemas.conform(block, schema) for block in filled]
    # An empty part adds a chunk, which every later step would have to look at.
    return pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])


def empty_rows(count: int) -> pa.Table:
    """Return a block of rows without a column; a table made of no columns has no rows."""
    return pa.table({"_": pa.nulls(count)}).select([])


def slice_rows(block: pa.Table, start: int, stop: int) -> pa.Table:
    """Return the rows from `start` up to `stop` or the end, without a copy."""
    length = max(0, min(stop, block.num_rows) - start)
    # Of a table without columns, pyarrow cuts as many rows as it is asked for.
    return block.slice(start, length) if block.num_columns else empty_rows(length)


def take(block: pa.Table, indices: Any) -> pa.Table:
    """Return the rows at these positions, in their order.

    Args:
        block: The block.
        indices: Their positions: an ndarray, a list or an Arrow array of integers.
    """
    if not isinstance(indices, pa.Array | pa.ChunkedArray):
        indices = pa.array(np.asarray(indices, dtype=np.int64))
    if block.num_columns == 0:
        return empty_rows(len(indices))
    widened = wide(block, indices)
    taken = widened.take(indices)
    return taken if widened is block else _narrowed(taken, block.schema)


def wide(block: pa.Table, indices: Any = None) -> pa.Table:
    """Return a block whose text and lists have offsets of 64 bits where 32 could overflow.

    Arrow joins the chunks of a column before it takes rows from it or sorts it, which fails where they hold
    more than 2 GiB together; the same rows taken again and again may come to as much.

    Args:
        block: The block.
        indices: The rows that are going to be taken; if not given, each of them once.
    """
    changed = False
    columns, fields = [], []
    for field, column in zip(block.schema, block.columns, strict=True):
        type_ = _with_wide_offsets(field.type)
        if type_ != field.type and _may_overflow(column, indices):
            field, column, changed = field.with_type(type_), column.cast(type_), True
        columns.append(column)
        fields.append(field)
    return (
        pa.Table.from_arrays(columns, schema=pa.schema(fields, block.schema.metadata)) if changed else block
    )


def _may_overflow(column: pa.ChunkedArray, indices: Any) -> bool:
    size = column.nbytes
    if size > _LARGEST_OFFSET:
        return True
    if indices is None or size * len(indices) <= _LARGEST_OFFSET * max(1, len(column)) / 8:
        return False
    if not is_text(column.type):
        return True
    # Near the limit it is worth to know exactly: rows differ in length.
    return bool(pc.sum(pc.binary_length(column).take(indices)).as_py() > _LARGEST_OFFSET)


def _narrowed(block: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a block in a schema with narrow offsets, but for columns that need wide ones still."""
    for index, field in enumerate(schema):
        column = block.column(index)
        if column.type != field.type and column.nbytes <= _LARGEST_OFFSET:
            block = block.set_column(index, field, column.cast(field.type))
    return block


def _with_wide_offsets(type_: pa.DataType) -> pa.DataType:
    if is_.is_string(type_):
        return pa.large_string()
    if is_.is_binary(type_):
        return pa.large_binary()
    if is_.is_list(type_):
        return pa.large_list(_with_wide_offsets(type_.value_type))
    return type_


def combine(block: pa.Table) -> pa.Table:
    """Return a block with one chunk in each column, copying only columns that have more.

    A column of strings that would not fit into one chunk keeps several.
    """
    if all(column.num_chunks <= 1 for column in block.columns):
        return block
    return block.combine_chunks()


def compact(block: pa.Table) -> pa.Table:
    """Return a block that refers to no more memory than its rows need.

    A slice refers to all the memory of the block it was cut from: storing it or sending it would take all of
    that along. Columns that show nearly all they refer to are left as they are, but for those in many small
    chunks, which become one.
    """
    columns = block.columns
    compacted = [_compact_column(column) for column in columns]
    if all(new is old for new, old in zip(compacted, columns, strict=True)):
        return block
    return pa.Table.from_arrays(compacted, schema=block.schema)


def copied(block: pa.Table) -> pa.Table:
    """Return a block in memory of its own, with one chunk in each column that fits into one."""
    arrays = [
        pa.chunked_array([pa.concat_arrays([chunk]) for chunk in column.chunks], column.type)
        for column in combine(block).columns
    ]
    return pa.Table.from_arrays(arrays, schema=block.schema)


def _compact_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.num_chunks > 1:
        size = column.nbytes
        if size < _SMALL_CHUNK * column.num_chunks and size <= _LARGEST_OFFSET:
            return pa.chunked_array([pa.concat_arrays(column.unify_dictionaries().chunks)], column.type)
    chunks = column.chunks
    compacted = [_compact_chunk(chunk) for chunk in chunks]
    if all(new is old for new, old in zip(compacted, chunks, strict=True)):
        return column
    return pa.chunked_array(compacted, column.type)


def _compact_chunk(chunk: pa.Array) -> pa.Array:
    if chunk.get_total_buffer_size() <= chunk.nbytes * _SLACK + _SLACK_BYTES:
        return chunk
    return pa.concat_arrays([chunk])  # copies only what the slice shows, at every level of nesting
