"""Convert the columns of a block to ndarrays or to lists of Python values."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._block import encodings, tensors
from skate.data._block.kinds import is_extension, is_list, is_plain_number, is_text
from skate.data._block.objects import PythonObjectType

# With more fields, a dict literal is slower than a loop.
_WIDEST_LITERAL = 64

# The first rows of a text column, which tell whether its values repeat; shorter columns are converted value by value.
_SAMPLE_ROWS = 256
_MIN_ROWS_FOR_SHARING = 4 * _SAMPLE_ROWS
_SHARED_TYPES = frozenset({pa.string(), pa.large_string(), pa.binary(), pa.large_binary()})

_DATETIMES = ("s", "ms", "us")  # NumPy converts these to datetimes, but nanoseconds to integers


def to_ndarray(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Convert a column to an ndarray, as a view if it has one chunk and the layout allows.

    Integers with nulls become floats with NaN, tensors of one shape become one array with an additional axis, and
    types unknown to NumPy (strings, lists, structs, objects) become an array of objects.
    """
    if _holds_structs(column.type):
        return tensors.object_array(_nested_to_ndarrays(to_list(column)))
    if pa.types.is_dictionary(column.type):
        # pyarrow would replace a null with the last value of the dictionary.
        column = column.cast(column.type.value_type)
    if is_text(column.type) and column.num_chunks:
        parts = [_text_to_ndarray(chunk) for chunk in column.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    if column.num_chunks == 1 and is_plain_number(column.type) and column.null_count == 0:
        return numbers_to_ndarray(column.chunk(0))
    if not is_extension(column.type):
        return column.to_numpy()  # type: ignore[no-any-return]  # pyarrow has no type information
    if column.num_chunks == 1:
        return _extension_to_ndarray(column.chunk(0))
    if column.num_chunks == 0:
        return _extension_to_ndarray(pa.array([], column.type))
    return _concat([_extension_to_ndarray(chunk) for chunk in column.chunks])


def _holds_structs(type_: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type_) or (is_list(type_) and _holds_structs(type_.value_type)))


def _nested_to_ndarrays(items: list[Any]) -> list[Any]:
    """Convert lists of structs to arrays; pyarrow would convert integers in a struct with a null to floats."""
    return [
        tensors.object_array(_nested_to_ndarrays(item)) if isinstance(item, list) else item for item in items
    ]


def numbers_to_ndarray(chunk: pa.Array) -> npt.NDArray[Any]:
    """Return numbers without nulls as a read-only view, as `pa.Array.to_numpy` does, which would import pandas."""
    dtype = np.dtype(chunk.type.to_pandas_dtype())
    if not len(chunk):
        return np.empty(0, dtype)
    array = np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)
    array.flags.writeable = False
    return array


def to_shared(chunk: pa.Array) -> npt.NDArray[Any] | None:
    """Return an array whose slices are cheaper than conversions of slices of the chunk; None if there is none."""
    if is_plain_number(chunk.type):
        return numbers_to_ndarray(chunk) if chunk.null_count == 0 else None
    return share_text(chunk)


def _text_to_ndarray(chunk: pa.Array) -> npt.NDArray[Any]:
    strings = share_text(chunk)
    if strings is None:
        strings = chunk.to_numpy(zero_copy_only=False)
    return strings


def share_text(chunk: pa.Array) -> npt.NDArray[Any] | None:
    """Convert text to an array in which equal values are one object; None if its values hardly repeat.

    To find equal values costs less than half of creating a string for each.
    """
    known = encodings.find_strings(chunk)
    if known is not None:
        return known
    if len(chunk) < _MIN_ROWS_FOR_SHARING or chunk.type not in _SHARED_TYPES:
        return None
    sample = chunk.slice(0, _SAMPLE_ROWS)
    if not values_repeat(_SAMPLE_ROWS, pc.count_distinct(sample, mode="all").as_py(), len(chunk)):
        return None
    encoded = pc.dictionary_encode(chunk, null_encoding="encode")
    strings: npt.NDArray[Any] = encoded.dictionary.to_numpy(zero_copy_only=False)
    shared: npt.NDArray[Any] = strings[encoded.indices.to_numpy()]
    return shared


def values_repeat(sample_rows: int, distinct: int, rows: int) -> bool:
    """Return whether a column is expected to have at most half as many distinct values as rows.

    Among `n` values drawn from `d` equally frequent ones, about `n * n / 2d` are repetitions.

    >>> values_repeat(256, 256, 100_000), values_repeat(256, 230, 100_000), values_repeat(256, 250, 4096)
    (False, True, False)
    """
    repetitions = sample_rows - distinct
    return sample_rows * sample_rows <= repetitions * rows


