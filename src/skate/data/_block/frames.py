"""Conversions between blocks and pandas or Polars DataFrames; both libraries are imported on first use."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import columns, tables, tensors, values
from skate.data._block.kinds import is_extension


def is_pandas(batch: object) -> bool:
    """Return whether an object is a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(batch, pandas.DataFrame)


def is_polars(batch: object) -> bool:
    """Return whether an object is a Polars DataFrame."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(batch, polars.DataFrame)


# Schema metadata that marks blocks made from pandas, for programs that request no batch format.
_MADE_FROM_PANDAS = {b"skate.made_of": b"pandas"}


def is_made_from_pandas(block: pa.Table) -> bool:
    """Return whether a block was made from a pandas DataFrame."""
    return dict(block.schema.metadata or {}).items() >= _MADE_FROM_PANDAS.items()


def without_mark(block: pa.Table) -> pa.Table:
    """Return a block without the mark, for consumers that ignore its origin."""
    if not is_made_from_pandas(block):
        return block
    kept = {key: value for key, value in block.schema.metadata.items() if key not in _MADE_FROM_PANDAS}
    return block.replace_schema_metadata(kept or None)


def from_pandas(frame: Any) -> pa.Table:
    """Convert a DataFrame to a block; the index is dropped, NaN and NA become null.

    A column of ndarrays becomes a column of tensors.
    """
    names = [str(name) for name in frame.columns]
    arrays = [columns.from_pandas(frame.iloc[:, i], name) for i, name in enumerate(names)]
    if not arrays:
        return tables.empty_rows(len(frame))
    return pa.Table.from_arrays(arrays, names=names, metadata=_MADE_FROM_PANDAS)


def to_pandas(block: pa.Table, *, arrow_types: bool = False) -> Any:
    """Convert a block to a pandas DataFrame; tensors become a column of ndarrays.

    Args:
        block: The block.
        arrow_types: Use Arrow-backed dtypes, unless the block was made from a DataFrame.
    """
    pandas = _optional.load("pandas", 'batch_format="pandas"')
    extensions = {i for i, field in enumerate(block.schema) if is_extension(field.type)}
    plain = [i for i in range(block.num_columns) if i not in extensions]
    mapper = _arrow_dtype if arrow_types and not is_made_from_pandas(block) else None
    frame: Any = block.select(plain).to_pandas(ignore_metadata=True, types_mapper=mapper)
    for i in sorted(extensions):
        items = tensors.object_array(values.to_list(block.column(i)))
        frame.insert(i, block.column_names[i], pandas.Series(items, index=frame.index), allow_duplicates=True)
    return frame


def _arrow_dtype(type_: pa.DataType) -> Any:
    """Return the Arrow-backed pandas dtype; None for types that pandas handles better natively."""
    if pa.types.is_null(type_) or pa.types.is_dictionary(type_):
        return None
    return sys.modules["pandas"].ArrowDtype(type_)


def from_polars(frame: Any) -> pa.Table:
    """Convert a Polars DataFrame to a block; an array column becomes a column of tensors."""
    polars = sys.modules["polars"]
    arrays = []
    for series in frame.get_columns():
        if series.dtype == polars.Object:
            arrays.append(columns.from_values(series.to_list(), series.name))
        else:
            arrays.append(_fixed_lists_to_tensors(series.to_arrow()))
    return pa.Table.from_arrays(arrays, names=frame.columns)


def _fixed_lists_to_tensors(array: pa.Array) -> pa.Array:
    shape: list[int] = []
    flat = array
    while pa.types.is_fixed_size_list(flat.type) and flat.null_count == 0:
        shape.append(flat.type.list_size)
        flat = flat.flatten()
    is_number = pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)
    if shape and (is_number or pa.types.is_boolean(flat.type)):
        return tensors.fixed_shape_column(flat, shape, len(array))
    return array


def to_polars(block: pa.Table) -> Any:
    """Convert a block to a Polars DataFrame, without a copy where the layout allows."""
    polars = _optional.load("polars", 'batch_format="polars"')
    plain = [field.name for field in block.schema if not is_extension(field.type)]
    frame = polars.from_arrow(block.select(plain))
    if len(plain) == block.num_columns:
        return frame
    series = {name: frame[name] for name in plain}
    for field in block.schema:
        if field.name not in series:
            series[field.name] = _extension_to_polars(polars, block.column(field.name))
    return polars.DataFrame({name: series[name] for name in block.column_names})


def _extension_to_polars(polars: Any, column: pa.ChunkedArray) -> Any:
    array = values.to_ndarray(column)
    if array.dtype.kind != "O":
        return polars.Series(array)
    if isinstance(column.type, tensors.VariableShapedTensorType) and column.type.ndim == 1:
        return polars.Series([None if item is None else polars.Series(item) for item in array])
    return polars.Series(list(array), dtype=polars.Object)
