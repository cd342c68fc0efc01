"""Approximate aggregations, with an accumulator of bounded size."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._aggregates.base import AggregateFnV2
from skate.data._arguments import POSITIVE, SHARE, checked

__all__ = ["ApproximateQuantile", "ApproximateTopK"]

_Summary = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


class ApproximateQuantile(AggregateFnV2[_Summary, list[float]]):
    """Compute approximate quantiles of a numeric column, from a summary of fixed size.

    Up to eight times `quantile_precision` values are kept unchanged, and the result is exact. Larger groups keep values
    at equal distances in sorted order, with weights; each merge of summaries adds an error of less than
    1 / (8 · `quantile_precision`) of the rows.

    Args:
        on: The column; nulls and NaNs are skipped.
        quantiles: The quantiles, each from 0 to 1.
        quantile_precision: A larger value is more exact and uses more memory.
        alias_name: The name of the result.

    Raises:
        ValueError: If `quantiles` is empty or has a value outside 0 to 1, or the precision is not positive.

    Example:
        >>> median = ApproximateQuantile("x", quantiles=[0.5])
        >>> median.finalize(median.aggregate_block(pa.table({"x": [5.0, None, 15.0, 25.0]})))
        [15.0]
    """

    @checked("on", quantiles=SHARE, quantile_precision=POSITIVE)
    def __init__(
        self, on: str, quantiles: list[float], quantile_precision: int = 800, alias_name: str | None = None
    ) -> None:
        if not quantiles or not all(0 <= q <= 1 for q in quantiles):
            raise ValueError(f"quantiles must be one or more numbers between 0 and 1, not {quantiles!r}")
        if quantile_precision < 1:
            raise ValueError(f"quantile_precision must be positive, not {quantile_precision!r}")
        super().__init__(alias_name or f"approx_quantile({on})", _no_values, on=on, ignore_nulls=True)
        self._quantiles = list(quantiles)
        self._capacity = 8 * quantile_precision

    def aggregate_block(self, block: pa.Table) -> _Summary:
        """Return the summary of a block."""
        column = block.column(self.get_target_column()).drop_null()
        values = column.cast(pa.float64()).to_numpy()
        values = np.sort(values[~np.isnan(values)])
        return self._compacted(values, np.ones(len(values)))

    def combine(self, current_accumulator: _Summary, new: _Summary) -> _Summary:
        """Return the summary of both accumulators."""
        values = np.concatenate([current_accumulator[0], new[0]])
        order = np.argsort(values, kind="stable")
        return self._compacted(values[order], np.concatenate([current_accumulator[1], new[1]])[order])

    def finalize(self, accumulator: _Summary) -> list[float] | None:
        """Return, for each quantile, the smallest value with at least that proportion of rows up to it."""
        values, weights = accumulator
        if not len(values):
            return None
        ranks = np.cumsum(weights)
        # The rank just above q: of two middle values, the larger one is the median.
        at = np.searchsorted(ranks, np.array(self._quantiles) * ranks[-1], side="right")
        return [float(value) for value in values[np.minimum(at, len(values) - 1)]]

    def _compacted(self, values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> _Summary:
        if len(values) <= self._capacity:
            return values, weights
        ranks = np.cumsum(weights)
        # Keep the middle value of each of a number of equal intervals of rows.
        edges = np.linspace(0, ranks[-1], self._capacity // 2 + 1)
        middle = np.searchsorted(ranks, (edges[:-1] + edges[1:]) / 2)
        # Keep the extremes, for the quantiles 0 and 1.
        middle[0], middle[-1] = 0, len(values) - 1
        return values[middle], np.diff(edges)


class ApproximateTopK(AggregateFnV2[dict[Any, int], list[dict[str, Any]]]):
    """Find the most frequent values of a column, approximately for very many distinct values.

    With up to `2 ** log_capacity` distinct values, the result is exact. With more, each merge drops the rarest values,
    and a count is too low by at most the largest dropped count of each merge.

    Args:
        on: The column; nulls are skipped.
        k: Number of values to find.
        log_capacity: Base-2 logarithm of the number of distinct values to keep.
        alias_name: The name of the result, a list of `{column: value, "count": count}`, the most frequent value first.
        encode_lists: For a column of lists: count the elements of all lists, not whole lists.

    Raises:
        ValueError: If `k` or `log_capacity` is not positive.

    Example:
        >>> top = ApproximateTopK("word", k=1)
        >>> top.finalize(top.aggregate_block(pa.table({"word": ["a", "b", "a"]})))
        [{'word': 'a', 'count': 2}]
    """

    @checked("on", k=POSITIVE, log_capacity=POSITIVE)
    def __init__(
        self,
        on: str,
        k: int,
        log_capacity: int = 15,
        alias_name: str | None = None,
        encode_lists: bool = False,
    ) -> None:
        if k < 1 or log_capacity < 1:
            raise ValueError(f"k and log_capacity must be positive, not {k!r} and {log_capacity!r}")
        super().__init__(alias_name or f"approx_topk({on})", dict, on=on, ignore_nulls=True)
        self._k = k
        self._capacity = 1 << log_capacity
        self._encode_lists = encode_lists

    def aggregate_block(self, block: pa.Table) -> dict[Any, int]:
        """Return the counts of a block."""
        column = block.column(self.get_target_column()).drop_null()
        if self._encode_lists and (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            column = pc.list_flatten(column).drop_null()
        counts: dict[Any, int] = {}
        for value in column.to_pylist():
            key = _frozen(value)
            counts[key] = counts.get(key, 0) + 1
        return self._kept(counts)

    def combine(self, current_accumulator: dict[Any, int], new: dict[Any, int]) -> dict[Any, int]:
        """Return the counts of both accumulators."""
        counts = dict(current_accumulator)
        for key, count in new.items():
            counts[key] = counts.get(key, 0) + count
        return self._kept(counts)

    def finalize(self, accumulator: dict[Any, int]) -> list[dict[str, Any]]:
        """Return the most frequent values and their counts."""
        column = self.get_target_column()
        assert column is not None
        best = heapq.nlargest(self._k, accumulator.items(), key=lambda item: item[1])
        return [{column: _thawed(key), "count": count} for key, count in best]

    def _kept(self, counts: dict[Any, int]) -> dict[Any, int]:
        if len(counts) <= self._capacity:
            return counts
        return dict(heapq.nlargest(self._capacity, counts.items(), key=lambda item: item[1]))


def _no_values() -> _Summary:
    return np.empty(0), np.empty(0)


def _frozen(value: Any) -> Any:
    """Return lists as tuples, which are hashable."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, tuple) else value