def _extension_to_ndarray(chunk: pa.Array) -> npt.NDArray[Any]:
    if tensors.is_tensor(chunk.type):
        return tensors.to_ndarray(chunk)
    if isinstance(chunk.type, PythonObjectType):
        return tensors.object_array(chunk.to_objects())
    return tensors.object_array(chunk.to_pylist())


def _concat(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if any(part.dtype.kind == "O" for part in parts):
        # Parts with nulls have one axis, parts without have more.
        return tensors.object_array([value for part in parts for value in part])
    return np.concatenate(parts)


def to_list(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Convert a column to Python values, tensors to ndarrays.

    The values equal those of `to_pylist`; numbers, text, and lists of them are several times faster.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return _chunk_to_list(column.chunk(0))
        return [value for chunk in column.chunks for value in _chunk_to_list(chunk)]
    return _chunk_to_list(column)


def _chunk_to_list(chunk: pa.Array) -> list[Any]:
    type_ = chunk.type
    if is_extension(type_):
        if tensors.is_tensor(type_):
            return list(tensors.to_ndarray(chunk))
        return chunk.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no type information
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _lists(chunk)
    if pa.types.is_struct(type_):
        return _structs(chunk)
    items: list[Any]
    if is_text(type_):
        items = _text_to_ndarray(chunk).tolist()
        return items
    if chunk.null_count == 0 and is_plain_number(type_):
        items = numbers_to_ndarray(chunk).tolist()
        return items
    if chunk.null_count == 0 and _is_native_to_numpy(type_):
        return chunk.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    if _is_native_to_numpy(type_):
        return _numbers_with_nulls(chunk)
    return chunk.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no type information


def _is_native_to_numpy(type_: pa.DataType) -> bool:
    """Return whether NumPy has the same type, and converts its values to the same Python type."""
    if pa.types.is_timestamp(type_):
        return bool(type_.unit in _DATETIMES and type_.tz is None)
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_))


def _numbers_with_nulls(chunk: pa.Array) -> list[Any]:
    zero = pa.scalar(0, pa.int64()).cast(chunk.type)
    values: list[Any] = chunk.fill_null(zero).to_numpy(zero_copy_only=False).tolist()
    for index in np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False)).tolist():
        values[index] = None
    return values


def _lists(chunk: pa.Array) -> list[Any]:
    if len(chunk) == 0:
        return []
    bounds = chunk.offsets.to_numpy()
    first = int(bounds[0])
    items = to_list(chunk.values.slice(first, int(bounds[-1]) - first))
    starts = (bounds - first).tolist()
    lists: list[Any] = [items[start:stop] for start, stop in pairwise(starts)]
    return _insert_nulls(lists, chunk)


def _structs(chunk: pa.Array) -> list[Any]:
    names = [field.name for field in chunk.type]
    if not names or len(set(names)) < len(names):
        return chunk.to_pylist()  # type: ignore[no-any-return]  # pyarrow says what is wrong with two of one name
    fields = [to_list(chunk.field(index)) for index in range(len(names))]
    return _insert_nulls(to_dicts(names, fields), chunk)


def _insert_nulls(values: list[Any], chunk: pa.Array) -> list[Any]:
    if chunk.null_count:
        for index in np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[index] = None
    return values


def to_dicts(names: list[str], columns: list[list[Any]]) -> list[Any]:
    """Return a dict for each position in some columns, of which there is at least one."""
    if len(names) > _WIDEST_LITERAL:
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return _dict_maker(len(names))(names, columns)


@lru_cache(maxsize=_WIDEST_LITERAL)
def _dict_maker(width: int) -> Callable[[list[str], list[list[Any]]], list[Any]]:
    """Return a function that builds dicts with a dict display, several times as fast as `dict(zip())`.

    `{n0: v0, n1: v1}` is one bytecode instruction, but its width must be fixed in the source.
    """
    names = ", ".join(f"n{i}" for i in range(width))
    row = ", ".join(f"v{i}" for i in range(width))
    items = ", ".join(f"n{i}: v{i}" for i in range(width))
    source = f"lambda names, columns: (lambda {names}: [{{{items}}} for {row}, in zip(*columns)])(*names)"
    return eval(source)  # type: ignore[no-any-return]  # nothing but a number of columns is in that source
