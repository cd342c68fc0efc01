"""Categories: the distinct values of a column, how often they occur, and their numbers."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._block import values
from skate.data._block.columns import CONVERSION_ERRORS
from skate.data._block.kinds import is_extension
from skate.data._preprocessors.columns import Column, as_lists, holds_lists
from skate.data.aggregate import AggregateFnV2


class Frequencies(AggregateFnV2[dict[Any, int], bytes]):
    """Count how often each value of a column occurs. NaN counts as null, which is None; lists are tuples.

    Args:
        on: The column.
        alias_name: The name of the result: a pickled dict, since Arrow has no type for keys of all kinds. `loaded`
            makes the dict of it.
        elements: Count the elements of lists, and not whole lists.
    """

    def __init__(self, on: str, alias_name: str, *, elements: bool = False) -> None:
        super().__init__(alias_name, dict, on=on, ignore_nulls=True)
        self._column = on
        self._elements = elements

    def aggregate_block(self, block: pa.Table) -> dict[Any, int]:
        """Return the counts of a block."""
        return frequencies(block.column(self._column), elements=self._elements)

    def combine(self, current_accumulator: dict[Any, int], new: dict[Any, int]) -> dict[Any, int]:
        """Return the counts of both."""
        return added(current_accumulator, new)

    def finalize(self, accumulator: dict[Any, int]) -> bytes:
        """Return the counts, pickled."""
        return pickle.dumps(accumulator)


def loaded(found: bytes | None) -> dict[Any, int]:
    """Return the counts that an aggregate has pickled; none of an empty dataset."""
    return {} if found is None else pickle.loads(found)


def added(first: dict[Any, int], second: Mapping[Any, int]) -> dict[Any, int]:
    """Add counts to others, and return these."""
    for value, count in second.items():
        first[value] = first.get(value, 0) + count
    return first


def frequencies(column: Column, *, elements: bool = False) -> dict[Any, int]:
    """Return how often each value of a column occurs, in the order of their first appearance."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    counts: dict[Any, int] = {}
    if elements and holds_lists(column):
        column = as_lists(column)
        if column.null_count:
            counts[None] = column.null_count
        column = pc.list_flatten(column)
    if _has_hash(column):
        counted = pc.value_counts(column)
        found = dict(
            zip(values.to_list(counted.field("values")), counted.field("counts").to_pylist(), strict=True)
        )
    else:
        found = Counter(map(frozen, values.to_list(column)))
    # NaN is not equal to itself: in a dict, each would be another value.
    missing = sum(found.pop(value) for value in [value for value in found if value != value])
    return added(counts, {**found, None: missing + found.get(None, 0)} if missing else found)


def _has_hash(column: Column) -> bool:
    return not (pa.types.is_nested(column.type) or is_extension(column.type) or pa.types.is_null(column.type))


def frozen(value: Any) -> Any:
    """Return lists and arrays as tuples, which a dict can have for keys."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def in_order(found: Iterable[Any]) -> list[Any]:
    """Return values sorted; None comes first, in tuples as well."""
    return sorted(found, key=_rank)


def _rank(value: Any) -> Any:
    return tuple(map(_rank, value)) if isinstance(value, tuple) else (value is not None, value)


def numbered(counts: Mapping[Any, int], name: str, limit: int | None = None) -> dict[Any, int]:
    """Return a number for each value, in the order of the values.

    Args:
        counts: How often each value occurs.
        name: The column, for errors.
        limit: How many values get a number: those that occur most often. All of them if not given.

    Raises:
        ValueError: One of them is None.
    """
    if None in counts:
        raise ValueError(
            f"cannot number the values of the column {name!r}: {counts[None]} of them are null. Fill them before, with"
            " SimpleImputer for example, or drop these rows."
        )
    kept = in_order(counts)
    if limit is not None:
        most = sorted(kept, key=lambda value: -counts[value])[:limit]
        kept = in_order(most)
    return {value: number for number, value in enumerate(kept)}


def as_numbers(found: Any) -> dict[Any, int]:
    """Return the numbers of values that were fitted, also those that Ray has saved as two arrays."""
    if isinstance(found, tuple):
        keys, numbers = found
        return dict(zip(keys.to_pylist(), numbers.to_pylist(), strict=True))
    return found  # type: ignore[no-any-return]  # a statistic can be anything


def check_no_nulls(column: Column, name: str) -> None:
    """Raise an error if a value is missing.

    Raises:
        ValueError: One is.
    """
    missing = pc.sum(pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))).as_py()
    if missing:
        raise ValueError(
            f"cannot encode the column {name!r}: {missing} of {len(column)} values are null. Fill them before, with"
            " SimpleImputer for example, or drop these rows."
        )


def numbers_for(column: Column, numbers: Mapping[Any, int]) -> npt.NDArray[np.int64]:
    """Return the number of each value; -1 for one that has none."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if _has_hash(column):
        try:
            keys = pa.array(list(numbers), column.type)
        except CONVERSION_ERRORS:
            pass  # values of another type than those that were fitted; 1 and 1.0 are still the same
        else:
            found = pc.index_in(column, value_set=keys).fill_null(-1).to_numpy(zero_copy_only=False)
            # In a dict that a user has made, numbers need not be those of the order.
            by_position = np.append(np.fromiter(numbers.values(), np.int64, len(numbers)), -1)
            return np.asarray(by_position[found])
    items = values.to_list(column)
    return np.fromiter((numbers.get(frozen(item), -1) for item in items), np.int64, len(items))


def of_codes(codes: npt.NDArray[np.int64]) -> pa.Array:
    """Return numbers of values as a column, null for -1."""
    return pa.array(codes, mask=codes < 0)


def counted_in_rows(
    row_of: npt.NDArray[Any], codes: npt.NDArray[np.int64], rows: int, width: int
) -> npt.NDArray[np.int64]:
    """Return a matrix that says how often each number occurs in each row.

    Args:
        row_of: The row of each value.
        codes: The number of each value; those with -1 are not counted.
        rows: How many rows there are.
        width: How many numbers there are.
    """
    known = codes >= 0
    cells = np.bincount(row_of[known] * width + codes[known], minlength=rows * width)
    return cells.reshape(rows, width)
