"""Distribute the rows of a block over parts: by the hash of their keys, or at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from skate.data._kernels import keys as key_columns
from skate.data._kernels import taking

# An odd number with bits all over it: multiplying by it spreads the hash of one key before the next is added.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def hash_partition(block: pa.Table, keys: Sequence[str], parts: int, seed: int = 0) -> list[pa.Table]:
    """Distribute rows so that rows with equal keys are in the same part, in every process and for every block.

    Keys are equal by value, not by layout: 1 as int32, int64 or float, a string in any of Arrow's string types, 0.0
    and -0.0, NaN and NaN, null and null. The order of rows within a part is that of the block.

    Args:
        block: The table to distribute.
        keys: The columns that decide.
        parts: How many parts there are.
        seed: Another seed gives another, independent distribution.

    Returns:
        The parts: slices of one new table.

    Raises:
        ValueError: A key column is missing.
        TypeError: A key column is of a type that cannot be hashed, such as lists or tensors.
    """
    if not block.num_rows:
        return [block] * parts
    hashes = key_hashes(block, keys, seed)
    # The high bits are the better mixed ones; this maps them evenly for any number of parts.
    numbers = ((hashes >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)
    return split(block, numbers, parts)


def random_partition(block: pa.Table, parts: int, seed: int | Sequence[int]) -> list[pa.Table]:
    """Distribute rows at random, each part equally likely for each row.

    With the parts of all blocks brought together and each then put in random order by
    `skate.data._kernels.partitioning.permute`, every order of the whole is equally likely.

    Args:
        block: The table to distribute.
        parts: How many parts there are.
        seed: The same seed gives the same parts. Give each block one of its own, for example `[seed, index]`.
    """
    numbers = np.random.default_rng(seed).integers(parts, size=block.num_rows)
    return split(block, numbers, parts)


def split(block: pa.Table, numbers: npt.NDArray[Any], parts: int) -> list[pa.Table]:
    """Return for each part the rows that have its number, in the order of the block: slices of one new table."""
    if parts == 1:
        return [block]
    # Few numbers in a small type: NumPy sorts these by counting, in linear time.
    small = numbers.astype(np.uint8 if parts <= 2**8 else np.uint16 if parts <= 2**16 else np.uint32)
    order = np.argsort(small, kind="stable").astype(np.uint32)
    stops = np.cumsum(np.bincount(small, minlength=parts))
    grouped = taking.take(block, order)
    starts = np.concatenate([[0], stops[:-1]])
    return [grouped.slice(int(start), int(stop - start)) for start, stop in zip(starts, stops, strict=True)]


def key_hashes(block: pa.Table, keys: Sequence[str], seed: int = 0) -> npt.NDArray[np.uint64]:
    """Return a hash of the keys of each row, the same for equal keys in every process."""
    frame = key_columns.key_frame(_in_one_unit(block, keys), keys, "partition by")
    total = np.zeros(block.num_rows, np.uint64)
    for name in frame.columns:
        hashes = frame.select(_canonical(pl.col(name), frame.schema[name]).hash(seed)).to_series().to_numpy()
        total = (total ^ (total >> np.uint64(29))) * _SPREAD + hashes
    return total


def _canonical(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Give numbers that are equal the same bits; Polars hashes nulls of all types alike."""
    if kind == pl.UInt64:
        return column.reinterpret(signed=True)
    if kind.is_decimal():
        column, kind = column.cast(pl.Float64), pl.Float64()
    if kind.is_float():
        number = column.cast(pl.Float64).fill_nan(float("nan"))  # there are NaNs of many bits
        whole = number.cast(pl.Int64, strict=False)
        # What has a fraction goes by its bits, taken for an integer so that both are of one type.
        return (
            pl.when(whole.cast(pl.Float64) == number)
            .then(whole)
            .otherwise(number.reinterpret(dtype=pl.Int64))
        )
    return column.cast(pl.Int64) if kind.is_integer() or kind == pl.Boolean else column


def _in_one_unit(block: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Bring times to microseconds: blocks of one data set may have them in different units."""
    for name in keys:
        index = block.schema.get_field_index(name)
        if index < 0:
            continue  # told to the user, with what there is, by `key_frame`
        kind = block.schema.field(index).type
        if pa.types.is_timestamp(kind):
            same = pa.timestamp("us", kind.tz)
        elif pa.types.is_duration(kind):
            same = pa.duration("us")
        elif pa.types.is_time(kind):
            same = pa.time64("us")
        elif pa.types.is_date(kind):
            same = pa.date32()
        else:
            continue
        if same != kind:
            block = block.set_column(index, name, block.column(index).cast(same, safe=False))
    return block


def permute(block: pa.Table, seed: int | Sequence[int]) -> pa.Table:
    """Return the rows in a random order, every order equally likely.

    Args:
        block: The table to put in another order.
        seed: The same seed gives the same order for a block of the same length. Give each block one of its own, for
            example `[seed, index]`.
    """
    # Polars shuffles in a third of the time, but takes a plain number: NumPy makes one of what its generators take.
    (mixed,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    order = pl.select(pl.int_range(block.num_rows, dtype=pl.UInt32).shuffle(seed=int(mixed))).to_series()
    return taking.take(block, order)
