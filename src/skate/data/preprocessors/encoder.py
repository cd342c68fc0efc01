"""Encoders: replace values with codes, vectors or categories."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skate.air._optional import load
from skate.data._arguments import POSITIVE, check_protocol, checked
from skate.data._preprocessors import categories
from skate.data._preprocessors.columns import (
    Column,
    ColumnPreprocessor,
    as_lists,
    column_of,
    holds_lists,
    vectors_to_column,
)
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.preprocessor import Preprocessor
from skate.data.util.data_batch_conversion import BatchFormat

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["Categorizer", "LabelEncoder", "MultiHotEncoder", "OneHotEncoder", "OrdinalEncoder"]


class _Encoder(ColumnPreprocessor):
    """Shared implementation: codes for the distinct values of columns."""

    def _request_values(self, columns: list[str], *, elements: bool = False) -> None:
        count = partial(_values_of, elements=elements)
        self.stat_computation_plan.add_aggregator(aggregator_fn=count, columns=columns)

    def _limits(self) -> dict[str, int]:
        """Return the maximum number of encoded values, for columns that have a limit."""
        return {}

    def _finish_fit(self, found: dict[str, Any]) -> dict[str, Any]:
        limits = self._limits()
        stats = {}
        for column, (name, pickled) in zip(self.get_input_columns(), found.items(), strict=True):
            stats[name] = categories.assign_codes(categories.load_counts(pickled), column, limits.get(column))
        return stats

    def _numbers(self, column: str) -> dict[Any, int]:
        return categories.as_codes(self.stats_[f"unique_values({column})"])

    def _column(self, table: pa.Table, name: str) -> pa.ChunkedArray:
        column = column_of(table, name, self)
        categories.check_no_nulls(column, name)
        return column


def _values_of(column: str, elements: bool) -> categories.Frequencies:
    return categories.Frequencies(column, f"unique_values({column})", elements=elements)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.ordinal_encoder")
class OrdinalEncoder(_Encoder):
    """Replace values with their code, counted from 0 in the order of the values.

    A value that did not occur during fitting becomes null.

    Args:
        columns: The columns.
        encode_lists: Whether to encode the elements of lists instead of whole lists.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The numbers of columns and output columns differ. On fit and transform: a value is null.

    >>> import skate
    >>> ds = skate.data.from_items(["warm", "cold", "warm"])
    >>> OrdinalEncoder(["item"]).fit_transform(ds).take_all()
    [{'item': 1}, {'item': 0}, {'item': 1}]
    """

    columns = Option[list[str]]()
    encode_lists = Option(True)
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(
        self, columns: list[str], *, encode_lists: bool = True, output_columns: list[str] | None = None
    ) -> None:
        super().__init__()
        self._columns = columns
        self._encode_lists = encode_lists
        self._output_columns = resolve_outputs(columns, output_columns)

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """Return Arrow: tables are transformed to tables."""
        return BatchFormat.ARROW

    def _fit(self, ds: Dataset) -> Preprocessor:
        self._request_values(self.columns, elements=self.encode_lists)
        return self

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        column, numbers = self._column(table, name), self._numbers(name)
        if self.encode_lists and holds_lists(column):
            return _encode_lists(as_lists(column), numbers)
        return categories.codes_to_column(categories.codes_for(column, numbers))


def _encode_lists(column: Column, numbers: dict[Any, int]) -> pa.Array:
    codes = categories.codes_for(pc.list_flatten(column), numbers)
    lengths = pc.list_value_length(column).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), categories.codes_to_column(codes))


class _VectorEncoder(_Encoder):
    """Shared implementation of encoders that produce vectors with one element per value."""

    columns = Option[list[str]]()
    max_categories = Option[dict[str, int]](make=dict)
    output_columns = Option[list[str]](like="columns")

    @checked(max_categories=POSITIVE)
    def __init__(
        self,
        columns: list[str],
        *,
        max_categories: dict[str, int] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self._columns = columns
        self._max_categories = max_categories or {}
        self._output_columns = resolve_outputs(columns, output_columns)

    def _limits(self) -> dict[str, int]:
        unknown = [name for name in self.max_categories if name not in self.columns]
        if unknown:
            raise ValueError(
                f"max_categories has {', '.join(map(repr, unknown))}, but the columns are {self.columns}"
            )
        return self.max_categories

    def _width(self) -> int:
        return sum(len(self._numbers(name)) for name in self.columns)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.one_hot_encoder")
class OneHotEncoder(_VectorEncoder):
    """Replace values with vectors that are 1 at the index of the value and 0 elsewhere.

    A value that did not occur during fitting becomes a vector of zeros. A list counts as one value.

    Args:
        columns: The columns.
        max_categories: Maximum number of encoded values by column, the most frequent first.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The numbers of columns and output columns differ. On fit and transform: a value is null.

    >>> import skate
    >>> ds = skate.data.from_items(["warm", "cold"])
    >>> OneHotEncoder(["item"]).fit_transform(ds).take_all()
    [{'item': [0, 1]}, {'item': [1, 0]}]
    """

    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        """Return Arrow: tables are transformed to tables."""
        return BatchFormat.ARROW

    def _fit(self, ds: Dataset) -> Preprocessor:
        self._limits()  # check them before anything is computed
        self._request_values(self.columns)
        return self

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        numbers = self._numbers(name)
        codes = categories.codes_for(self._column(table, name), numbers)
        vectors = np.zeros((len(codes), len(numbers)), np.uint8)
        known = np.flatnonzero(codes >= 0)
        vectors[known, codes[known]] = 1
        return vectors_to_column(vectors, one_length=True)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.multi_hot_encoder")
class MultiHotEncoder(_VectorEncoder):
    """Replace lists with vectors of the number of occurrences of each value.

    Values that did not occur during fitting are ignored. A value that is not a list counts as a list of one element.

    Args:
        columns: The columns.
        max_categories: Maximum number of encoded values by column, the most frequent first.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The numbers of columns and output columns differ. On fit and transform: a value is null.

    >>> import skate
    >>> ds = skate.data.from_items([{"genre": ["comedy", "action"]}, {"genre": ["drama", "drama"]}])
    >>> MultiHotEncoder(["genre"]).fit_transform(ds).take_all()
    [{'genre': [1, 1, 0]}, {'genre': [0, 0, 2]}]
    """

    def _fit(self, ds: Dataset) -> Preprocessor:
        self._limits()  # check them before anything is computed
        self._request_values(self.columns, elements=True)
        return self

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        column, numbers = self._column(table, name), self._numbers(name)
        row_of = np.arange(table.num_rows)
        if holds_lists(column):
            column = as_lists(column)
            row_of = np.repeat(row_of, pc.list_value_length(column).to_numpy())
            column = pc.list_flatten(column)
        codes = categories.codes_for(column, numbers)
        return vectors_to_column(categories.count_per_row(row_of, codes, table.num_rows, len(numbers)))


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.label_encoder")
class LabelEncoder(_Encoder):
    """Replace labels with their code, counted from 0 in the order of the labels.

    A label that did not occur during fitting becomes null.

    Args:
        label_column: The column of labels.
        output_column: Name of the output column; the label column by default.

    Raises:
        ValueError: On fit and transform: a label is null.

    >>> import skate
    >>> encoder = LabelEncoder("item")
    >>> numbers = encoder.fit_transform(skate.data.from_items(["dog", "cat"]))
    >>> numbers.take_all()
    [{'item': 1}, {'item': 0}]
    >>> encoder.inverse_transform(numbers).take_all()
    [{'item': 'dog'}, {'item': 'cat'}]
    """

    label_column = Option[str]()
    output_column = Option[str](like="label_column")

    @checked()
    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        super().__init__()
        self._label_column = label_column
        self._output_column = output_column or label_column

    def get_input_columns(self) -> list[str]:
        """Return the label column."""
        return [self.label_column]

    def get_output_columns(self) -> list[str]:
        """Return the column of codes."""
        return [self.output_column]

    def inverse_transform(self, ds: Dataset) -> Dataset:
        """Replace the codes in the output column with labels, in the label column.

        Raises:
            PreprocessorNotFittedException: `fit` has not been called.
        """
        self._check_fitted("inverse_transform")
        return ds.map_batches(self._decode_labels, batch_format="pyarrow")

    def _fit(self, ds: Dataset) -> Preprocessor:
        self._request_values([self.label_column])
        return self

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        codes = categories.codes_for(self._column(table, name), self._numbers(name))
        return categories.codes_to_column(codes)

    def _decode_labels(self, table: pa.Table) -> pa.Table:
        by_label = self._numbers(self.label_column)
        labels = sorted(by_label, key=by_label.__getitem__)
        numbers = column_of(table, self.output_column, self).cast(pa.int64())
        column = pa.array(labels).take(numbers.combine_chunks())
        if self.label_column in table.column_names:
            at = table.column_names.index(self.label_column)
            return table.set_column(at, self.label_column, column)
        return table.append_column(self.label_column, column)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.categorizer")
class Categorizer(_Encoder):
    """Convert columns to Arrow dictionaries, which are categoricals in pandas. Needs pandas.

    A value that is not a category becomes null; nulls stay null.

    Args:
        columns: The columns.
        dtypes: Categories of some columns, as a pandas CategoricalDtype; for the others, the values that occur during
            fitting.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> ds = skate.data.from_items(["b", "a", "b"])
    >>> list(Categorizer(["item"]).fit_transform(ds).to_pandas()["item"].cat.categories)
    ['a', 'b']
    """

    columns = Option[list[str]]()
    dtypes = Option[dict[str, Any]](make=dict)
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(
        self,
        columns: list[str],
        dtypes: dict[str, Any] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        for name, dtype in (dtypes or {}).items():
            check_protocol(f"dtypes[{name!r}]", dtype, "categories", "a pandas CategoricalDtype")
        self._columns = columns
        self._dtypes = dtypes or {}
        self._output_columns = resolve_outputs(columns, output_columns)

    def _fit(self, ds: Dataset) -> Preprocessor:
        self._request_values([name for name in self.columns if name not in self.dtypes])
        self.stats_ = dict(self.dtypes)
        return self

    def _finish_fit(self, found: dict[str, Any]) -> dict[str, Any]:
        pandas = load("pandas", "Categorizer")
        stats = {}
        for name in self.columns:
            if name in self.dtypes:
                stats[name] = self.dtypes[name]
                continue
            counts = categories.load_counts(found[f"unique_values({name})"])
            present = categories.sort_values(value for value in counts if value is not None)
            stats[name] = pandas.CategoricalDtype(present)
        return stats

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        dtype = self.stats_[name]
        known = list(dtype.categories)
        numbers = {value: number for number, value in enumerate(known)}
        codes = categories.codes_for(column_of(table, name, self), numbers)
        indices = categories.codes_to_column(codes).cast(pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(known), ordered=bool(dtype.ordered))

    def _set_serializable_fields(self, fields: dict[str, Any], version: int) -> None:
        pandas = load("pandas", "Categorizer")
        # Ray saves the components of a dtype, and None if there is none.
        dtypes = {
            name: pandas.CategoricalDtype(**each) if isinstance(each, dict) else each
            for name, each in (fields.get("dtypes") or {}).items()
        }
        super()._set_serializable_fields({**fields, "dtypes": dtypes}, version)
