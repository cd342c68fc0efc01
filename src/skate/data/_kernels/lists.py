"""States and results of the built-in aggregations that collect values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from skate.data import aggregate
from skate.data._kernels import collecting, frames
from skate.data._kernels.collecting import Groups

# By exact type, as in `reductions`.
COLLECTIONS = {
    aggregate.AsList,
    aggregate.Unique,
    aggregate.CountDistinct,
    aggregate.Quantile,
    aggregate.ValueCounter,
}


def numbers_only(agg: Any) -> bool:
    """Return whether an aggregation accepts numbers only."""
    return type(agg) is aggregate.Quantile


def partial(agg: Any, block: pa.Table, groups: Groups) -> dict[str, pa.Array]:
    """Return the states of the groups of a block."""
    column = block.column(agg.get_target_column())
    kind = frames.value_type(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if isinstance(agg, aggregate.ValueCounter):
        values, counts = collecting.count_values(collecting.as_lists(column, groups, drop_nulls=False), None)
        return {"values": values, "counts": counts}
    if isinstance(agg, aggregate.Quantile):
        column = column.cast(pa.float64())
    if isinstance(agg, aggregate.Unique):
        if agg.flattens and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            lists = collecting.join_lists(column, groups)
            lists = collecting.drop_nulls(lists) if agg.ignore_nulls else lists
        else:
            lists = collecting.as_lists(column, groups, drop_nulls=agg.ignore_nulls)
        return {"values": collecting.distinct(lists)}
    return {"values": collecting.as_lists(column, groups, drop_nulls=agg.ignore_nulls)}


def combine(agg: Any, states: dict[str, pa.ChunkedArray], groups: Groups) -> dict[str, pa.Array]:
    """Combine the states of several blocks per group."""
    values = collecting.join_lists(states["values"], groups)
    if isinstance(agg, aggregate.ValueCounter):
        values, counts = collecting.count_values(values, collecting.join_lists(states["counts"], groups))
        return {"values": values, "counts": counts}
    if isinstance(agg, aggregate.Unique):
        values = collecting.distinct(values)
    return {"values": values}


def finalize(agg: Any, states: dict[str, pa.ChunkedArray]) -> Any:
    """Compute the results from the states."""
    values = collecting.single(states["values"])
    if isinstance(agg, aggregate.CountDistinct):
        return pa.array(np.diff(values.offsets.to_numpy()))
    if isinstance(agg, aggregate.ValueCounter):
        counts = collecting.narrow_offsets(collecting.single(states["counts"]))
        return pa.StructArray.from_arrays([collecting.narrow_offsets(values), counts], ["values", "counts"])
    if isinstance(agg, aggregate.Quantile):
        found = frames.to_arrow(collecting.quantile(values, agg.q), pa.float64())
        if agg.ignore_nulls:
            return found
        return pa.array(found.to_pylist(), pa.float64(), mask=collecting.have_nulls(values))
    return collecting.narrow_offsets(values)
