"""Group and aggregate in steps: states per block, combined states, results.

    partial_aggregate(block) ─┐
    partial_aggregate(block) ─┼─ exchange by key ─ concat ─ combine ─ finalize
    partial_aggregate(block) ─┘

A table of states has the key columns, followed by a few columns per aggregation. Polars and Arrow compute the
built-in aggregations (`reductions`, `collecting`); others call user-defined functions (`accumulating`). One call may
combine all of them. Without keys all rows form one group, even if there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._kernels import accumulating, collecting, frames, lists, sorting, taking
from skate.data._kernels import keys as key_columns
from skate.data._kernels.reductions import REDUCTIONS, Reduction, State, is_number
from skate.data.aggregate import AggregateFn, AggregateFnV2, Count

_PURPOSE = "group by"
_NULLS = "nulls"


def check_aggregations(schema: pa.Schema, keys: Sequence[str], aggs: Sequence[AggregateFn]) -> None:
    """Check that a table of this schema can be grouped and aggregated.

    Raises:
        ValueError: A column is missing, a key is given twice, or an aggregation lacks its column.
        TypeError: A key cannot be compared, or an aggregation needs a column of numbers.
    """
    key_columns.check_keys(schema, keys, _PURPOSE)
    if len(set(keys)) < len(keys):
        raise ValueError(f"a key occurs twice in {list(keys)}: name each column once")
    for agg in aggs:
        if not isinstance(agg, AggregateFn):
            raise TypeError(f"an aggregation must be an AggregateFn, such as Sum('x'), got {agg!r}")
        if not isinstance(agg, AggregateFnV2):
            continue
        on = agg.get_target_column()
        if on is not None:
            key_columns.check_columns(schema.names, [on], f"compute {agg.name!r} on")
            _check_type(agg, on, schema.field(on).type)
        elif (type(agg) in REDUCTIONS or type(agg) in lists.COLLECTIONS) and not isinstance(agg, Count):
            raise ValueError(f"{type(agg).__name__} needs a column: {type(agg).__name__}(on='…')")


def _check_type(agg: AggregateFnV2[Any, Any], on: str, kind: pa.DataType) -> None:
    reduction = REDUCTIONS.get(type(agg))
    numbers_only = reduction.numbers_only if reduction else lists.numbers_only(agg)
    kind = frames.value_type(kind)
    if numbers_only and not is_number(kind):
        raise TypeError(
            f"cannot compute {agg.name!r}: the column {on!r} is of type {kind}, which is not numeric"
        )
    if reduction and reduction.typed_state and not key_columns.is_comparable(kind):
        raise TypeError(f"cannot compute {agg.name!r}: the values of {on!r}, of type {kind}, have no order")


def are_built_in(aggs: Sequence[AggregateFn]) -> bool:
    """Return whether all aggregations are built in, so that the types of the results are known in advance."""
    return all(type(agg) in REDUCTIONS or type(agg) in lists.COLLECTIONS for agg in aggs)


def partial_aggregate(block: pa.Table, keys: Sequence[str], aggs: Sequence[AggregateFn]) -> pa.Table:
    """Return the states of a block, with one row per group.

    Raises:
        ValueError: A column is missing, a key is given twice, or an aggregation lacks its column.
        TypeError: A column has the wrong type for an aggregation.
    """
    block = key_columns.or_empty(block, [*keys, *_targets(aggs)])
    check_aggregations(block.schema, keys, aggs)
    step = _Step(block, keys)
    for i, agg in enumerate(aggs):
        reduction = REDUCTIONS.get(type(agg))
        if reduction is not None:
            assert isinstance(agg, AggregateFnV2)
            on = agg.get_target_column()
            value, kind = (pl.lit(1), pa.int64()) if on is None else step.value(on, reduction)
            states = reduction.partial(value, agg)
            if reduction.nulls_count and not agg.ignore_nulls:
                states[_NULLS] = value.null_count().cast(pl.Int64)
            for name, expression in states.items():
                keeps = name == reduction.typed_state or (
                    name == reduction.widened_state and pa.types.is_null(kind)
                )
                step.reduce(_state_name(keys, i, name), expression, kind if keeps else None)
        elif type(agg) in lists.COLLECTIONS:
            for name, column in lists.partial(agg, block, step.groups()).items():
                step.columns[_state_name(keys, i, name)] = column
        else:
            states_column = accumulating.partial(agg, block, step.groups(), step.keys())
            step.columns[_state_name(keys, i, "pickled")] = states_column
    return step.table()


def combine(states: pa.Table, keys: Sequence[str], aggs: Sequence[AggregateFn]) -> pa.Table:
    """Combine the concatenated states of several blocks to one row per group."""
    if not states.column_names and not states.num_rows:  # no task has made a block
        states = partial_aggregate(states, keys, aggs)
    step = _Step(states, keys)
    for i, agg in enumerate(aggs):
        prefix = _state_name(keys, i, "")
        reduction = REDUCTIONS.get(type(agg))
        if reduction is not None:
            combined = reduction.combine(step.states(prefix))
            if prefix + _NULLS in states.column_names:
                combined[_NULLS] = step.state(prefix + _NULLS).sum()
            for name, expression in combined.items():
                step.reduce(prefix + name, expression, states.schema.field(prefix + name).type)
        elif type(agg) in lists.COLLECTIONS:
            for name, column in lists.combine(agg, _states_of(states, prefix), step.groups()).items():
                step.columns[prefix + name] = column
        else:
            column = accumulating.combine(agg, states.column(prefix + "pickled"), step.groups())
            step.columns[prefix + "pickled"] = column
    return step.table()


def finalize(states: pa.Table, keys: Sequence[str], aggs: Sequence[AggregateFn]) -> pa.Table:
    """Return the results, one row per group, ordered by the keys with nulls last.

    Args:
        states: The result of `combine`, with one row per group.
        keys: The key columns.
        aggs: The aggregations. Duplicate names get a suffix "_2", "_3", …
    """
    if keys and states.num_rows > 1:
        states = sorting.sort(states, keys, [False] * len(keys))
    columns = {name: states.column(name) for name in keys}
    for i, agg in enumerate(aggs):
        prefix = _state_name(keys, i, "")
        reduction = REDUCTIONS.get(type(agg))
        if reduction is not None:
            result = _finalize(reduction, agg, _states_of(states, prefix))
        elif type(agg) in lists.COLLECTIONS:
            result = lists.finalize(agg, _states_of(states, prefix))
        else:
            result = accumulating.finalize(agg, states.column(prefix + "pickled"))
        columns[_free_name(agg.name, columns)] = result
    return pa.table(columns)


def groups(block: pa.Table, keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each group, ordered by the keys, as slices of the sorted block.

    Without keys, the block is a single group unless it is empty.
    """
    if not block.num_rows:
        return
    if not keys:
        yield block
        return
    ordered = sorting.sort(block, keys, [False] * len(keys))
    frame = key_columns.key_frame(ordered, keys, _PURPOSE)
    changes = frame.select(
        pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in frame.columns).alias(
            "changes"
        )
    )["changes"]
    starts = np.flatnonzero(changes.to_numpy())
    # The first row has no predecessor to differ from, so a null key there needs a special case.
    starts = np.unique(np.concatenate([[0], starts]))
    for start, stop in zip(starts, [*starts[1:], block.num_rows], strict=True):
        yield ordered.slice(int(start), int(stop - start))


