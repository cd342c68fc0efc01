"""Join two blocks on equal keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import polars as pl
import pyarrow as pa

from skate.data._block import schemas
from skate.data._kernels import keys as key_columns
from skate.data._kernels import taking

JoinKind = Literal[
    "inner",
    "left_outer",
    "right_outer",
    "full_outer",
    "left_semi",
    "right_semi",
    "left_anti",
    "right_anti",
]

_LEFT, _RIGHT = "left row", "right row"


def join(
    left: pa.Table,
    right: pa.Table,
    how: JoinKind,
    on: Sequence[str],
    right_on: Sequence[str] | None = None,
    left_suffix: str | None = None,
    right_suffix: str | None = None,
) -> pa.Table:
    """Join two tables on equal keys with the semantics of SQL: a key with a null equals nothing.

    Semi and anti joins return rows of one side, unchanged. Other joins return the columns of the left side, then those
    of the right side, with the keys once, under the left names; their values come from the left side, or from the right
    side for rows without a left match. Columns of the side without a match are null.

    Args:
        left: The left side.
        right: The right side.
        how: The kind of join.
        on: The key columns of the left side.
        right_on: The key columns of the right side, if their names differ.
        left_suffix: Suffix for left columns whose name also occurs on the right.
        right_suffix: Suffix for right columns whose name also occurs on the left.

    Raises:
        ValueError: A key column is missing, the numbers of keys differ, or both sides have a column of the same name
            and no suffix is given.
        TypeError: A key column cannot be compared.
    """
    right_on = on if right_on is None else right_on
    left, right = key_columns.or_empty(left, on), key_columns.or_empty(right, right_on)
    check(left.schema, right.schema, how, on, right_on, left_suffix, right_suffix)
    left_keys, right_keys = _comparable(left.select(list(on)), right.select(list(right_on)))
    left_frame = key_columns.key_frame(left_keys, left_keys.column_names, "join on").with_row_index(_LEFT)
    right_frame = key_columns.key_frame(right_keys, right_keys.column_names, "join on").with_row_index(_RIGHT)
    names = [str(i) for i in range(len(on))]
    if how in {"left_semi", "left_anti"}:
        kept = left_frame.join(
            right_frame, on=names, how="semi" if how == "left_semi" else "anti", maintain_order="left"
        )
        return taking.take(left, kept[_LEFT])
    if how in {"right_semi", "right_anti"}:
        kept = right_frame.join(
            left_frame, on=names, how="semi" if how == "right_semi" else "anti", maintain_order="left"
        )
        return taking.take(right, kept[_RIGHT])
    pairs = _pairs(left_frame, right_frame, how, names)
    joined = _assemble(left, right, pairs, on, right_on, left_suffix, right_suffix)
    if how != "right_outer":
        return joined
    given = dict(zip(right_on, on, strict=True))
    others = iter(joined.column_names[left.num_columns :])
    of_right = [given[name] if name in given else next(others) for name in right.column_names]
    return joined.select([name for name in joined.column_names if name not in of_right] + of_right)


def check(
    left: pa.Schema,
    right: pa.Schema,
    how: str,
    on: Sequence[str],
    right_on: Sequence[str],
    left_suffix: str | None,
    right_suffix: str | None,
) -> None:
    """Check that tables of these schemas can be joined; see `join`."""
    if how not in get_args(JoinKind):
        raise ValueError(f"unknown join type {how!r}; use one of {', '.join(get_args(JoinKind))}")
    if len(on) != len(right_on) or not on:
        raise ValueError(
            f"a join needs as many key columns on the left as on the right, and at least one: got {list(on)} and"
            f" {list(right_on)}"
        )
    key_columns.check_columns(left.names, on, "join the left side on")
    key_columns.check_columns(right.names, right_on, "join the right side on")
    if how in {"inner", "left_outer", "right_outer", "full_outer"}:
        shared = _shared_names(left, right, right_on)
        if (shared and not left_suffix and not right_suffix) or (set(shared) & set(on) and not right_suffix):
            # Ray's users match on the first words.
            raise ValueError(
                "Left and right columns suffixes cannot be both None: both sides have columns called"
                f" {', '.join(map(repr, shared))}; pass left_suffix, right_suffix or both; keys keep their names"
            )


def _shared_names(left: pa.Schema, right: pa.Schema, right_on: Sequence[str]) -> list[str]:
    return [name for name in right.names if name not in right_on and name in left.names]


def _comparable(left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Cast the keys of both sides to common types, so that 1 matches 1.0, and dates match across units."""
    right = right.rename_columns(left.column_names)
    if left.schema.equals(right.schema):
        return left, right
    schema = schemas.unify([left.schema, right.schema])
    return schemas.conform(left, schema), schemas.conform(right, schema)


def _pairs(left: pl.DataFrame, right: pl.DataFrame, how: JoinKind, names: list[str]) -> pl.DataFrame:
    """Return the positions of matching rows, null where a row has no match."""
    if how == "inner":
        pairs = left.join(right, on=names, how="inner", maintain_order="left_right")
    elif how == "left_outer":
        pairs = left.join(right, on=names, how="left", maintain_order="left_right")
    elif how == "right_outer":
        pairs = right.join(left, on=names, how="left", maintain_order="left_right")
    else:
        pairs = left.join(right, on=names, how="full", coalesce=True, maintain_order="left_right")
    return pairs.select(_LEFT, _RIGHT)


def _assemble(
    left: pa.Table,
    right: pa.Table,
    pairs: pl.DataFrame,
    on: Sequence[str],
    right_on: Sequence[str],
    left_suffix: str | None,
    right_suffix: str | None,
) -> pa.Table:
    shared = set(_shared_names(left.schema, right.schema, right_on))
    taken_left = _take_rows(left, pairs[_LEFT])
    fields, columns = [], []
    unmatched = pairs[_LEFT].is_null()
    keys_right = None
    if unmatched.any():
        # The key of a row without a left match comes from the right side.
        keys_right = taking.take(right.select(list(right_on)), pairs[_RIGHT])
    for name in left.column_names:
        column = taken_left.column(name)
        if name in on:
            if keys_right is not None:
                column = _coalesce(column, keys_right.column(list(on).index(name)), unmatched)
            fields.append(name)
        else:
            fields.append(name + left_suffix if name in shared and left_suffix else name)
        columns.append(column)
    rest = right.drop_columns(list(right_on))
    for name, column in zip(rest.column_names, _take_rows(rest, pairs[_RIGHT]).columns, strict=True):
        fields.append(name + right_suffix if name in shared and right_suffix else name)
        columns.append(column)
    return pa.table(columns, names=fields)


def _take_rows(side: pa.Table, rows: pl.Series) -> pa.Table:
    """Return the rows of a side; the side itself if each of its rows has exactly one match, as in a lookup."""
    everyone = pl.int_range(side.num_rows, dtype=pl.UInt32, eager=True)
    if rows.equals(everyone, check_dtypes=False):
        return side
    return taking.take(side, rows)


def _coalesce(first: pa.ChunkedArray, second: pa.ChunkedArray, take_second: pl.Series) -> pa.ChunkedArray:
    both = schemas.unify([pa.schema([("key", first.type)]), pa.schema([("key", second.type)])]).field(0).type
    rows = len(first)
    stacked = pa.table({"key": pa.chunked_array([*first.cast(both).chunks, *second.cast(both).chunks], both)})
    position = pl.select(pl.int_range(rows, dtype=pl.UInt32) + take_second.cast(pl.UInt32) * rows).to_series()
    return taking.take(stacked, position).column(0)
