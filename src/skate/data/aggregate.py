"""Aggregations: what `Dataset.aggregate` and `GroupedData.aggregate` take.

Each class here names its result after itself and its column, as in "sum(price)", unless `alias_name` is given. The
engine computes them with vectorized kernels; their methods do the same for one block at a time, and are there for
subclasses that change a step.
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
