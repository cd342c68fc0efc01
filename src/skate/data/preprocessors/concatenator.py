"""Concatenation of columns to a column of vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._arguments import ArgumentTypeError, checked, message
from skate.data._block import objects, tensors, values
from skate.data._block.columns import from_values
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, holds_lists
from skate.data._preprocessors.options import Option, options_of
from skate.data._preprocessors.registry import SerializablePreprocessor

__all__ = ["Concatenator"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.concatenator")
class Concatenator(ColumnPreprocessor):
    """Concatenate columns to one column of vectors, and drop them. Null becomes NaN.

    Args:
        columns: The columns, in the order of the vector.
        output_column_name: Name of the column of vectors, which comes last.
        dtype: NumPy dtype of the vectors; by default one that represents all values.
        raise_if_missing: Accepted; a missing column is always an error, because the vectors would differ.
        flatten: Whether the elements of lists or tensors become elements of the vector. Otherwise the lists do, and the
            vector holds Python objects.

    Raises:
        ValueError: The list of columns is empty.

    >>> import skate
    >>> ds = skate.data.from_items([{"x": 1, "y": 2.5, "label": "a"}])
    >>> Concatenator(["y", "x"], dtype=np.float32).transform(ds).take_all()
    [{'label': 'a', 'concat_out': array([2.5, 1. ], dtype=float32)}]
    """

    _is_fittable = False

    columns = Option[list[str]]()
    output_column_name = Option("concat_out")
    dtype = Option[Any](None)
    raise_if_missing = Option(False)
    flatten = Option(False)

    @checked("dtype")
    def __init__(
        self,
        columns: list[str],
        output_column_name: str = "concat_out",
        dtype: npt.DTypeLike | None = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
    ) -> None:
        super().__init__()
        if not columns:
            raise ValueError("Concatenator needs one column or more: columns=['a', 'b']")
        if dtype is not None:
            try:
                np.dtype(dtype)
            except TypeError as error:
                raise ArgumentTypeError(message("dtype", "a NumPy type such as np.float32", dtype)) from error
        self._columns = columns
        self._output_column_name = output_column_name
        self._dtype = dtype
        self._raise_if_missing = raise_if_missing
        self._flatten = flatten

    def get_output_columns(self) -> list[str]:
        """Return the output column."""
        return [self.output_column_name]

    def _dropped_columns(self) -> list[str]:
        return self.columns

    def _compute_columns(self, table: pa.Table) -> dict[str, Column]:
        missing = [name for name in self.columns if name not in table.column_names]
        if missing:
            raise ValueError(
                f"{self!r} needs the columns {', '.join(map(repr, missing))}: the batch has no such column"
            )
        columns = [table.column(name) for name in self.columns]
        if not any(map(holds_lists, columns)):
            vectors = _stack(columns, self.dtype)
        elif self.flatten:
            vectors = _flatten(columns, self.dtype)
        elif self.dtype is None:
            vectors = _stack_objects(columns)
        else:
            raise ValueError(
                f"a vector of {np.dtype(self.dtype)} cannot hold lists: set flatten=True, or pass no dtype"
            )
        return {self.output_column_name: vectors}

    def __repr__(self) -> str:
        defaults = vars(Concatenator(["_"]))
        parts = [
            f"{name}={getattr(self, name)!r}"
            for name in options_of(type(self))
            if getattr(self, name) != defaults[f"_{name}"]
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


def _stack(columns: list[pa.ChunkedArray], dtype: Any) -> pa.Array:
    """Return one vector per row from columns of scalars."""
    arrays = [values.to_ndarray(column) for column in columns]
    if any(array.dtype == object for array in arrays) and dtype is None:
        return _stack_objects(columns)
    dtype = np.result_type(*arrays) if dtype is None else dtype
    return tensors.from_ndarray(np.stack([array.astype(dtype) for array in arrays], axis=1))


def _flatten(columns: list[pa.ChunkedArray], dtype: Any) -> pa.Array:
    """Return one vector per row from all elements of its lists."""
    flat = [_matrix(column) for column in columns]
    if all(each is not None for each in flat):
        joined = np.concatenate([each for each in flat if each is not None], axis=1)
        return tensors.from_ndarray(joined if dtype is None else joined.astype(dtype))
    rows = zip(*(values.to_list(column) for column in columns), strict=True)
    vectors = [np.concatenate([np.ravel(value) for value in row]) for row in rows]
    return from_values([each if dtype is None else each.astype(dtype) for each in vectors], "")


def _matrix(column: pa.ChunkedArray) -> npt.NDArray[Any] | None:
    """Return a column as a matrix with one row per value, if all values have the same length."""
    if tensors.is_tensor(column.type) or not holds_lists(column):
        array = values.to_ndarray(column)
        return None if array.dtype == object else array.reshape(len(array), math.prod(array.shape[1:]))
    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    if column.null_count or lengths["min"] != lengths["max"]:
        return None
    array = values.to_ndarray(pc.list_flatten(column))
    return None if array.dtype == object else array.reshape(len(column), lengths["max"] or 0)


def _stack_objects(columns: list[pa.ChunkedArray]) -> pa.Array:
    """Return one vector of Python objects per row."""
    rows = zip(*(values.to_list(column) for column in columns), strict=True)
    return objects.from_objects([tensors.object_array(row) for row in rows])
