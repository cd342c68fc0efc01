"""Ids of rows: filters written rows, and checks that ids are unique."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._kernels import joining, keys, partitioning
from skate.data.checkpoint.interfaces import InvalidCheckpointingConfig

_SHOWN = 3  # maximum number of values in a message


class DoneIds:
    """Removes the rows of a block whose ids are done. A worker receives it once for all tasks of a step.

    The ids are sorted once, by a hash that is the same in all processes. Looking up a block takes one binary search per
    row; rows with the hash of a done id are then compared with the id itself.

    Args:
        column: The column of ids.
        done: The ids of written rows.
    """

    def __init__(self, column: str, done: pa.ChunkedArray) -> None:
        self._column = column
        table = pa.table({"id": done})
        hashes = partitioning.key_hashes(table, ["id"])
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._ids = table.take(pa.array(order)).combine_chunks()

    def __call__(self, block: pa.Table, _: int) -> pa.Table:
        """Return the rows of a block that are not done."""
        if not block.num_rows:
            return block
        column = id_column(block, self._column)
        if not len(self._hashes):
            return block
        self._check_type(column.type)
        hashes = partitioning.key_hashes(block, [self._column])
        first = np.searchsorted(self._hashes, hashes)
        alike = self._hashes[np.minimum(first, len(self._hashes) - 1)] == hashes
        rows = np.flatnonzero(alike)
        if not len(rows):
            return block
        known = self._ids.take(pa.array(self._places(first[rows], hashes[rows])))
        asked = pa.table({"id": column.take(pa.array(rows)), "row": rows})
        found = joining.join(asked, known, "left_semi", ["id"])["row"].to_numpy()
        keeps = np.ones(block.num_rows, bool)
        keeps[found] = False
        return block.filter(pa.array(keeps))

    def _places(self, first: Any, hashes: Any) -> Any:
        """Return the indices of all ids with one of these hashes; several ids may share a hash."""
        last = np.searchsorted(self._hashes, hashes, side="right")
        more = last > first + 1
        runs = [np.arange(start, stop) for start, stop in zip(first[more], last[more], strict=True)]
        return np.unique(np.concatenate([first, *runs]))

    def _check_type(self, kind: pa.DataType) -> None:
        before = self._ids.schema.field(0).type
        if _family(kind) != _family(before):
            raise InvalidCheckpointingConfig(
                f"the ids in column {self._column!r} are of type {kind} where they are read, and were of type {before} "
                f"where an earlier run wrote them, so none would match: steps between reading and writing must not "
                f"change them"
            )


def id_column(block: pa.Table, column: str) -> pa.ChunkedArray:
    """Return the column of ids of a block.

    Raises:
        InvalidCheckpointingConfig: The block has no such column.
    """
    if column not in block.column_names:
        raise InvalidCheckpointingConfig(
            f"ID column {column} is absent in the block to be written, or already in what is read, which has "
            f"{', '.join(map(repr, block.column_names)) or 'no columns'}: ids have to come from the source, and no "
            f"step may drop or rename them"
        )
    return block.column(column)


def collect_ids(blocks: Sequence[pa.Table], column: str) -> pa.ChunkedArray:
    """Return the ids of all rows that one task writes.

    Raises:
        InvalidCheckpointingConfig: The ids are missing, null, of an unsupported type, or not unique.
    """
    found = [id_column(block, column) for block in blocks if block.num_rows]
    if not found:
        return pa.chunked_array([], pa.null())
    ids = pa.concat_tables([pa.table({column: each}) for each in found], promote_options="permissive")[column]
    if not keys.is_comparable(ids.type):
        raise InvalidCheckpointingConfig(
            f"column {column!r} is of type {ids.type}, and ids have to be numbers, strings, bytes, dates or times"
        )
    if ids.null_count:
        raise InvalidCheckpointingConfig(
            f"{ids.null_count} of {len(ids)} rows have no value in column {column!r}: each row needs a unique id"
        )
    if len(ids.unique()) < len(ids):
        counts = ids.value_counts()
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[:_SHOWN].to_pylist()
        raise InvalidCheckpointingConfig(
            f"rows share an id in column {column!r}: {', '.join(map(repr, twice))}. If a program is killed, some of "
            f"them may be written, and the next run would skip the others. Give each row a unique id, or write with "
            f"resume=True, which needs no ids"
        )
    return ids


def _family(kind: pa.DataType) -> str:
    """Return the family of a type: values of types in one family compare as equal."""
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return "number"
    for name, is_one in (
        ("text", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
        ("bytes", (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)),
        ("bytes", (pa.types.is_fixed_size_binary,)),
        ("decimal", (pa.types.is_decimal,)),
        ("timestamp", (pa.types.is_timestamp,)),
        ("date", (pa.types.is_date,)),
    ):
        if any(check(kind) for check in is_one):
            return name
    return str(kind)
