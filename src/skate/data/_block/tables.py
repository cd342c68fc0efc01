"""Operations on whole blocks: size, slices, concatenation and copies."""

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

# A slice that holds on to this little extra memory is not worth a copy.
_SLACK = 1.1
_SLACK_BYTES = 64

# Smaller chunks cost more in every later step than one copy.
_SMALL_CHUNK = 256 * 1024


def nbytes(block: pa.Table) -> int:
    """Return the size of the visible data of a block; for a slice, only its rows count."""
    return int(block.nbytes)


def concat(blocks: Sequence[pa.Table]) -> pa.Table:
    """Concatenate blocks with a unified schema, without a copy.

    Blocks with neither rows nor columns are skipped.

    Raises:
        SchemaConflictError: The types of a column in two blocks have no common type.
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
    # An empty part would add a chunk that every later step visits.
    return pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])


def empty_rows(count: int) -> pa.Table:
    """Return a block of rows without columns; a table created from no columns has no rows."""
    return pa.table({"_": pa.nulls(count)}).select([])


def slice_rows(block: pa.Table, start: int, stop: int) -> pa.Table:
    """Return the rows from `start` to `stop`, exclusive, or to the end, without a copy."""
    length = max(0, min(stop, block.num_rows) - start)
    # For a table without columns, pyarrow does not limit the slice to the number of rows.
    return block.slice(start, length) if block.num_columns else empty_rows(length)


def take(block: pa.Table, indices: Any) -> pa.Table:
    """Return the rows at the given positions, in their order.

    Args:
        block: The block.
        indices: The positions: an ndarray, a list or an Arrow array of integers.
    """
    if not isinstance(indices, pa.Array | pa.ChunkedArray):
        indices = pa.array(np.asarray(indices, dtype=np.int64))
    if block.num_columns == 0:
        return empty_rows(len(indices))
    widened = widen_offsets(block, indices)
    taken = widened.take(indices)
    return taken if widened is block else _narrow_offsets(taken, block.schema)


def widen_offsets(block: pa.Table, indices: Any = None) -> pa.Table:
    """Return a block whose text and lists have 64-bit offsets where 32 bits could overflow.

    Arrow combines the chunks of a column before it takes or sorts rows, which fails if they hold more than 2 GiB
    together; rows that are taken repeatedly may add up to as much.

    Args:
        block: The block.
        indices: The rows that will be taken; by default each row once.
    """
    changed = False
    columns, fields = [], []
    for field, column in zip(block.schema, block.columns, strict=True):
        type_ = _wide_type(field.type)
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
    # Near the limit, compute the exact size, because rows differ in length.
    return bool(pc.sum(pc.binary_length(column).take(indices)).as_py() > _LARGEST_OFFSET)


def _narrow_offsets(block: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a block in a schema with narrow offsets, except for columns that still need wide ones."""
    for index, field in enumerate(schema):
        column = block.column(index)
        if column.type != field.type and column.nbytes <= _LARGEST_OFFSET:
            block = block.set_column(index, field, column.cast(field.type))
    return block


def _wide_type(type_: pa.DataType) -> pa.DataType:
    if is_.is_string(type_):
        return pa.large_string()
    if is_.is_binary(type_):
        return pa.large_binary()
    if is_.is_list(type_):
        return pa.large_list(_wide_type(type_.value_type))
    return type_


def combine(block: pa.Table) -> pa.Table:
    """Return a block with one chunk per column; only columns with several chunks are copied.

    A column of strings that does not fit into one chunk keeps several.
    """
    if all(column.num_chunks <= 1 for column in block.columns):
        return block
    return block.combine_chunks()


def compact(block: pa.Table) -> pa.Table:
    """Return a block that holds on to no more memory than its rows need.

    A slice refers to the whole memory of its parent block, which storing or sending it would include. Columns
    that use nearly all the memory they refer to are kept unchanged, except that many small chunks are combined.
    """
    columns = block.columns
    compacted = [_compact_column(column) for column in columns]
    if all(new is old for new, old in zip(compacted, columns, strict=True)):
        return block
    return pa.Table.from_arrays(compacted, schema=block.schema)


def deep_copy(block: pa.Table) -> pa.Table:
    """Return a deep copy of a block, with one chunk per column where the column fits into one."""
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
    return pa.concat_arrays([chunk])  # copies only the visible part of the slice, at every level of nesting
