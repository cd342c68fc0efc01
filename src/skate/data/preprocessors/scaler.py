"""Scalers: shift and scale numeric columns by their statistics."""

from __future__ import annotations

import abc
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skate.data._arguments import POSITIVE, SHARE, checked
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, numbers_of, numbers_to_column
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.aggregate import AbsMax, ApproximateQuantile, Max, Mean, Min, Std
from skate.data.preprocessor import Preprocessor
from skate.data.util.data_batch_conversion import BatchFormat

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["MaxAbsScaler", "MinMaxScaler", "RobustScaler", "StandardScaler"]

# A column whose spread is within rounding errors counts as constant and is not scaled.
_CONSTANT = 1e-8


class _Scaler(ColumnPreprocessor):
    """Shared implementation: subtract one number from each column and divide by another."""

    columns = Option[list[str]]()
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(self, columns: list[str], output_columns: list[str] | None = None) -> None:
        super().__init__()
        self._columns = columns
        self._output_columns = resolve_outputs(columns, output_columns)

    @abc.abstractmethod
    def _center_and_spread(self, column: str) -> tuple[float | None, float | None]:
        """Return the number to subtract and the divisor; None if there were no values."""

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        center, spread = self._center_and_spread(name)
        if center is None or spread is None:
            return pa.nulls(table.num_rows, pa.float64())
        # Statistics of decimals are decimals, which do not mix with floats.
        moved = numbers_of(table, name, self) - float(center)
        return numbers_to_column(moved / float(spread))


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.standard_scaler")
class StandardScaler(_Scaler):
    """Scale columns to a mean of 0 and a standard deviation of 1.

    The standard deviation is that of the population. A constant column becomes zero. Nulls stay null.

    Args:
        columns: The columns.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> StandardScaler(["id"]).fit_transform(skate.data.range(2)).take_all()
    [{'id': -1.0}, {'id': 1.0}]
    """

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """Return Arrow: tables are transformed to tables."""
        return BatchFormat.ARROW

    def _fit(self, ds: Dataset) -> Preprocessor:
        self.stat_computation_plan.add_aggregator(aggregator_fn=Mean, columns=self.columns)
        self.stat_computation_plan.add_aggregator(aggregator_fn=partial(Std, ddof=0), columns=self.columns)
        return self

    def _center_and_spread(self, column: str) -> tuple[float | None, float | None]:
        spread = self.stats_[f"std({column})"]
        constant = spread is not None and spread < _CONSTANT
        return self.stats_[f"mean({column})"], 1 if constant else spread


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.min_max_scaler")
class MinMaxScaler(_Scaler):
    """Scale columns to the range from 0 to 1.

    A constant column becomes zero. Nulls stay null.

    Args:
        columns: The columns.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> MinMaxScaler(["id"], output_columns=["part"]).fit_transform(skate.data.range(3)).take(2)
    [{'id': 0, 'part': 0.0}, {'id': 1, 'part': 0.5}]
    """

    def _fit(self, ds: Dataset) -> Preprocessor:
        self.stat_computation_plan.add_aggregator(aggregator_fn=Min, columns=self.columns)
        self.stat_computation_plan.add_aggregator(aggregator_fn=Max, columns=self.columns)
        return self

    def _center_and_spread(self, column: str) -> tuple[float | None, float | None]:
        least, most = self.stats_[f"min({column})"], self.stats_[f"max({column})"]
        if least is None or most is None:
            return None, None
        return least, 1 if most - least < _CONSTANT else most - least


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.max_abs_scaler")
class MaxAbsScaler(_Scaler):
    """Divide columns by their largest absolute value, so that they lie between -1 and 1; zero stays zero.

    Args:
        columns: The columns.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> MaxAbsScaler(["item"]).fit_transform(skate.data.from_items([-4, 2])).take_all()
    [{'item': -1.0}, {'item': 0.5}]
    """

    def _fit(self, ds: Dataset) -> Preprocessor:
        self.stat_computation_plan.add_aggregator(aggregator_fn=AbsMax, columns=self.columns)
        return self

    def _center_and_spread(self, column: str) -> tuple[float | None, float | None]:
        most = self.stats_[f"abs_max({column})"]
        return 0, 1 if most == 0 else most


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.robust_scaler")
class RobustScaler(_Scaler):
    """Subtract the median and divide by the distance between two quantiles, which is robust to outliers.

    Quantiles of many rows are approximate; see `skate.data.aggregate.ApproximateQuantile`.

    Args:
        columns: The columns.
        quantile_range: The lower and the upper quantile, each from 0 to 1.
        output_columns: Names of the output columns; the input columns by default.
        quantile_precision: A larger value is more exact and takes more memory.

    Raises:
        ValueError: The number of output columns differs from the number of columns, or the quantiles are invalid.

    >>> import skate
    >>> scaler = RobustScaler(["item"])
    >>> scaler.fit_transform(skate.data.from_items([1, 2, 3, 4, 1000])).take(3)
    [{'item': -1.0}, {'item': -0.5}, {'item': 0.0}]
    """

    DEFAULT_QUANTILE_PRECISION = 800

    columns = Option[list[str]]()
    quantile_range = Option((0.25, 0.75))
    output_columns = Option[list[str]](like="columns")
    quantile_precision = Option(DEFAULT_QUANTILE_PRECISION, shown=False)

    @checked(quantile_range=SHARE, quantile_precision=POSITIVE)
    def __init__(
        self,
        columns: list[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: list[str] | None = None,
        quantile_precision: int = DEFAULT_QUANTILE_PRECISION,
    ) -> None:
        super().__init__(columns, output_columns)
        low, high = quantile_range
        if not 0 <= low < high <= 1:
            raise ValueError(
                f"quantile_range must be two increasing numbers from 0 to 1, as in (0.25, 0.75), got {quantile_range!r}"
            )
        self._quantile_range = quantile_range
        self._quantile_precision = quantile_precision

    def _fit(self, ds: Dataset) -> Preprocessor:
        low, high = self.quantile_range
        quantiles = partial(
            ApproximateQuantile, quantiles=[low, 0.5, high], quantile_precision=self.quantile_precision
        )
        self.stat_computation_plan.add_aggregator(aggregator_fn=quantiles, columns=self.columns)
        return self

    def _finish_fit(self, found: dict[str, Any]) -> dict[str, Any]:
        stats = {}
        for column, quantiles in zip(self.columns, found.values(), strict=True):
            kinds = ("low_quantile", "median", "high_quantile")
            for kind, value in zip(kinds, quantiles or (None, None, None), strict=True):
                stats[f"{kind}({column})"] = value
        return stats

    def _center_and_spread(self, column: str) -> tuple[float | None, float | None]:
        low, high = self.stats_[f"low_quantile({column})"], self.stats_[f"high_quantile({column})"]
        if low is None or high is None:
            return None, None
        return self.stats_[f"median({column})"], 1 if high == low else high - low
