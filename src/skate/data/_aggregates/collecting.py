"""Aggregations with a list of values as their accumulator."""

from __future__ import annotations

import enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._aggregates.base import AggregateFnV2, target
from skate.data._arguments import SHARE, checked

__all__ = ["AsList", "CountDistinct", "Quantile", "Unique", "ValueCounter"]


class Quantile(AggregateFnV2[list[Any], float]):
    """Compute a quantile of a numeric column, with linear interpolation.

    The accumulator contains all values of a group: use `ApproximateQuantile` for large groups.

    Args:
        on: The column.
        q: The quantile, from 0 to 1; the median by default.
        ignore_nulls: Skip nulls; otherwise one null makes the result null.
        alias_name: The name of the result.

    Raises:
        ValueError: If `q` is not from 0 to 1.
    """

    @checked("on", q=SHARE)
    def __init__(
        self, on: str | None = None, q: float = 0.5, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile must be between 0 and 1, not {q!r}")
        super().__init__(alias_name or f"quantile({on or ''})", list, on=on, ignore_nulls=ignore_nulls)
        self.q = q

    def aggregate_block(self, block: pa.Table) -> list[Any]:
        """Return the values of a block."""
        return _values(self, block)

    def combine(self, current_accumulator: list[Any], new: list[Any]) -> list[Any]:
        """Return the values of both accumulators."""
        return [*current_accumulator, *new]

    def finalize(self, accumulator: list[Any]) -> float | None:
        """Return the quantile; None without values."""
        if None in accumulator and not self.ignore_nulls:
            return None
        result: float | None = pc.quantile(pa.array(accumulator), q=self.q)[0].as_py()
        return result


class AsList(AggregateFnV2[list[Any], list[Any]]):
    """Collect the values of a column in order.

    Args:
        on: The column.
        alias_name: The name of the result.
        ignore_nulls: Skip nulls.
    """

    @checked("on")
    def __init__(self, on: str, alias_name: str | None = None, ignore_nulls: bool = False) -> None:
        super().__init__(alias_name or f"list({on})", list, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> list[Any]:
        """Return the values of a block."""
        return _values(self, block)

    def combine(self, current_accumulator: list[Any], new: list[Any]) -> list[Any]:
        """Return the values of both accumulators."""
        return [*current_accumulator, *new]


class Unique(AggregateFnV2[list[Any], list[Any]]):
    """Collect the distinct values of a column, in the order of their first appearance.

    Args:
        on: The column.
        ignore_nulls: Exclude null.
        alias_name: The name of the result.
        encode_lists: For a column of lists: `True` or `ListEncodingMode.FLATTEN` collects the elements of all lists;
            otherwise whole lists are the values.
    """

    class ListEncodingMode(enum.StrEnum):
        """The values that are distinct in a column of lists: elements or whole lists."""

        FLATTEN = "FLATTEN"
        HASH = "HASH"

    @checked("on")
    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = False,
        alias_name: str | None = None,
        encode_lists: bool | Unique.ListEncodingMode | None = None,
    ) -> None:
        super().__init__(alias_name or f"unique({on or ''})", list, on=on, ignore_nulls=ignore_nulls)
        self.flattens = encode_lists is True or encode_lists is Unique.ListEncodingMode.FLATTEN

    def aggregate_block(self, block: pa.Table) -> list[Any]:
        """Return the distinct values of a block."""
        values = _values(self, block)
        if self.flattens:
            values = [
                item for value in values for item in value or [] if item is not None or not self.ignore_nulls
            ]
        return _distinct(values)

    def combine(self, current_accumulator: list[Any], new: list[Any]) -> list[Any]:
        """Return the distinct values of both accumulators."""
        return _distinct([*current_accumulator, *new])


class CountDistinct(Unique):
    """Count the distinct values of a column.

    Args:
        on: The column.
        ignore_nulls: Do not count null.
        alias_name: The name of the result.
    """

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(on, ignore_nulls, alias_name or f"count_distinct({on})")

    def finalize(self, accumulator: list[Any]) -> int:  # type: ignore[override]  # as in Ray, of which this is a kind
        """Return the number of distinct values."""
        return len(accumulator)


class ValueCounter(AggregateFnV2[dict[str, list[Any]], dict[str, list[Any]]]):
    """Count the occurrences of each value of a column: `{"values": [...], "counts": [...]}`.

    Args:
        on: The column.
        alias_name: The name of the result.
    """

    @checked("on")
    def __init__(self, on: str, alias_name: str | None = None) -> None:
        super().__init__(alias_name or f"value_counter({on})", _no_counts, on=on, ignore_nulls=True)

    def aggregate_block(self, block: pa.Table) -> dict[str, list[Any]]:
        """Return the counts of a block."""
        values = target(self, block).to_pylist()
        return self.combine(_no_counts(), {"values": values, "counts": [1] * len(values)})

    def combine(
        self, current_accumulator: dict[str, list[Any]], new: dict[str, list[Any]]
    ) -> dict[str, list[Any]]:
        """Return the counts of both accumulators."""
        counts = dict(zip(current_accumulator["values"], current_accumulator["counts"], strict=True))
        for value, count in zip(new["values"], new["counts"], strict=True):
            counts[value] = counts.get(value, 0) + count
        return {"values": list(counts), "counts": list(counts.values())}


def _values(agg: AggregateFnV2[Any, Any], block: pa.Table) -> list[Any]:
    column = target(agg, block)
    values: list[Any] = (column.drop_null() if agg.ignore_nulls else column).to_pylist()
    return values


def _distinct(values: list[Any]) -> list[Any]:
    try:
        return list(dict.fromkeys(values))
    except TypeError:  # lists and dicts are not hashable
        return [value for i, value in enumerate(values) if value not in values[:i]]


def _no_counts() -> dict[str, list[Any]]:
    return {"values": [], "counts": []}
