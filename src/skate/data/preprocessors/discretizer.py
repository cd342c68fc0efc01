"""Discretization of numbers into bins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skate.air._optional import load
from skate.data._arguments import ArgumentTypeError, checked, message
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, numbers_of
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.aggregate import Max, Min
from skate.data.preprocessor import Preprocessor

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["CustomKBinsDiscretizer", "UniformKBinsDiscretizer"]

# Fraction of the range by which pandas widens the bins to include a value on an open edge.
_WIDENING = 0.001


class _Discretizer(ColumnPreprocessor):
    """Shared implementation, once the edges are known."""

    columns = Option[list[str]]()
    bins = Option[Any]()
    right = Option(True)
    include_lowest = Option(False)
    duplicates = Option[str]("raise")
    dtypes = Option[dict[str, Any] | None](None)
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(
        self,
        columns: list[str],
        bins: Any,
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: Literal["raise", "drop"] = "raise",
        dtypes: dict[str, Any] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        for each in bins.values() if isinstance(bins, dict) else [bins]:
            self._check_bins(each)
        self._columns = columns
        self._bins = bins
        self._right = right
        self._include_lowest = include_lowest
        self._duplicates = duplicates
        self._dtypes = dtypes
        self._output_columns = resolve_outputs(columns, output_columns)

    def _check_bins(self, bins: Any) -> None:
        """Raise an error unless these are valid bins of a column."""
        raise NotImplementedError

    def _edges(self, column: str) -> Any:
        raise NotImplementedError

    def _bins_of(self, column: str) -> Any:
        """Return the bins of a column."""
        if not isinstance(self.bins, dict):
            return self.bins
        missing = [name for name in self.columns if name not in self.bins]
        if missing:
            raise ValueError(
                f"bins lacks {', '.join(map(repr, missing))}: pass bins for each column, or one value for all"
            )
        return self.bins[column]

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        pandas = load("pandas", type(self).__name__)
        numbers = numbers_of(table, name, self)
        edges = self._edges(name)
        dtype = (self.dtypes or {}).get(name)
        if isinstance(edges, pandas.IntervalIndex):
            codes = pandas.cut(pandas.Series(numbers), edges).cat.codes.to_numpy()
        else:
            codes = pandas.cut(
                pandas.Series(numbers),
                np.asarray(edges),
                labels=False,
                right=self.right,
                include_lowest=self.include_lowest,
                duplicates=self.duplicates,
            )
            codes = codes.fillna(-1).to_numpy().astype(np.int64)
        if not isinstance(dtype, pandas.CategoricalDtype):
            return pa.array(codes.astype(np.int64), mask=codes < 0)
        bins = len(edges) if isinstance(edges, pandas.IntervalIndex) else len(edges) - 1
        if len(dtype.categories) != bins and self.duplicates == "raise":
            raise ValueError(
                f"the column {name!r} has {bins} bins, and its type in dtypes {len(dtype.categories)} categories:"
                f" {list(dtype.categories)}"
            )
        return pa.array(pandas.Categorical.from_codes(codes, dtype=dtype))


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.custom_kbins_discretizer")
class CustomKBinsDiscretizer(_Discretizer):
    """Replace numbers with the index of their bin, for given edges.

    A number outside of all bins becomes null. Needs pandas; most arguments are those of `pandas.cut`.

    Args:
        columns: The columns.
        bins: The edges, in increasing order, or a pandas IntervalIndex; for all columns, or by column.
        right: Whether bins include the right edge instead of the left one.
        include_lowest: Whether the first bin includes its left edge.
        duplicates: "raise" an error for duplicate edges, or "drop" them.
        dtypes: A pandas CategoricalDtype with the names of the bins, in order, for columns that have names.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> CustomKBinsDiscretizer(["id"], bins=[0, 2, 9]).transform(skate.data.range(4)).take_all()
    [{'id': None}, {'id': 0}, {'id': 0}, {'id': 1}]
    """

    _is_fittable = False

    def _check_bins(self, bins: Any) -> None:
        if isinstance(bins, str) or not isinstance(bins, Iterable):
            words = "the edges of the bins in increasing order, a pandas IntervalIndex or a dict of them"
            raise ArgumentTypeError(message("bins", words, bins))

    def _edges(self, column: str) -> Any:
        edges = self._bins_of(column)
        return edges if hasattr(edges, "__len__") else list(edges)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.uniform_kbins_discretizer")
class UniformKBinsDiscretizer(_Discretizer):
    """Replace numbers with the index of their bin, for bins of equal width over the range of a column.

    A number outside of the fitted range becomes null. Needs pandas; most arguments are those of `pandas.cut`.

    Args:
        columns: The columns.
        bins: Number of bins, for all columns or by column.
        right: Whether bins include the right edge instead of the left one.
        include_lowest: Whether the first bin includes its left edge.
        duplicates: "raise" an error for duplicate edges, or "drop" them.
        dtypes: A pandas CategoricalDtype with the names of the bins, in order, for columns that have names.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> UniformKBinsDiscretizer(["id"], bins=2).fit_transform(skate.data.range(4)).take_all()
    [{'id': 0}, {'id': 0}, {'id': 1}, {'id': 1}]
    """

    def _check_bins(self, bins: Any) -> None:
        if not isinstance(bins, int) or bins < 1:
            words = "a positive integer or a dict with one for each column"
            raise ArgumentTypeError(message("bins", words, bins))

    def _fit(self, ds: Dataset) -> Preprocessor:
        for name in self.columns:
            self._bins_of(name)
        self.stat_computation_plan.add_aggregator(aggregator_fn=Min, columns=self.columns)
        self.stat_computation_plan.add_aggregator(aggregator_fn=Max, columns=self.columns)
        return self

    def _finish_fit(self, found: dict[str, Any]) -> dict[str, Any]:
        stats = {}
        for name in self.columns:
            least, most = found[f"min({name})"], found[f"max({name})"]
            if least is None:
                raise ValueError(
                    f"the column {name!r} has no numbers and therefore no range to divide into bins"
                )
            stats[name] = _uniform(float(least), float(most), self._bins_of(name), self.right)
        return stats

    def _edges(self, column: str) -> Any:
        return self.stats_[column]


def _uniform(least: float, most: float, count: int, right: bool) -> npt.NDArray[np.float64]:
    """Return the edges that `pandas.cut` computes."""
    if least == most:
        around = _WIDENING * (abs(least) or 1)
        return np.linspace(least - around, most + around, count + 1)
    edges = np.linspace(least, most, count + 1)
    wider = (most - least) * _WIDENING
    if right:
        edges[0] -= wider
    else:
        edges[-1] += wider
    return edges
