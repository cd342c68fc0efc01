"""Methods that aggregate all rows to one value or one row."""

from __future__ import annotations

from typing import Any

from skate.data import aggregate as aggregates
from skate.data import stats
from skate.data._aggregates.base import check_aggregations
from skate.data._arguments import NON_NEGATIVE, checked
from skate.data._dataset.consumption import ConsumptionMethods
from skate.data._plan import nodes


class AggregateMethods(ConsumptionMethods):
    """Methods of `Dataset` that aggregate all rows."""

    def aggregate(self, *aggs: Any) -> Any:
        """Return the results of aggregations over all rows, by name.

        >>> import skate
        >>> from skate.data.aggregate import Max, Mean
        >>> skate.data.range(5).aggregate(Max("id"), Mean("id"))
        {'max(id)': 4, 'mean(id)': 2.0}
        """
        check_aggregations(aggs)
        found = list(self._rows(nodes.Aggregate(self._node, (), aggs)))
        return found[0] if found else None

    @checked()
    def sum(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Return the sum of a column, or of each of several columns by name.

        >>> import skate
        >>> skate.data.range(5).sum("id")
        10
        """
        return self._over(aggregates.Sum, on, ignore_nulls=ignore_nulls)

    @checked()
    def min(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Return the smallest value of a column, or of each of several columns by name."""
        return self._over(aggregates.Min, on, ignore_nulls=ignore_nulls)

    @checked()
    def max(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Return the largest value of a column, or of each of several columns by name."""
        return self._over(aggregates.Max, on, ignore_nulls=ignore_nulls)

    @checked()
    def mean(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """Return the mean of a column, or of each of several columns by name."""
        return self._over(aggregates.Mean, on, ignore_nulls=ignore_nulls)

    @checked(ddof=NON_NEGATIVE)
    def std(self, on: str | list[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        """Return the standard deviation of a column, or of each of several columns by name.

        Args:
            on: The column or columns; all columns by default.
            ddof: Delta degrees of freedom: the divisor is the number of rows minus `ddof`.
            ignore_nulls: Skip nulls; otherwise one null makes the result null.
        """
        return self._over(aggregates.Std, on, ddof=ddof, ignore_nulls=ignore_nulls)

    @checked()
    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """Return the different values of a column.

        >>> import skate
        >>> sorted(skate.data.from_items([1, 2, 1]).unique("item"))
        [1, 2]
        """
        found = self._rows(nodes.Aggregate(self._node, (column,), (aggregates.Count(),)))
        values = [row[column] for row in found]
        return [value for value in values if value is not None] if ignore_nulls else values

    @checked("override_dtype_agg_mapping")
    def summary(
        self, columns: list[str] | None = None, override_dtype_agg_mapping: stats.Overrides | None = None
    ) -> stats.DatasetSummary:
        """Return statistics of the columns, computed in one pass.

        Numbers and truth values have count, mean, min, max, std, the median (approximately), and the shares of
        missing values and of zeros in percent; times have count, min, max and missing values; everything else has
        count, missing values, and its most frequent values (approximately).

        Args:
            columns: Which columns; all of them if not given.
            override_dtype_agg_mapping: For columns of a DataType, or of a TypeCategory, other aggregates: a function
                of the name of a column that returns a list of them.

        >>> import skate
        >>> summary = skate.data.from_items([{"age": 31}, {"age": 7}]).summary()
        >>> summary.get_column_stats("age").set_index("statistic").loc["max", "value"]
        np.float64(31.0)
        """
        schema = self.schema()
        there = [] if schema is None else schema.names
        wanted = there if columns is None else list(columns)
        missing = [name for name in wanted if name not in there]
        if missing or not wanted or schema is None:
            raise ValueError(f"summary needs columns of the dataset, got {missing or wanted}: it has {there}")
        chosen = stats.statistics_of(schema.base_schema, wanted, override_dtype_agg_mapping or {})
        row = self.aggregate(*(each for aggregates in chosen.values() for each in aggregates))
        return stats.DatasetSummary(schema.base_schema, wanted, stats.named_values(chosen, row))

    def _over(self, kind: Any, on: str | list[str] | None, **options: Any) -> Any:
        """Return the value of one aggregation, or the values of several columns by name."""
        columns = [on] if isinstance(on, str) else on
        if columns is None:
            columns = self.columns() or []
        if not columns:
            raise ValueError("There is no column to aggregate: the dataset has none, or `on` is empty")
        result = self.aggregate(*(kind(column, **options) for column in columns))
        if isinstance(on, str) or (on is None and len(columns) == 1):
            return None if result is None else next(iter(result.values()))
        return result
