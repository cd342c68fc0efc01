"""Grouped datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from skate.data import aggregate as aggregates
from skate.data._aggregates.base import check_aggregations
from skate.data._arguments import NON_NEGATIVE, check_type, checked
from skate.data._dataset.user_functions import (
    ComputeArguments,
    FunctionArguments,
    check_format,
    user_function,
)
from skate.data._exec.transforms import EachBatch
from skate.data._expressions import evaluate
from skate.data._plan import nodes
from skate.data.expressions import Expr, star

if TYPE_CHECKING:
    import pyarrow as pa

    from skate.data.dataset import Dataset

__all__ = ["GroupedData"]


class GroupedData:
    """The groups of a dataset, as returned by `Dataset.groupby`. Results are sorted by the keys."""

    def __init__(self, dataset: Any, key: str | list[str] | None, num_partitions: int | None = None) -> None:
        self._dataset: Dataset = dataset
        self._key = key
        self._keys: tuple[str, ...] = () if key is None else (key,) if isinstance(key, str) else tuple(key)
        self._parts = num_partitions
        dataset._check_keys("group", self._keys)

    def __repr__(self) -> str:
        return f"GroupedData(dataset={self._dataset!r}, key={self._key!r})"

    def aggregate(self, *aggs: Any) -> Dataset:
        """Aggregate each group to one row.

        Args:
            *aggs: Aggregations of `skate.data.aggregate`.

        >>> import skate
        >>> from skate.data.aggregate import Count, Max
        >>> ds = skate.data.from_items([{"k": 1, "v": 5}, {"k": 2, "v": 7}, {"k": 1, "v": 6}])
        >>> ds.groupby("k").aggregate(Count(), Max("v")).take_all()
        [{'k': 1, 'count()': 2, 'max(v)': 6}, {'k': 2, 'count()': 1, 'max(v)': 7}]
        """
        check_aggregations(aggs)
        return self._dataset._with_node(nodes.Aggregate(self._dataset._node, self._keys, aggs))

    @checked("batch_format")
    def map_groups(
        self,
        fn: Callable[..., Any] | type,
        *,
        zero_copy_batch: bool = True,
        compute: Any = None,
        batch_format: str | None = "default",
        fn_args: Iterable[Any] | None = None,
        fn_kwargs: dict[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] | None = None,
        fn_constructor_kwargs: dict[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        memory: float | None = None,
        concurrency: Any = None,
        on_error: str = "raise",
        ray_remote_args_fn: Callable[[], dict[str, Any]] | None = None,
        **ray_remote_args: Any,
    ) -> Dataset:
        """Call a function with all rows of each group, as one batch.

        Args:
            fn: Takes a batch, and returns or yields batches. Further arguments are those of `Dataset.map_batches`.
            batch_format: The format of the batches: "pandas" (the default, as in Ray), "numpy", "pyarrow" or "polars".

        >>> import skate
        >>> ds = skate.data.from_items([{"k": 1, "v": 5}, {"k": 2, "v": 7}, {"k": 1, "v": 6}])
        >>> largest = lambda group: {"k": group["k"][:1], "most": [group["v"].max()]}
        >>> ds.groupby("k").map_groups(largest).take_all()
        [{'k': 1, 'most': 6}, {'k': 2, 'most': 7}]
        """
        check_format(batch_format)
        call = user_function(
            fn,
            FunctionArguments(fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
            ComputeArguments(
                compute,
                concurrency,
                ray_remote_args_fn,
                {"num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory, **ray_remote_args},
            ),
            on_error,
        )
        node = nodes.MapGroups(
            self._dataset._node,
            self._keys,
            EachBatch(
                call.udf,
                None,
                "pandas" if batch_format == "default" else batch_format,
                copies=not zero_copy_batch,
                failures=call.failures("MapGroups"),
            ),
            call.compute,
            self._parts,
        )
        return self._dataset._with_node(node)

    @checked("expr")
    def with_column(self, column_name: str, expr: Any, **ray_remote_args: Any) -> Dataset:
        """Add a column by an expression, which is evaluated separately for each group.

        >>> import skate
        >>> from skate.data.expressions import col
        >>> ds = skate.data.from_items([{"k": 1, "v": 5}, {"k": 2, "v": 7}])
        >>> ds.groupby("k").with_column("more", col("v") + 1).take_all()
        [{'k': 1, 'v': 5, 'more': 6}, {'k': 2, 'v': 7, 'more': 8}]
        """
        check_type("expr", expr, Expr, "an expression such as col('a') + 1")
        added = (star(), expr.alias(column_name))
        return self.map_groups(partial(_project, added), batch_format="pyarrow", **ray_remote_args)

    def count(self) -> Dataset:
        """Count the rows of each group.

        >>> import skate
        >>> skate.data.from_items([1, 1, 2]).groupby("item").count().take_all()
        [{'item': 1, 'count()': 2}, {'item': 2, 'count()': 1}]
        """
        return self.aggregate(aggregates.Count())

    @checked()
    def sum(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Return the sum of one or more columns of each group."""
        return self._over(aggregates.Sum, on, ignore_nulls=ignore_nulls)

    @checked()
    def min(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Return the minimum of one or more columns of each group."""
        return self._over(aggregates.Min, on, ignore_nulls=ignore_nulls)

    @checked()
    def max(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Return the maximum of one or more columns of each group."""
        return self._over(aggregates.Max, on, ignore_nulls=ignore_nulls)

    @checked()
    def mean(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Return the mean of one or more columns of each group."""
        return self._over(aggregates.Mean, on, ignore_nulls=ignore_nulls)

    @checked(ddof=NON_NEGATIVE)
    def std(self, on: str | list[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> Dataset:
        """Return the standard deviation of one or more columns of each group."""
        return self._over(aggregates.Std, on, ddof=ddof, ignore_nulls=ignore_nulls)

    def _over(self, kind: Any, on: str | list[str] | None, **options: Any) -> Dataset:
        columns = [on] if isinstance(on, str) else on
        if columns is None:
            columns = [name for name in self._dataset.columns() or [] if name not in self._keys]
        if not columns:
            raise ValueError(
                "There is no column to aggregate: the dataset has only the keys, or `on` is empty"
            )
        return self.aggregate(*(kind(column, **options) for column in columns))


def _project(expressions: tuple[Any, ...], group: pa.Table) -> pa.Table:
    return evaluate.project(group, expressions)
