"""Imputation of missing values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._arguments import checked
from skate.data._block.columns import CONVERSION_ERRORS
from skate.data._preprocessors.categories import Frequencies, load_counts
from skate.data._preprocessors.columns import Column, ColumnPreprocessor
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.aggregate import Mean
from skate.data.preprocessor import Preprocessor

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["SimpleImputer"]

_STRATEGIES = ("mean", "most_frequent", "constant")


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.simple_imputer")
class SimpleImputer(ColumnPreprocessor):
    """Replace nulls and NaNs.

    A column that a batch lacks is added, filled with the replacement.

    Args:
        columns: The columns.
        strategy: The replacement: "mean", the mean of the column; "most_frequent", its most frequent value; or
            "constant", one value for all columns.
        fill_value: The replacement for the strategy "constant".
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The strategy is unknown, the constant is missing, or the number of output columns differs from the
            number of columns.

    >>> import skate
    >>> ds = skate.data.from_items([{"x": 1.0}, {"x": None}, {"x": 3.0}])
    >>> SimpleImputer(["x"]).fit_transform(ds).take_all()
    [{'x': 1.0}, {'x': 2.0}, {'x': 3.0}]
    """

    columns = Option[list[str]]()
    strategy = Option("mean")
    fill_value = Option[Any](None)
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(
        self,
        columns: list[str],
        strategy: str = "mean",
        fill_value: Any = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(map(repr, _STRATEGIES))}, got {strategy!r}")
        if strategy == "constant" and fill_value is None:
            raise ValueError('strategy="constant" needs a fill_value, the replacement of nulls')
        self._columns = columns
        self._strategy = strategy
        self._fill_value = fill_value
        self._output_columns = resolve_outputs(columns, output_columns)

    @property
    def _is_fittable(self) -> bool:  # type: ignore[override]  # of one class, some are and some are not
        return self.strategy != "constant"

    def _fit(self, ds: Dataset) -> Preprocessor:
        make = Mean if self.strategy == "mean" else _most_frequent
        self.stat_computation_plan.add_aggregator(aggregator_fn=make, columns=self.columns)
        return self

    def _fit_data(self, ds: Dataset) -> Dataset:
        return ds.select_columns(list(dict.fromkeys(self.columns))).map_batches(
            _nan_to_null, batch_format="pyarrow"
        )

    def _finish_fit(self, found: dict[str, Any]) -> dict[str, Any]:
        if self.strategy == "mean":
            return found
        stats = {}
        for name, pickled in found.items():
            counts = {value: count for value, count in load_counts(pickled).items() if value is not None}
            stats[name] = max(counts, key=counts.__getitem__, default=None)
        return stats

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        value = self._replacement(name)
        if name not in table.column_names:
            return pa.repeat(value, table.num_rows)
        return _fill(table.column(name), value, name)

    def _replacement(self, column: str) -> Any:
        if self.strategy == "constant":
            return self.fill_value
        value = self.stats_[f"{self.strategy}({column})"]
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise ValueError(
                f"cannot fill the column {column!r}: it had no values when {self!r} was fitted. Omit"
                ' it, or use strategy="constant".'
            )
        return value


def _most_frequent(column: str) -> Frequencies:
    return Frequencies(column, f"most_frequent({column})")


def _nan_to_null(table: pa.Table) -> pa.Table:
    """Replace NaN, which would make the mean NaN, with null."""
    for i, field in enumerate(table.schema):
        if pa.types.is_float32(field.type) or pa.types.is_float64(field.type):
            column = table.column(i)
            missing = pa.scalar(None, field.type)
            table = table.set_column(i, field, pc.if_else(pc.is_nan(column), missing, column))
    return table


def _fill(column: pa.ChunkedArray, value: Any, name: str) -> Column:
    if pa.types.is_dictionary(column.type):
        # The value need not be one of the categories.
        return _fill(column.cast(column.type.value_type), value, name).dictionary_encode()
    if pa.types.is_integer(column.type) and isinstance(value, float):
        column = column.cast(pa.float64())
    elif pa.types.is_null(column.type):
        column = column.cast(pa.scalar(value).type)
    try:
        replacement = pa.scalar(value, column.type)
    except CONVERSION_ERRORS:
        raise TypeError(
            f"cannot fill the column {name!r}, which is of type {column.type}, with {value!r}"
        ) from None
    missing = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
    return pc.if_else(missing, replacement, column)
