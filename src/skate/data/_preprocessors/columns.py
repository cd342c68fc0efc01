"""Preprocessors that compute columns from columns, and their helpers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skate.air._optional import load
from skate.data._block import frames, tensors, values
from skate.data._block.kinds import is_extension, is_list, is_number
from skate.data.preprocessor import SerializablePreprocessorBase, Transform
from skate.data.util.data_batch_conversion import BatchFormat

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

Column: TypeAlias = pa.Array | pa.ChunkedArray

# Vectors of a whole block can be many times as large as the block, so limit the numbers computed at a time.
_MAX_NUMBERS = 1 << 24


class ColumnPreprocessor(SerializablePreprocessorBase):
    """Base class of preprocessors that compute columns from columns.

    It works on Arrow data for all batch formats. For a DataFrame, only the needed columns are converted, and the
    others stay unchanged.
    """

    def _compute_columns(self, table: pa.Table) -> dict[str, Column]:
        """Return the new columns by name; by default each is computed from one column."""
        return {
            output: self._compute_column(table, name)
            for name, output in zip(self.get_input_columns(), self.get_output_columns(), strict=True)
        }

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        """Return the new column that is computed from one column."""
        raise NotImplementedError

    def _dropped_columns(self) -> list[str]:
        """Return the columns to drop."""
        return []

    def _width(self) -> int:
        """Return the number of values computed per row, if it may be large."""
        return 1

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        made = self._compute_columns(table)
        gone = set(self._dropped_columns())
        table = table.select([name for name in table.column_names if name not in gone])
        for name, column in made.items():
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, column)
            else:
                table = table.append_column(name, column)
        return table

    def _transform_pandas(self, df: Any) -> Any:
        needed = [name for name in dict.fromkeys(self.get_input_columns()) if name in df.columns]
        made = self._compute_columns(frames.from_pandas(df[needed]))
        gone = self._dropped_columns()
        frame = df.drop(columns=gone) if gone else df.copy(deep=False)
        for name, column in made.items():
            frame[name] = to_series(column, df.index)
        return frame

    def _transform_batch(self, data: Any) -> Any:
        return self._transform_pandas(data) if frames.is_pandas(data) else super()._transform_batch(data)

    def _transform(self, ds: Dataset, **given: Any) -> Dataset:
        options = {name: value for name, value in given.items() if value is not None}
        options = {**self._get_transform_config(), **options}
        return ds.map_batches(
            _TransformInParts(self), batch_format="pyarrow", zero_copy_batch=True, **options
        )


class _TransformInParts(Transform):
    """Transform a table in parts to limit memory use."""

    _preprocessor: ColumnPreprocessor

    def __init__(self, preprocessor: ColumnPreprocessor) -> None:
        super().__init__(preprocessor, BatchFormat.ARROW)

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        at_once = max(1, _MAX_NUMBERS // max(1, self._preprocessor._width()))
        for start in range(0, max(1, batch.num_rows), at_once):
            yield self._preprocessor._transform_arrow(batch.slice(start, at_once))


def require_column(name: str, names: Collection[str], who: object) -> None:
    """Check that a batch has a column.

    Raises:
        ValueError: The column does not exist.
    """
    if name not in names:
        raise ValueError(f"{who!r} needs the column {name!r}, which the batch does not have")


def column_of(table: pa.Table, name: str, who: object) -> pa.ChunkedArray:
    """Return a column of a batch, with dictionary encoding removed.

    Raises:
        ValueError: The column does not exist.
    """
    require_column(name, table.column_names, who)
    column = table.column(name)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def numbers_of(table: pa.Table, name: str, who: object) -> npt.NDArray[Any]:
    """Return a column of numbers as an array of floats, NaN for null.

    Raises:
        ValueError: The column does not exist.
        TypeError: The column is not numeric.
    """
    column = column_of(table, name, who)
    kind = column.type
    if pa.types.is_float32(kind):
        return column.to_numpy()  # type: ignore[no-any-return]  # pyarrow has no type information
    if not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise TypeError(f"{type(who).__name__} needs numbers, and the column {name!r} is of type {kind}")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    return column.cast(pa.float64()).to_numpy()  # type: ignore[no-any-return]


def numbers_to_column(numbers: npt.NDArray[Any]) -> pa.Array:
    """Return floats as a column, null for NaN."""
    return pa.array(numbers, from_pandas=True)


def as_lists(column: Column) -> Column:
    """Convert a column of one-dimensional tensors, or of fixed-size lists, to a column of lists."""
    if tensors.is_tensor(column.type):
        arrays = values.to_list(column)
        return pa.array([None if array is None else array.tolist() for array in arrays])
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    return column


def holds_lists(column: Column) -> bool:
    """Return whether the values of a column are lists or tensors."""
    return is_list(column.type) or tensors.is_tensor(column.type)


def vectors_to_column(
    vectors: npt.NDArray[Any], *, one_length: bool = False, missing: npt.NDArray[Any] | None = None
) -> pa.Array:
    """Return the rows of a matrix as a column of lists.

    Args:
        vectors: The matrix.
        one_length: Use the type of fixed-size lists.
        missing: Mask of the rows that are null.
    """
    rows, width = vectors.shape
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    if one_length:
        # `from_arrays` cannot infer the number of empty lists.
        return pa.Array.from_buffers(pa.list_(flat.type, width), rows, [None], children=[flat])
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, flat, mask=None if missing is None else pa.array(missing))


def to_series(column: Column, index: Any) -> Any:
    """Convert a column to a pandas Series, with lists as lists and tensors as arrays."""
    pandas = load("pandas", 'batch_format="pandas"')
    if is_list(column.type) or is_extension(column.type):
        return pandas.Series(tensors.object_array(values.to_list(column)), index=index, dtype=object)
    series = column.to_pandas()
    series.index = index
    return series
