"""DataFrames of pandas and Polars into blocks and out of them; neither library is imported before it is used."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import columns, tables, tensors, values
from skate.data._block.kinds import is_extension


def is_pandas(batch: object) -> bool:
    """Tell whether something is a DataFrame of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(batch, pandas.DataFrame)


def is_polars(batch: object) -> bool:
    """Tell whether something is a DataFrame of Polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(batch, polars.DataFrame)


# In the metadata of a block's schema: what a program that asks for no format in particular gets.
_MADE_OF_PANDAS = {b"skate.made_of": b"pandas"}


def made_of_pandas(block: pa.Table) -> bool:
    """Tell whether a block was made of a DataFrame of pandas."""
    return dict(block.schema.metadata or {}).items() >= _MADE_OF_PANDAS.items()


def without_mark(block: pa.Table) -> pa.Table:
    """Return a block as it goes to others, to whom it does not matter what it was made of."""
    if not made_of_pandas(block):
        return block
    kept = {key: value for key, value in block.schema.metadata.items() if key not in _MADE_OF_PANDAS}
    return block.replace_schema_metadata(kept or None)


def from_pandas(frame: Any) -> pa.Table:
    """Return a DataFrame as a block; its index is left out, NaN and NA become null.

    A column of ndarrays becomes one of tensors.
    """
    names = [str(name) for name in frame.columns]
    arrays = [columns.from_pandas(frame.iloc[:, i], name) for i, name in enumerate(names)]
    if not arrays:
        return tables.empty_rows(len(frame))
    return pa.Table.from_arrays(arrays, names=names, metadata=_MADE_OF_PANDAS)


def to_pandas(block: pa.Table, *, arrow_types: bool = False) -> Any:
    """Return a block as a DataFrame of pandas; tensors become a column of ndarrays.

    Args:
        block: The block.
        arrow_types: Give columns the types of Arrow, unless the block was made of a DataFrame.
    """
    pandas = _optional.load("pandas", 'batch_format="pandas"')
    extensions = {i for i, field in enumerate(block.schema) if is_extension(field.type)}
    plain = [i for i in range(block.num_columns) if i not in extensions]
    mapper = _arrow_dtype if arrow_types and not made_of_pandas(block) else None
    frame: Any = block.select(plain).to_pandas(ignore_metadata=True, types_mapper=mapper)
    for i in sorted(extensions):
        items = tensors.object_array(values.to_list(block.column(i)))
        frame.insert(i, block.column_names[i], pandas.Series(items, index=frame.index), allow_duplicates=True)
    return frame


def _arrow_dtype(type_: pa.DataType) -> Any:
    """Return the type of pandas that is Arrow's; None for what pandas handles better by itself."""
    if pa.types.is_null(type_) or pa.types.is_dictionary(type_):
        return None
    return sys.modules["pandas"].ArrowDtype(type_)


def from_polars(frame: Any) -> pa.Table:
    """Return a DataFrame of Polars as a block; an array column becomes one of tensors."""
    polars = sys.modules["polars"]
    arrays = []
    for series in frame.get_columns():
        if series.dtype == polars.Object:
            arrays.append(columns.from_values(series.to_list(), series.name))
        else:
            arrays.append(_tensors_of_fixed_lists(series.to_arrow()))
    return pa.Table.from_arrays(arrays, names=frame.columns)


def _tensors_of_fixed_lists(array: pa.Array) -> pa.Array:
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
    """Return a block as a DataFrame of Polars, without a copy where its layout allows."""
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