def unique(block: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the distinct keys of a block, in the order of their first occurrence, with only the key columns."""
    frame = key_columns.key_frame(block, keys, "look for distinct values of").with_row_index("row")
    kept = frame.unique([str(i) for i in range(len(keys))], keep="first", maintain_order=True)
    return taking.take(block.select(list(keys)), kept["row"])


class _Step:
    """One grouping of a table: the expressions for Polars to compute together, and the finished columns."""

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        self._table = table
        self._key_names = list(keys)
        self._frame = key_columns.key_frame(table, keys, _PURPOSE)
        self._names = self._frame.columns
        if not self._names:
            self._frame = pl.DataFrame([self._row_numbers()])  # needed to know the number of rows
        self._expressions: list[pl.Expr] = []
        self._kinds: dict[str, pa.DataType | None] = {}
        self._groups: collecting.Groups | None = None
        self.columns: dict[str, Any] = {}

    def groups(self) -> collecting.Groups:
        """Return the groups of rows."""
        if self._groups is None:
            keys = [self._frame[name] for name in self._names]
            self._groups = collecting.group(pl.DataFrame([*keys, self._row_numbers()]), self._names)
        return self._groups

    def keys(self) -> pa.Table:
        """Return the key columns with one row per group."""
        return self._key_rows(self.groups().heads)

    def value(self, on: str, reduction: Reduction) -> tuple[pl.Expr, pa.DataType]:
        """Return a column as an expression, and the type of its values."""
        column = self._table.column(on)
        kind = frames.value_type(column.type)
        if key_columns.is_comparable(kind):
            series = key_columns.comparable(column)
        else:
            # Only presence matters: `check_aggregations` rejects all other cases.
            series = frames.to_series(pc.if_else(column.is_valid(), True, None))
        name = f"value of {on}"
        if name not in self._frame.columns:
            self._frame = self._frame.with_columns(_plain(series).alias(name))
        value = pl.col(name)
        dtype = self._frame.schema[name]
        if reduction.numbers_only:
            value = value.cast(_widest(dtype))
        elif reduction.nan_is_null and dtype.is_float():
            value = value.fill_nan(None)
        return value, kind

    def state(self, name: str) -> pl.Expr:
        """Return a column of states as an expression."""
        if name not in self._frame.columns:
            series = key_columns.comparable(self._table.column(name))
            self._frame = self._frame.with_columns(_plain(series).alias(name))
        return pl.col(name)

    def states(self, prefix: str) -> State:
        """Return a function for the state columns with this prefix."""
        return lambda name: self.state(prefix + name)

    def reduce(self, name: str, expression: pl.Expr, kind: pa.DataType | None) -> None:
        """Add an expression to compute per group; `kind` is its type, or None for the choice of Polars."""
        self._expressions.append(expression.alias(name))
        self._kinds[name] = kind
        self.columns[name] = None  # reserves its position

    def table(self) -> pa.Table:
        """Return the key columns and all others, one row per group, in any order."""
        if not self._names and not self.columns:
            return pa.table({"rows": pa.nulls(1)}).select([])
        if not self._names:
            keys = pa.table({})
            self._fill(self._frame.select(self._expressions))
        elif not self._expressions and self.columns:
            keys = self.keys()
        elif self._groups is None and self._keys_are_plain():
            reduced = self._reduce(self._frame, self._expressions)
            keys = pa.Table.from_arrays(
                [
                    frames.to_arrow(reduced[name], kind)
                    for name, kind in zip(self._names, self._key_types(), strict=True)
                ],
                self._key_names,
            )
            self._fill(reduced)
        else:
            # In the order of their first rows, like `groups`; keys are taken from these rows.
            first = pl.col("row").min()
            numbered = self._frame.with_columns(self._row_numbers())
            reduced = self._reduce(numbered, [first, *self._expressions]).sort("row")
            keys = self._key_rows(reduced["row"])
            self._fill(reduced)
        return pa.table({**dict(zip(keys.column_names, keys.columns, strict=True)), **self.columns})

    def _reduce(self, frame: pl.DataFrame, expressions: list[pl.Expr]) -> pl.DataFrame:
        # With many groups, the streaming engine takes half the time.
        return frame.lazy().group_by(self._names).agg(expressions).collect(engine="streaming")

    def _fill(self, reduced: pl.DataFrame) -> None:
        for name, kind in self._kinds.items():
            self.columns[name] = (
                frames.export_series(reduced[name]) if kind is None else frames.to_arrow(reduced[name], kind)
            )

    def _row_numbers(self) -> pl.Series:
        return pl.Series("row", np.arange(self._table.num_rows, dtype=np.uint32))

    def _key_types(self) -> list[pa.DataType]:
        return [self._table.schema.field(name).type for name in self._key_names]

    def _keys_are_plain(self) -> bool:
        """Return whether Polars' keys have the same bits as the rows; zeros and NaNs have several representations."""
        return all(
            frames.physical_type(kind) is not None and not pa.types.is_floating(kind)
            for kind in self._key_types()
        )

    def _key_rows(self, heads: pl.Series) -> pa.Table:
        return taking.take(self._table.select(self._key_names), heads)


def _targets(aggs: Sequence[AggregateFn]) -> list[str]:
    found = [agg.get_target_column() for agg in aggs if isinstance(agg, AggregateFnV2)]
    return [name for name in found if name is not None]


def _finalize(reduction: Reduction, agg: Any, states: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    series = {name: _plain(key_columns.comparable(column)) for name, column in states.items()}
    result = reduction.finalize(pl.col, agg)
    if _NULLS in states:
        result = pl.when(pl.col(_NULLS) == 0).then(result)
    found = pl.DataFrame(series).select(result.alias("result"))["result"]
    if reduction.typed_state:
        return frames.to_arrow(found, states[reduction.typed_state].type)
    if len(states) - (_NULLS in states) == 1:
        # The result is the state itself, whose type is null if all values were null.
        return frames.to_arrow(found, next(iter(states.values())).type)
    return frames.export_series(found)


def _plain(series: pl.Series) -> pl.Series:
    """Give an all-null column a type that supports computation."""
    return series.cast(pl.Int64) if series.dtype == pl.Null else series


def _widest(dtype: pl.DataType) -> Any:
    if dtype.is_float():
        return pl.Float64
    if dtype.is_decimal() or dtype == pl.UInt64:
        return dtype
    return pl.Int64


def _states_of(states: pa.Table, prefix: str) -> dict[str, pa.ChunkedArray]:
    return {
        name[len(prefix) :]: states.column(name) for name in states.column_names if name.startswith(prefix)
    }


def _state_name(keys: Sequence[str], i: int, name: str) -> str:
    prefix = "state"
    while any(key.startswith(prefix) for key in keys):
        prefix = "_" + prefix
    return f"{prefix} {i} {name}"


def _free_name(name: str, taken: Any) -> str:
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    return free
