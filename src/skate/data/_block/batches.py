"""Conversions between batches, in the format that a program requests, and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from skate.data._block import frames, schemas, tables, values
from skate.data._block.batcher import Slice
from skate.data._block.casts import cast
from skate.data._block.columns import to_column
from skate.data._block.errors import BatchTypeError, ColumnLengthsError
from skate.data._block.kinds import without_views

_ALLOWED = "a dict of columns ({'x': array}), a pandas or Polars DataFrame, or a pyarrow Table"

#: Values of `batch_format=`.
BATCH_FORMATS = ("default", "numpy", "pandas", "pyarrow", "polars", None)


def to_block(batch: Any, given: GivenText | None = None) -> pa.Table:
    """Return a batch as a block, without a copy where Arrow can use the memory.

    Args:
        batch: A dict with a list or an array per column, a pandas or Polars DataFrame, or a pyarrow Table or
            RecordBatch.
        given: The text that the function which returned the batch has received.

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
        return _from_mapping(batch, given)
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


def _from_mapping(batch: Mapping[Any, Any], given: GivenText | None) -> pa.Table:
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, column in batch.items():
        if not isinstance(name, str):
            raise BatchTypeError(f"column name {name!r}", type(name).__qualname__, "a string")
        known = None if given is None else given.find(column)
        columns[name] = to_column(column, name) if known is None else known
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ColumnLengthsError(lengths)
    return _from_table(pa.Table.from_arrays(list(columns.values()), names=list(columns)))


class GivenText:
    """The text columns of a block that a function has received as ndarrays.

    A function often returns columns that it does not change. Their strings need no conversion back to Arrow.

    Args:
        block: The block.
        batch: The batch that was made from it.
    """

    def __init__(self, block: pa.Table, batch: Any) -> None:
        self._known: dict[int, tuple[Any, Any, pa.ChunkedArray]] = {}
        if not isinstance(batch, dict):
            return
        for field, column in zip(block.schema, block.columns, strict=True):
            # Arrow would give the strings another type than these, or none at all.
            if field.type in _PLAIN_TEXT and column.null_count < len(column):
                array = batch[field.name]
                # The copy keeps the strings alive, so that no other object can have the address of one.
                self._known[id(array)] = array, array.copy(), column

    def find(self, column: Any) -> pa.ChunkedArray | None:
        """Return the column of the block if an ndarray has been made from it and holds the same strings."""
        array, before, known = self._known.get(id(column), (None, None, None))
        if array is None or array.shape != before.shape or array.dtype != before.dtype:
            return None
        return known if np.array_equal(_addresses(array), _addresses(before)) else None


_PLAIN_TEXT = frozenset({pa.string(), pa.binary()})


class _Addresses:
    """Shows NumPy the addresses of the objects in a one-dimensional array."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(np.intp).str,
            "shape": array.shape,
            "strides": array.strides,
            "data": (address, True),
        }


def _addresses(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(_Addresses(array))


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
        return frames.without_mark(block)  # what the program makes of the table is not a DataFrame's
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


def slices_to_batches(slices: Iterable[Slice], batch_format: str | None) -> Iterator[tuple[int, Any]]:
    """Yield the number of rows and the batch of each slice of a block."""
    if batch_format in {"numpy", "default"}:
        yield from _slices_to_numpy(slices)
        return
    for block, start, stop in slices:
        yield stop - start, to_batch(tables.slice_rows(block, start, stop), batch_format)


def _slices_to_numpy(slices: Iterable[Slice]) -> Iterator[tuple[int, dict[str, np.ndarray[Any, Any]]]]:
    """Convert slices to dicts of ndarrays; columns that can be views of one array are converted once for a block."""
    current: pa.Table | None = None
    shared: dict[str, np.ndarray[Any, Any]] = {}
    for block, start, stop in slices:
        if block is not current:
            current = block
            shared = _shared_arrays(block) if stop - start < block.num_rows else {}
            others = block.drop_columns(list(shared)) if shared else block
        if len(shared) == block.num_columns and shared:
            yield stop - start, {name: array[start:stop] for name, array in shared.items()}
            continue
        batch = to_numpy(tables.slice_rows(others, start, stop))
        if shared:
            batch = {
                name: shared[name][start:stop] if name in shared else batch[name]
                for name in block.column_names
            }
        yield stop - start, batch


def _shared_arrays(block: pa.Table) -> dict[str, np.ndarray[Any, Any]]:
    """Return ndarrays of the columns of numbers without nulls, and of text in which values repeat."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, column in zip(block.column_names, block.columns, strict=True):
        if column.num_chunks == 1:
            array = values.to_shared(column.chunk(0))
            if array is not None:
                found[name] = array
    return found
