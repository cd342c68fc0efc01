"""Conversions between batches, in the format that a program requests, and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from skate.data._block import frames, schemas, values
from skate.data._block.casts import cast
from skate.data._block.columns import to_column
from skate.data._block.errors import BatchTypeError, ColumnLengthsError
from skate.data._block.kinds import without_views

_ALLOWED = "a dict of columns ({'x': array}), a pandas or Polars DataFrame, or a pyarrow Table"

#: Values of `batch_format=`.
BATCH_FORMATS = ("default", "numpy", "pandas", "pyarrow", "polars", None)


def to_block(batch: Any) -> pa.Table:
    """Return a batch as a block, without a copy where Arrow can use the memory.

    Args:
        batch: A dict with a list or an array per column, a pandas or Polars DataFrame, or a pyarrow Table or
            RecordBatch.

    Raises:
        BatchTypeError: The batch has another type, or a column is not a sequence.
        ColumnLengthsError: The columns differ in length.
        DuplicateColumnsError: Two columns have the same name.
        MixedTypesError: The values of a column have no common type.

    Example:
        >>> to_block({"id": np.arange(2), "point": np.zeros((2, 3))}).schema.names
        ['id', 'point']
    """
    if isinstance(batch, pa.Table):
        return _from_table(batch)
    if isinstance(batch, pa.RecordBatch):
        return _from_table(pa.Table.from_batches([batch]))
    if isinstance(batch, Mapping):
        return _from_mapping(batch)
    if frames.is_pandas(batch):
        return _from_table(frames.from_pandas(batch))
    if frames.is_polars(batch):
        return frames.from_polars(batch)
    raise BatchTypeError("a batch", "None" if batch is None else type(batch).__qualname__, _ALLOWED)


def _from_table(table: pa.Table) -> pa.Table:
    schemas.check_names(table.column_names)
    for index, field in enumerate(table.schema):
        plain = without_views(field.type)
        if plain is not field.type and plain != field.type:
            table = table.set_column(
                index, field.with_type(plain), cast(table.column(index), plain, field.name)
            )
    return table


def _from_mapping(batch: Mapping[Any, Any]) -> pa.Table:
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, column in batch.items():
        if not isinstance(name, str):
            raise BatchTypeError(f"column name {name!r}", type(name).__qualname__, "a string")
        columns[name] = to_column(column, name)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ColumnLengthsError(lengths)
    return _from_table(pa.Table.from_arrays(list(columns.values()), names=list(columns)))


def to_batch(block: pa.Table, batch_format: str | None, *, writable: bool = False) -> Any:
    """Return a block as a batch.

    Args:
        block: The block.
        batch_format: `"numpy"` or `"default"`: a dict of ndarrays. `"pandas"` and `"polars"`: a DataFrame.
            `"pyarrow"`: the block itself. None: a pandas DataFrame if the block was made from one, else the block.
        writable: Copy arrays of a NumPy batch that are views of the block, so that a program may modify them.

    Raises:
        ValueError: The format is unknown.

    Example:
        >>> to_batch(pa.table({"id": [1, None]}), "numpy")
        {'id': array([ 1., nan])}
    """
    if batch_format in {"numpy", "default"}:
        return to_numpy(block, writable=writable)
    if batch_format == "pyarrow" or (batch_format is None and not frames.is_made_from_pandas(block)):
        return block
    if batch_format in {"pandas", None}:
        return frames.to_pandas(block)
    if batch_format == "polars":
        return frames.to_polars(block)
    raise ValueError(f"batch_format is {batch_format!r}, but must be one of {BATCH_FORMATS}")


def to_numpy(block: pa.Table, *, writable: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Return a block as a dict of ndarrays, in the order of its columns."""
    arrays = {name: values.to_ndarray(block.column(i)) for i, name in enumerate(block.column_names)}
    if writable:
        return {name: array if array.flags.writeable else array.copy() for name, array in arrays.items()}
    return arrays
