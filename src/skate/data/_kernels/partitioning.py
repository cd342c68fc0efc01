"""Partition the rows of a block by the hash of their keys or at random, and permute rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from skate.data._kernels import keys as key_columns
from skate.data._kernels import taking

# A multiplier with well-distributed bits, to mix the hash of one key before the next is added.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def hash_partition(block: pa.Table, keys: Sequence[str], parts: int, seed: int = 0) -> list[pa.Table]:
    """Partition rows so that equal keys share a partition, in every process and for every block.

    Keys are compared by value, not by layout: 1 as int32, int64 or float, a string in any of Arrow's string types, 0.0
    and -0.0, NaN and NaN, null and null. Rows within a partition keep the order of the block.

    Args:
        block: The block.
        keys: The key columns.
        parts: Number of partitions.
        seed: A different seed gives an independent distribution.

    Returns:
        The partitions, as slices of one new table.

    Raises:
        ValueError: A key column is missing.
        TypeError: A key column, such as lists or tensors, cannot be hashed.
    """
    if not block.num_rows:
        return [block] * parts
    hashes = key_hashes(block, keys, seed)
    # The high bits are better mixed; this maps them evenly to any number of partitions.
    numbers = ((hashes >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)
    return split(block, numbers, parts)


def random_partition(block: pa.Table, parts: int, seed: int | Sequence[int]) -> list[pa.Table]:
    """Assign rows to partitions at random, uniformly.

    If the partitions of all blocks are combined and each is then permuted with `permute`, every order of the dataset
    is equally likely.

    Args:
        block: The block.
        parts: Number of partitions.
        seed: The same seed gives the same partitions. Pass a different one for each block, for example `[seed, index]`.
    """
    numbers = np.random.default_rng(seed).integers(parts, size=block.num_rows)
    return split(block, numbers, parts)


def split(block: pa.Table, numbers: npt.NDArray[Any], parts: int) -> list[pa.Table]:
    """Return the rows of each partition number, in the order of the block, as slices of one new table."""
    if parts == 1:
        return [block]
    # NumPy sorts small integer types in linear time, by counting.
    small = numbers.astype(np.uint8 if parts <= 2**8 else np.uint16 if parts <= 2**16 else np.uint32)
    order = np.argsort(small, kind="stable").astype(np.uint32)
    stops = np.cumsum(np.bincount(small, minlength=parts))
    grouped = taking.take(block, order)
    starts = np.concatenate([[0], stops[:-1]])
    return [grouped.slice(int(start), int(stop - start)) for start, stop in zip(starts, stops, strict=True)]


def key_hashes(block: pa.Table, keys: Sequence[str], seed: int = 0) -> npt.NDArray[np.uint64]:
    """Return a hash of the keys of each row that is the same in every process."""
    frame = key_columns.key_frame(_unify_units(block, keys), keys, "partition by")
    total = np.zeros(block.num_rows, np.uint64)
    for name in frame.columns:
        hashes = frame.select(_canonical(pl.col(name), frame.schema[name]).hash(seed)).to_series().to_numpy()
        total = (total ^ (total >> np.uint64(29))) * _MULTIPLIER + hashes
    return total


def _canonical(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Give equal numbers the same bits; Polars hashes nulls of all types alike."""
    if kind == pl.UInt64:
        return column.reinterpret(signed=True)
    if kind.is_decimal():
        column, kind = column.cast(pl.Float64), pl.Float64()
    if kind.is_float():
        number = column.cast(pl.Float64).fill_nan(float("nan"))  # NaN has many representations
        whole = number.cast(pl.Int64, strict=False)
        # A number with a fraction is represented by its bits as an integer, so that both cases have one type.
        return (
            pl.when(whole.cast(pl.Float64) == number)
            .then(whole)
            .otherwise(number.reinterpret(dtype=pl.Int64))
        )
    return column.cast(pl.Int64) if kind.is_integer() or kind == pl.Boolean else column


def _unify_units(block: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Convert times to microseconds, because blocks of one dataset may use different units."""
    for name in keys:
        index = block.schema.get_field_index(name)
        if index < 0:
            continue  # `key_frame` reports the missing column
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
    """Return the rows in a random order; all orders are equally likely.

    Args:
        block: The block.
        seed: The same seed gives the same order for blocks of the same length. Pass a different one for each block, for
            example `[seed, index]`.
    """
    # Polars shuffles in a third of the time but needs an integer seed, which NumPy derives.
    (mixed,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    order = pl.select(pl.int_range(block.num_rows, dtype=pl.UInt32).shuffle(seed=int(mixed))).to_series()
    return taking.take(block, order)
