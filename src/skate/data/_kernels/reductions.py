"""Built-in aggregations whose state is a few numbers per group, as Polars expressions.

Each consists of three functions: values to states, states to states, states to the result. States can be combined in
any order and any number of times. NaN follows IEEE 754: a sum with a NaN is NaN, regardless of how rows are split into
blocks; minimum, maximum and quantiles ignore NaN, as in Arrow and Ray.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from skate.data import aggregate

State = Callable[[str], pl.Expr]


class Reduction(abc.ABC):
    """The computation of one kind of aggregation."""

    # The state that has the type of the values, if any; Polars chooses the types of the others.
    typed_state: str | None = None
    # The state that has the widest type of the same kind; it has the null type if all values are null.
    widened_state: str | None = None
    numbers_only = True
    # Whether a null makes the whole result null unless nulls are ignored.
    nulls_count = True
    nan_is_null = False

    @abc.abstractmethod
    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        """Return the states of a group from the column of its values."""

    @abc.abstractmethod
    def combine(self, state: State) -> dict[str, pl.Expr]:
        """Return the states of a group from the states of several blocks."""

    @abc.abstractmethod
    def finalize(self, state: State, agg: Any) -> pl.Expr:
        """Return the result of a group from its states."""


class _Count(Reduction):
    numbers_only = False
    nulls_count = False

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        counted = value.count() if agg.get_target_column() and agg.ignore_nulls else pl.len()
        return {"count": counted.cast(pl.Int64)}

    def combine(self, state: State) -> dict[str, pl.Expr]:
        return {"count": state("count").sum()}

    def finalize(self, state: State, agg: Any) -> pl.Expr:
        return state("count")


class _Sum(Reduction):
    widened_state = "sum"

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        return {"sum": _sum_or_null(value)}

    def combine(self, state: State) -> dict[str, pl.Expr]:
        return {"sum": _sum_or_null(state("sum"))}

    def finalize(self, state: State, agg: Any) -> pl.Expr:
        return state("sum")


class _Min(Reduction):
    typed_state = "min"
    numbers_only = False

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        return {"min": value.min()}

    def combine(self, state: State) -> dict[str, pl.Expr]:
        return {"min": state("min").min()}

    def finalize(self, state: State, agg: Any) -> pl.Expr:
        return state("min")


class _Max(Reduction):
    typed_state: str | None = "max"
    numbers_only = False

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        return {"max": value.max()}

    def combine(self, state: State) -> dict[str, pl.Expr]:
        return {"max": state("max").max()}

    def finalize(self, state: State, agg: Any) -> pl.Expr:
        return state("max")


class _AbsMax(_Max):
    typed_state = None
    widened_state = "max"
    numbers_only = True

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        return {"max": value.abs().max()}


class _Mean(Reduction):
    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        return {"sum": value.cast(pl.Float64).sum(), "count": value.count().cast(pl.Int64)}

    def combine(self, state: State) -> dict[str, pl.Expr]:
        return {"sum": state("sum").sum(), "count": state("count").sum()}

    def finalize(self, state: State, agg: Any) -> pl.Expr:
        return pl.when(state("count") > 0).then(state("sum") / state("count"))


class _Std(Reduction):
    """Combine count, mean, and the sum of squared differences from the mean, which is numerically stable."""

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        number = value.cast(pl.Float64)
        count = value.count().cast(pl.Int64)
        return {
            "count": count,
            "mean": number.mean().fill_null(0.0),
            "squares": (number.var(ddof=0) * count).fill_null(0.0),
        }

    def combine(self, state: State) -> dict[str, pl.Expr]:
        count = state("count").sum()
        mean = (state("mean") * state("count")).sum() / count
        between = (state("count") * (state("mean") - mean).pow(2)).sum()
        return {
            "count": count,
            "mean": pl.when(count > 0).then(mean).otherwise(0.0),
            "squares": pl.when(count > 0).then(state("squares").sum() + between).otherwise(0.0),
        }

    def finalize(self, state: State, agg: Any) -> pl.Expr:
        freedom = state("count") - agg.ddof
        return (
            pl.when(state("count") == 0)
            .then(None)
            .when(freedom > 0)
            .then((state("squares") / freedom).sqrt())
            .otherwise(float("nan"))
        )


class _MissingValuePercentage(Reduction):
    numbers_only = False
    nulls_count = False
    nan_is_null = True

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        return {"part": value.null_count().cast(pl.Int64), "count": pl.len().cast(pl.Int64)}

    def combine(self, state: State) -> dict[str, pl.Expr]:
        return {"part": state("part").sum(), "count": state("count").sum()}

    def finalize(self, state: State, agg: Any) -> pl.Expr:
        return pl.when(state("count") > 0).then(state("part") * 100.0 / state("count"))


class _ZeroPercentage(_MissingValuePercentage):
    numbers_only = True
    nan_is_null = False

    def partial(self, value: pl.Expr, agg: Any) -> dict[str, pl.Expr]:
        counted = value.count() if agg.ignore_nulls else pl.len()
        return {"part": (value == 0).sum().cast(pl.Int64), "count": counted.cast(pl.Int64)}


def _sum_or_null(value: pl.Expr) -> pl.Expr:
    """Return the sum, or null instead of 0 if there are no values."""
    return pl.when(value.count() > 0).then(value.sum())


# By exact type: a subclass may override any step, so it is treated as a user-defined aggregation.
REDUCTIONS: dict[type, Reduction] = {
    aggregate.Count: _Count(),
    aggregate.Sum: _Sum(),
    aggregate.Min: _Min(),
    aggregate.Max: _Max(),
    aggregate.AbsMax: _AbsMax(),
    aggregate.Mean: _Mean(),
    aggregate.Std: _Std(),
    aggregate.MissingValuePercentage: _MissingValuePercentage(),
    aggregate.ZeroPercentage: _ZeroPercentage(),
}


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type can be added."""
    is_ = pa.types
    return bool(
        is_.is_integer(kind)
        or is_.is_floating(kind)
        or is_.is_decimal(kind)
        or is_.is_boolean(kind)
        or is_.is_null(kind)
    )
