"""Summary statistics of the columns of a dataset: counts, means, extremes, frequent values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from skate.air._optional import load
from skate.data._aggregates.base import AggregateFn
from skate.data.aggregate import (
    ApproximateQuantile,
    ApproximateTopK,
    Count,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Std,
    ZeroPercentage,
)
from skate.data.datatype import DataType, TypeCategory

__all__ = ["DatasetSummary"]

# Returns the aggregations of a column, by its name.
Statistics = Callable[[str], Sequence[AggregateFn]]
Overrides = Mapping[DataType | TypeCategory | str, Statistics]

_MOST_FREQUENT = 10  # number of values listed for a text column


@dataclass(frozen=True)
class DatasetSummary:
    """The result of `Dataset.summary`: statistics of columns.

    Attributes:
        dataset_schema: The schema of the dataset.
        columns: The columns of the statistics.
    """

    STATISTIC_COLUMN: ClassVar[str] = "statistic"

    dataset_schema: pa.Schema
    columns: list[str]
    _values: Mapping[str, Mapping[str, Any]] = field(
        repr=False
    )  # by column, and by the name of the statistic

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row per statistic and a column per column of the dataset.

        >>> import skate
        >>> frame = skate.data.from_items([{"x": 1}, {"x": 3}]).summary().to_pandas()
        >>> frame.set_index("statistic").loc["mean", "x"]
        np.float64(2.0)
        """
        pandas = load("pandas", "DatasetSummary.to_pandas")
        names = sorted({name for values in self._values.values() for name in values})
        frame = pandas.DataFrame({self.STATISTIC_COLUMN: names})
        for column in sorted(self.columns):
            frame[column] = [self._values[column].get(name) for name in names]
        return frame

    def get_column_stats(self, column: str) -> Any:
        """Return a DataFrame with the columns `statistic` and `value`, for one column of the dataset."""
        if column not in self.columns:
            raise ValueError(f"Column {column!r} not found in the summary, which has {self.columns}")
        return self.to_pandas()[[self.STATISTIC_COLUMN, column]].rename(columns={column: "value"})


def statistics_of(
    schema: pa.Schema, columns: Sequence[str], overrides: Overrides
) -> dict[str, list[AggregateFn]]:
    """Return the aggregations of each column.

    Args:
        schema: The schema of the dataset.
        columns: The names of the columns.
        overrides: Other aggregations by type or category of types.
    """
    found = {}
    for column in columns:
        kind = DataType.from_arrow(schema.field(column).type)
        chosen = [make for key, make in overrides.items() if _matches(kind, key)]
        found[column] = list((chosen or [_default(kind)])[0](column))
    return found


def named_values(statistics: Mapping[str, Sequence[AggregateFn]], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of each column by name, from the row of all aggregations.

    A list, such as quantiles, becomes one statistic per element: "approx_quantile[0]".
    """
    result: dict[str, dict[str, Any]] = {}
    for column, aggregates in statistics.items():
        values = result[column] = {}
        for aggregate in aggregates:
            name = aggregate.name.removesuffix(f"({column})")
            value = row[aggregate.name]
            if isinstance(value, list):
                values.update((f"{name}[{place}]", each) for place, each in enumerate(value))
            else:
                values[name] = value
    return result


def _matches(kind: DataType, key: DataType | TypeCategory | str) -> bool:
    return kind == key if isinstance(key, DataType) else kind.is_of(key)


def _default(kind: DataType) -> Statistics:
    if kind.is_null_type():
        return _count
    if kind.is_numerical_type() or kind.is_boolean_type():
        return _of_numbers
    return _of_times if kind.is_temporal_type() else _of_others


def _count(column: str) -> list[AggregateFn]:
    return [Count(on=column, ignore_nulls=False)]


def _of_numbers(column: str) -> list[AggregateFn]:
    return [
        *_of_times(column),
        Mean(on=column),
        Std(on=column, ddof=0),
        ApproximateQuantile(on=column, quantiles=[0.5]),
        ZeroPercentage(on=column),
    ]


def _of_times(column: str) -> list[AggregateFn]:
    return [*_count(column), Min(on=column), Max(on=column), MissingValuePercentage(on=column)]


def _of_others(column: str) -> list[AggregateFn]:
    return [*_count(column), MissingValuePercentage(on=column), ApproximateTopK(on=column, k=_MOST_FREQUENT)]
