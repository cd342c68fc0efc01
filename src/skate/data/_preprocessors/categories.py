"""Categories: the distinct values of a column, their counts, and their codes."""

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
    """Count the occurrences of each value of a column. NaN counts as null, which is None; lists become tuples.

    Args:
        on: The column.
        alias_name: Name of the result: a pickled dict, because Arrow has no type for keys of all kinds. `load_counts`
            unpickles it.
        elements: Count the elements of lists instead of whole lists.
    """

    def __init__(self, on: str, alias_name: str, *, elements: bool = False) -> None:
        super().__init__(alias_name, dict, on=on, ignore_nulls=True)
        self._column = on
        self._elements = elements

    def aggregate_block(self, block: pa.Table) -> dict[Any, int]:
        """Return the counts of a block."""
        return frequencies(block.column(self._column), elements=self._elements)

    def combine(self, current_accumulator: dict[Any, int], new: dict[Any, int]) -> dict[Any, int]:
        """Return the sum of both counts."""
        return add_counts(current_accumulator, new)

    def finalize(self, accumulator: dict[Any, int]) -> bytes:
        """Return the pickled counts."""
        return pickle.dumps(accumulator)


def load_counts(found: bytes | None) -> dict[Any, int]:
    """Unpickle the counts of an aggregate; an empty dataset has none."""
    return {} if found is None else pickle.loads(found)


def add_counts(first: dict[Any, int], second: Mapping[Any, int]) -> dict[Any, int]:
    """Add counts to `first` and return it."""
    for value, count in second.items():
        first[value] = first.get(value, 0) + count
    return first


def frequencies(column: Column, *, elements: bool = False) -> dict[Any, int]:
    """Return the number of occurrences of each value, in the order of first occurrence."""
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
        found = Counter(map(freeze, values.to_list(column)))
    # NaN does not equal itself, so each NaN would be a separate key in a dict.
    missing = sum(found.pop(value) for value in [value for value in found if value != value])
    return add_counts(counts, {**found, None: missing + found.get(None, 0)} if missing else found)


def _has_hash(column: Column) -> bool:
    return not (pa.types.is_nested(column.type) or is_extension(column.type) or pa.types.is_null(column.type))


def freeze(value: Any) -> Any:
    """Convert lists and arrays to tuples, which are hashable."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(map(freeze, value)) if isinstance(value, list | tuple) else value


def sort_values(found: Iterable[Any]) -> list[Any]:
    """Return the values sorted; None comes first, also within tuples."""
    return sorted(found, key=_rank)


def _rank(value: Any) -> Any:
    return tuple(map(_rank, value)) if isinstance(value, tuple) else (value is not None, value)


def assign_codes(counts: Mapping[Any, int], name: str, limit: int | None = None) -> dict[Any, int]:
    """Assign a code to each value, in the order of the values.

    Args:
        counts: Number of occurrences of each value.
        name: Name of the column, for errors.
        limit: Number of values that get a code, the most frequent first; all by default.

    Raises:
        ValueError: A value is None.
    """
    if None in counts:
        raise ValueError(
            f"cannot encode the column {name!r}: {counts[None]} values are null. Fill them first, with"
            " SimpleImputer for example, or drop these rows."
        )
    kept = sort_values(counts)
    if limit is not None:
        most = sorted(kept, key=lambda value: -counts[value])[:limit]
        kept = sort_values(most)
    return {value: number for number, value in enumerate(kept)}


def as_codes(found: Any) -> dict[Any, int]:
    """Return the fitted codes of values, also from the two arrays that Ray saves."""
    if isinstance(found, tuple):
        keys, numbers = found
        return dict(zip(keys.to_pylist(), numbers.to_pylist(), strict=True))
    return found  # type: ignore[no-any-return]  # a statistic can be anything


def check_no_nulls(column: Column, name: str) -> None:
    """Raise an error if a value is null.

    Raises:
        ValueError: A value is null.
    """
    missing = pc.sum(pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))).as_py()
    if missing:
        raise ValueError(
            f"cannot encode the column {name!r}: {missing} of {len(column)} values are null. Fill them first, with"
            " SimpleImputer for example, or drop these rows."
        )


def codes_for(column: Column, numbers: Mapping[Any, int]) -> npt.NDArray[np.int64]:
    """Return the code of each value; -1 for unknown values."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if _has_hash(column):
        try:
            keys = pa.array(list(numbers), column.type)
        except CONVERSION_ERRORS:
            pass  # values of another type than the fitted ones; 1 and 1.0 are still equal
        else:
            found = pc.index_in(column, value_set=keys).fill_null(-1).to_numpy(zero_copy_only=False)
            # In a dict that the user passed, codes need not follow the order of values.
            by_position = np.append(np.fromiter(numbers.values(), np.int64, len(numbers)), -1)
            return np.asarray(by_position[found])
    items = values.to_list(column)
    return np.fromiter((numbers.get(freeze(item), -1) for item in items), np.int64, len(items))


def codes_to_column(codes: npt.NDArray[np.int64]) -> pa.Array:
    """Return codes as a column, null for -1."""
    return pa.array(codes, mask=codes < 0)


def count_per_row(
    row_of: npt.NDArray[Any], codes: npt.NDArray[np.int64], rows: int, width: int
) -> npt.NDArray[np.int64]:
    """Return a matrix of the number of occurrences of each code in each row.

    Args:
        row_of: Row of each value.
        codes: Code of each value; -1 is not counted.
        rows: Number of rows.
        width: Number of codes.
    """
    known = codes >= 0
    cells = np.bincount(row_of[known] * width + codes[known], minlength=rows * width)
    return cells.reshape(rows, width)
