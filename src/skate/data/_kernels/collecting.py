"""Built-in aggregations whose state is a list of values per group.

The lists are Arrow arrays, so that they can hold values of any type, including tensors and Python objects. Polars
only determines which values are equal; Python does so where Polars cannot compare them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from skate.data._kernels import keys as key_columns
from skate.data._kernels import taking

Positions = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Groups:
    """Groups of rows: the rows of group `i` are `order[offsets[i]:offsets[i + 1]]`, in their original order."""

    heads: pl.Series
    order: Positions
    offsets: Positions

    def __len__(self) -> int:
        return len(self.offsets) - 1


def group(frame: pl.DataFrame, names: list[str]) -> Groups:
    """Group rows with equal keys, in the order of their first rows.

    Args:
        frame: The key columns, and "row", the number of each row.
        names: The key columns; without any, all rows form one group, even if there are none.
    """
    if not names:
        return Groups(pl.Series([], dtype=pl.UInt32), np.arange(len(frame)), np.array([0, len(frame)]))
    rows = frame.group_by(names, maintain_order=True).agg(pl.col("row"))["row"]
    offsets = np.concatenate([[0], np.cumsum(rows.list.len().to_numpy(), dtype=np.int64)])
    order = rows.explode(empty_as_null=False).to_numpy() if len(rows) else np.empty(0, np.uint32)
    return Groups(pl.Series(order[offsets[:-1]], dtype=pl.UInt32), order, offsets)


def as_lists(column: pa.ChunkedArray, groups: Groups, *, drop_nulls: bool) -> pa.LargeListArray:
    """Return the values of each group as a list."""
    order, offsets = groups.order, groups.offsets
    if drop_nulls and column.null_count:
        keep = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))[order]
        order, offsets = order[keep], np.concatenate([[0], np.cumsum(keep)])[offsets]
    return _lists(offsets, _take(column, order))


def join_lists(column: pa.ChunkedArray, groups: Groups) -> pa.LargeListArray:
    """Concatenate the lists of each group; a null counts as an empty list."""
    lists = _take(column, groups.order)
    inner = np.concatenate([[0], np.cumsum(lists.value_lengths().fill_null(0).to_numpy(), dtype=np.int64)])
    return _lists(inner[groups.offsets], lists.flatten())


def drop_nulls(lists: pa.LargeListArray) -> pa.LargeListArray:
    """Remove the nulls within lists."""
    valid = np.asarray(lists.values.is_valid().to_numpy(zero_copy_only=False))
    offsets = np.concatenate([[0], np.cumsum(valid)])[lists.offsets.to_numpy()]
    return _lists(offsets, lists.values.drop_null())


def have_nulls(lists: pa.LargeListArray) -> npt.NDArray[np.bool_]:
    """Return for each list whether it contains a null."""
    nulls = np.concatenate([[0], np.cumsum(lists.values.is_null().to_numpy(zero_copy_only=False))])
    return np.asarray(np.diff(nulls[lists.offsets.to_numpy()]) > 0)


def distinct(lists: pa.LargeListArray) -> pa.LargeListArray:
    """Remove duplicates within lists; the first occurrence stays."""
    frame = _number_values(lists)
    kept = frame.unique(["group", "value"], keep="first", maintain_order=True)
    return _lists(
        _offsets(kept["group"], len(lists)), _take(pa.chunked_array([lists.values]), kept["row"].to_numpy())
    )


def count_values(
    lists: pa.LargeListArray, counts: pa.LargeListArray | None
) -> tuple[pa.LargeListArray, pa.LargeListArray]:
    """Return the distinct values of each list, and the count of each.

    Args:
        lists: The values.
        counts: Weight of each value; 1 by default.
    """
    weight = pl.lit(1, pl.Int64) if counts is None else pl.Series("count", counts.values.to_numpy())
    frame = _number_values(lists).with_columns(weight.alias("count"))
    kept = frame.group_by(["group", "value"], maintain_order=True).agg(
        pl.col("row").first(), pl.col("count").sum()
    )
    kept = kept.sort("group", maintain_order=True)
    offsets = _offsets(kept["group"], len(lists))
    values = _take(pa.chunked_array([lists.values]), kept["row"].to_numpy())
    return _lists(offsets, values), _lists(offsets, pa.array(kept["count"].to_numpy()))


def quantile(lists: pa.LargeListArray, q: float) -> pl.Series:
    """Return a quantile of each list of numbers, linearly interpolated; null for an empty list."""
    frame = _number_values(lists).drop_nulls("value").filter(pl.col("value").is_not_nan())
    found = frame.group_by("group").agg(pl.col("value").quantile(q, "linear"))
    every = pl.DataFrame({"group": pl.Series(np.arange(len(lists)), dtype=pl.UInt32)})
    return every.join(found, on="group", how="left", maintain_order="left")["value"]


def narrow_offsets(lists: pa.LargeListArray) -> pa.Array:
    """Return lists with the 32-bit offsets that users expect, if there are not too many values."""
    if len(lists.values) > np.iinfo(np.int32).max:
        return lists
    return pa.ListArray.from_arrays(lists.offsets.cast(pa.int32()), lists.values)


def single(column: pa.ChunkedArray) -> pa.LargeListArray:
    """Return a column of lists as one array that starts at the beginning of its buffers."""
    lists = _one_array(
        column.cast(pa.large_list(column.type.value_field)) if pa.types.is_list(column.type) else column
    )
    return _lists(lists.offsets.to_numpy() - lists.offsets[0].as_py(), lists.flatten())


def _lists(offsets: Positions, values: pa.Array) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _take(column: pa.ChunkedArray, positions: Positions) -> Any:
    return _one_array(taking.take(pa.table({"values": column}), positions).column(0))


def _one_array(column: pa.ChunkedArray) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _number_values(lists: pa.LargeListArray) -> pl.DataFrame:
    """Return each value with the index of its list, its own index, and a comparable key."""
    lengths = np.diff(lists.offsets.to_numpy())
    if key_columns.is_comparable(lists.values.type):
        value = key_columns.comparable(pa.chunked_array([lists.values]))
    else:
        value = pl.Series(_numbers_of_equals(lists.values))
    group = pl.Series("group", np.repeat(np.arange(len(lists), dtype=np.uint32), lengths))
    return pl.DataFrame([group, value.alias("value")]).with_row_index("row")


def _offsets(groups: pl.Series, count: int) -> Positions:
    return np.concatenate([[0], np.cumsum(np.bincount(groups.to_numpy(), minlength=count), dtype=np.int64)])


def _numbers_of_equals(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return a number per value that is the same for equal values."""
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(_hashable(value), len(seen)) for value in values.to_pylist()], np.int64)


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return cloudpickle.dumps(value)
    return value
