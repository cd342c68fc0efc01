"""Aggregations with a few numbers as their accumulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._aggregates.base import AggregateFnV2, target
from skate.data._arguments import NON_NEGATIVE, checked

__all__ = ["AbsMax", "Count", "Max", "Mean", "Min", "MissingValuePercentage", "Std", "Sum", "ZeroPercentage"]


def _infinity() -> float:
    return math.inf


def _minus_infinity() -> float:
    return -math.inf


class Count(AggregateFnV2[int, int]):
    """Count rows, or the values of a column.

    Args:
        on: The column; without it, rows are counted.
        ignore_nulls: Do not count nulls of the column.
        alias_name: The name of the result.

    Example:
        >>> Count("x", ignore_nulls=True).aggregate_block(pa.table({"x": [1, None]}))
        1
    """

    @checked("on")
    def __init__(
        self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None
    ) -> None:
        super().__init__(alias_name or f"count({on or ''})", int, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> int:
        """Return the count of a block."""
        nulls = target(self, block).null_count if self.get_target_column() and self.ignore_nulls else 0
        return int(block.num_rows - nulls)

    def combine(self, current_accumulator: int, new: int) -> int:
        """Return the sum of two counts."""
        return current_accumulator + new


class Sum(AggregateFnV2[Any, Any]):
    """Compute the sum of a column; the sum of no values is null.

    Args:
        on: The column.
        ignore_nulls: Skip nulls; otherwise one null makes the result null.
        alias_name: The name of the result.

    Example:
        >>> Sum("x").aggregate_block(pa.table({"x": [1, None, 2]}))
        3
    """

    @checked("on")
    def __init__(
        self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__(alias_name or f"sum({on or ''})", int, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> Any:
        """Return the sum of a block."""
        return pc.sum(target(self, block), skip_nulls=self.ignore_nulls).as_py()

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        """Return the sum of two sums."""
        return current_accumulator + new


class Min(AggregateFnV2[Any, Any]):
    """Compute the minimum of a column.

    Args:
        on: The column.
        ignore_nulls: Skip nulls; otherwise one null makes the result null.
        alias_name: The name of the result.
        zero_factory: Returns a value larger than any in the column; for subclasses.
    """

    @checked("on")
    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], Any] = _infinity,
    ) -> None:
        super().__init__(alias_name or f"min({on or ''})", zero_factory, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> Any:
        """Return the smallest value of a block."""
        return pc.min(target(self, block), skip_nulls=self.ignore_nulls).as_py()

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        """Return the smaller of two values."""
        return min(current_accumulator, new)


class Max(AggregateFnV2[Any, Any]):
    """Compute the maximum of a column.

    Args:
        on: The column.
        ignore_nulls: Skip nulls; otherwise one null makes the result null.
        alias_name: The name of the result.
        zero_factory: Returns a value smaller than any in the column; for subclasses.
    """

    @checked("on")
    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], Any] = _minus_infinity,
    ) -> None:
        super().__init__(alias_name or f"max({on or ''})", zero_factory, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> Any:
        """Return the largest value of a block."""
        return pc.max(target(self, block), skip_nulls=self.ignore_nulls).as_py()

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        """Return the larger of two values."""
        return max(current_accumulator, new)


class AbsMax(AggregateFnV2[Any, Any]):
    """Compute the maximum absolute value of a numeric column.

    Args:
        on: The column.
        ignore_nulls: Skip nulls; otherwise one null makes the result null.
        alias_name: The name of the result.
        zero_factory: Returns the initial value; for subclasses.
    """

    @checked("on")
    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Callable[[], Any] = int,
    ) -> None:
        super().__init__(alias_name or f"abs_max({on or ''})", zero_factory, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> Any:
        """Return the largest absolute value of a block."""
        return pc.max(pc.abs(target(self, block)), skip_nulls=self.ignore_nulls).as_py()

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        """Return the larger of two values."""
        return max(current_accumulator, new)


class Mean(AggregateFnV2[list[Any], float]):
    """Compute the mean of a numeric column.

    Args:
        on: The column.
        ignore_nulls: Skip nulls; otherwise one null makes the result null.
        alias_name: The name of the result.
    """

    @checked("on")
    def __init__(
        self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__(alias_name or f"mean({on or ''})", _zeros_of_two, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> list[Any]:
        """Return the sum and the number of values of a block."""
        column = target(self, block)
        total = pc.sum(column, skip_nulls=self.ignore_nulls).as_py()
        return _or_nothing([total, len(column) - column.null_count], if_none=total)

    def combine(self, current_accumulator: list[Any], new: list[Any]) -> list[Any]:
        """Return the sums of both accumulators."""
        return [mine + its for mine, its in zip(current_accumulator, new, strict=True)]

    def finalize(self, accumulator: list[Any]) -> float | None:
        """Return the mean."""
        return accumulator[0] / accumulator[1] if accumulator[1] else None


class Std(AggregateFnV2[list[Any], float]):
    """Compute the standard deviation of a numeric column.

    Args:
        on: The column.
        ddof: Delta degrees of freedom: 1 for a sample, 0 for the whole population.
        ignore_nulls: Skip nulls; otherwise one null makes the result null.
        alias_name: The name of the result.
    """

    @checked("on", ddof=NON_NEGATIVE)
    def __init__(
        self, on: str | None = None, ddof: int = 1, ignore_nulls: bool = True, alias_name: str | None = None
    ) -> None:
        super().__init__(alias_name or f"std({on or ''})", _zeros_of_three, on=on, ignore_nulls=ignore_nulls)
        self.ddof = ddof

    def aggregate_block(self, block: pa.Table) -> list[Any]:
        """Return the sum of squared distances from the mean, the mean, and the number of values."""
        column = target(self, block)
        count = len(column) - column.null_count
        mean = pc.mean(column, skip_nulls=self.ignore_nulls).as_py()
        variance = pc.variance(column, ddof=0, skip_nulls=self.ignore_nulls).as_py()
        return _or_nothing([(variance or 0.0) * count, float(mean or 0.0), count], if_none=mean)

    def combine(self, current_accumulator: list[Any], new: list[Any]) -> list[Any]:
        """Return the accumulator of all values."""
        squares, mean, count = current_accumulator
        new_squares, new_mean, new_count = new
        total = count + new_count
        if not total:
            return current_accumulator
        apart = new_mean - mean
        return [
            squares + new_squares + apart * apart * count * new_count / total,
            (mean * count + new_mean * new_count) / total,
            total,
        ]

    def finalize(self, accumulator: list[Any]) -> float | None:
        """Return the standard deviation; NaN for too few values."""
        squares, _, count = accumulator
        return math.sqrt(squares / (count - self.ddof)) if count > self.ddof else math.nan


class MissingValuePercentage(AggregateFnV2[list[int], float]):
    """Compute the percentage of null and NaN values of a column.

    Args:
        on: The column.
        alias_name: The name of the result.
    """

    @checked("on")
    def __init__(self, on: str, alias_name: str | None = None) -> None:
        super().__init__(alias_name or f"missing_pct({on})", _zeros_of_two, on=on, ignore_nulls=False)

    def aggregate_block(self, block: pa.Table) -> list[int]:
        """Return the number of missing values and of rows."""
        return [pc.sum(target(self, block).is_null(nan_is_null=True)).as_py() or 0, block.num_rows]

    def combine(self, current_accumulator: list[int], new: list[int]) -> list[int]:
        """Return the sums of both accumulators."""
        return [mine + its for mine, its in zip(current_accumulator, new, strict=True)]

    def finalize(self, accumulator: list[int]) -> float | None:
        """Return the percentage; None without rows."""
        return accumulator[0] * 100.0 / accumulator[1] if accumulator[1] else None


class ZeroPercentage(AggregateFnV2[list[int], float]):
    """Compute the percentage of zeros of a numeric column.

    Args:
        on: The column.
        ignore_nulls: Exclude nulls from the total.
        alias_name: The name of the result.
    """

    @checked("on")
    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__(alias_name or f"zero_pct({on})", _zeros_of_two, on=on, ignore_nulls=ignore_nulls)

    def aggregate_block(self, block: pa.Table) -> list[int]:
        """Return the number of zeros and of values."""
        column = target(self, block)
        zeros = pc.sum(pc.equal(column, 0)).as_py() or 0
        return [zeros, len(column) - (column.null_count if self.ignore_nulls else 0)]

    def combine(self, current_accumulator: list[int], new: list[int]) -> list[int]:
        """Return the sums of both accumulators."""
        return [mine + its for mine, its in zip(current_accumulator, new, strict=True)]

    def finalize(self, accumulator: list[int]) -> float | None:
        """Return the percentage; None without values."""
        return accumulator[0] * 100.0 / accumulator[1] if accumulator[1] else None


def _or_nothing(accumulator: list[Any], *, if_none: Any) -> list[Any]:
    # None means "no values yet": by `ignore_nulls`, a combination skips it, or results in None.
    return accumulator if if_none is not None else None  # type: ignore[return-value]


def _zeros_of_two() -> list[Any]:
    return [0, 0]


def _zeros_of_three() -> list[Any]:
    return [0.0, 0.0, 0]
