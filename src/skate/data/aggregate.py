"""Aggregations for `Dataset.aggregate` and `GroupedData.aggregate`.

The name of a result is that of the class and its column, as in "sum(price)", unless `alias_name` is given. Vectorized
kernels compute the aggregations; the methods of the classes do the same for one block at a time, for subclasses that
override a step.
"""

from __future__ import annotations

from skate.data._aggregates.base import AggregateFn, AggregateFnV2
from skate.data._aggregates.collecting import AsList, CountDistinct, Quantile, Unique, ValueCounter
from skate.data._aggregates.reducing import (
    AbsMax,
    Count,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Std,
    Sum,
    ZeroPercentage,
)
from skate.data._aggregates.sketches import ApproximateQuantile, ApproximateTopK

__all__ = [
    "AbsMax",
    "AggregateFn",
    "AggregateFnV2",
    "ApproximateQuantile",
    "ApproximateTopK",
    "AsList",
    "Count",
    "CountDistinct",
    "Max",
    "Mean",
    "Min",
    "MissingValuePercentage",
    "Quantile",
    "Std",
    "Sum",
    "Unique",
    "ValueCounter",
    "ZeroPercentage",
]
