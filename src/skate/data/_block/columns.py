"""Convert the values of a column (lists, arrays, tensors) to Arrow arrays."""

from __future__ import annotations

import datetime
import decimal
import numbers
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._block import objects, tensors
from skate.data._block.errors import BatchTypeError, MixedTypesError

_ALLOWED = "an ndarray, a list or another sequence with one value per row"

# pyarrow raises these for values that have no common type, no type at all, or that are too large.
CONVERSION_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


def to_column(values: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Convert the values of a column to an Arrow array.

    Args:
        values: A list, a tuple, an ndarray, a tensor, a Series, or an Arrow array. Values with more than one
            dimension become a column of tensors.
        name: Name of the column, for errors.

    Raises:
        BatchTypeError: The values have another type.
        MixedTypesError: The values, for example strings and numbers, have no common type.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray):
        return _from_ndarray(values, name)
    if isinstance(values, list):
        return from_values(values, name)
    if is_tensor_like(values):
        return _from_ndarray(as_ndarray(values), name)
    if type(values).__module__.startswith("pandas."):
        return from_pandas(values, name)
    if hasattr(values, "__arrow_c_stream__"):  # a Polars Series
        return pa.chunked_array(values)
    if isinstance(values, str | bytes | bytearray | Mapping) or not hasattr(values, "__len__"):
        raise BatchTypeError(f"column {name!r} of a batch", type(values).__qualname__, _ALLOWED)
    if hasattr(values, "__array__"):
        return _from_ndarray(np.asarray(values), name)
    try:
        listed = list(values)
    except TypeError:
        raise BatchTypeError(f"column {name!r} of a batch", type(values).__qualname__, _ALLOWED) from None
    return from_values(listed, name)


def from_pandas(series: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Convert a pandas Series, Index or array to an Arrow array; NaN, NaT and NA become null."""
    if series.dtype != np.dtype(object):
        return pa.array(series, from_pandas=True)
    if isinstance(next(iter(series), None), str | bytes):
        try:
            return pa.array(series, from_pandas=True)
        except CONVERSION_ERRORS:
            pass  # not only text: the code below finds the type, and the rows that do not fit
    missing: list[bool] = sys.modules["pandas"].isna(series).tolist()
    items = [None if gone else item for item, gone in zip(series, missing, strict=True)]
    return from_values(items, name)


def is_tensor_like(value: Any) -> bool:
    """Return whether a value is a torch or TensorFlow tensor, without importing either."""
    module = type(value).__module__
    return module.startswith(("torch", "tensorflow", "jax")) and hasattr(value, "__array__")


def as_ndarray(value: Any) -> npt.NDArray[Any]:
    """Convert an ndarray or a tensor on any device to an ndarray."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # NumPy has no such type; float32 represents all its values
            value = value.float()
        return value.numpy()  # type: ignore[no-any-return]  # torch is not imported here
    return np.asarray(value)


def from_values(values: Sequence[Any], name: str) -> pa.Array:
    """Convert Python values to an Arrow array; None becomes null."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, np.ndarray) or is_tensor_like(first):
        return _from_tensors(values, name)
    if isinstance(first, datetime.datetime | np.datetime64):
        return _from_datetimes(values, name)
    try:
        return pa.array(values)
    except CONVERSION_ERRORS:
        return _without_common_type(values, name)


def _from_ndarray(array: npt.NDArray[Any], name: str) -> pa.Array:
    if array.ndim == 0:
        raise BatchTypeError(f"column {name!r} of a batch", f"{array.dtype} without a dimension", _ALLOWED)
    if array.dtype.kind == "O":
        return from_values(array.tolist(), name)
    if isinstance(array, np.ma.MaskedArray):
        return _from_masked(array, name)
    try:
        return tensors.flat_values(array) if array.ndim == 1 else tensors.from_ndarray(array)
    except CONVERSION_ERRORS:
        return objects.from_objects(list(array))


def _from_masked(array: np.ma.MaskedArray[Any, Any], name: str) -> pa.Array:
    if array.ndim > 1:
        return from_values(array.tolist(), name)  # lists, because a tensor cannot hold missing elements
    column = _from_ndarray(array.data, name)
    return pc.if_else(pa.array(np.ma.getmaskarray(array)), pa.scalar(None, column.type), column)


def _from_tensors(values: Sequence[Any], name: str) -> pa.Array:
    try:
        arrays = [
            value if type(value) is np.ndarray else None if value is None else as_ndarray(value)
            for value in values
        ]
        kinds = {dtype.kind for dtype in {array.dtype for array in arrays if array is not None}}
        if "O" in kinds:
            return _from_object_ndarrays(values, name)
        if not (kinds & {"U", "S"} and len(kinds) > 1):  # NumPy would convert the numbers to text
            return tensors.from_ndarrays(arrays)
    except (*CONVERSION_ERRORS, ValueError, TypeError):
        pass  # a ragged list among the arrays, or elements without a common type: handled alike below
    return _without_common_type(values, name)


def _from_object_ndarrays(values: Sequence[Any], name: str) -> pa.Array:
    # An array of objects is NumPy's form of a list: strings of a row, or lists of different lengths.
    lists = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    try:
        return pa.array(lists)
    except CONVERSION_ERRORS:
        return objects.from_objects(values)


def _from_datetimes(values: Sequence[Any], name: str) -> pa.Array:
    try:
        if all(value is None or isinstance(value, np.datetime64) for value in values):
            return tensors.flat_values(np.array(values, dtype="datetime64"))
        column = pa.array(values, from_pandas=True)  # pandas' NaT is a datetime, too
        if any(
            getattr(value, "nanosecond", 0) for value in values
        ):  # of pandas' Timestamp; not in that array
            column = pa.array(values, pa.timestamp("ns", tz=column.type.tz), from_pandas=True)
    except CONVERSION_ERRORS:
        return _without_common_type(values, name)
    return _coarsest_timestamps(column) if pa.types.is_timestamp(column.type) else column


def _coarsest_timestamps(column: pa.Array) -> pa.Array:
    """Return timestamps in the coarsest unit that represents all of them, as Ray does."""
    for unit in ("s", "ms", "us"):
        if unit == column.type.unit:
            break
        coarse = pa.timestamp(unit, tz=column.type.tz)
        try:
            return column.cast(coarse)
        except pa.ArrowInvalid:
            continue  # a value needs a finer unit
    return column


def _without_common_type(values: Sequence[Any], name: str) -> pa.Array:
    """Convert values for which Arrow found no type: large integers, or Python objects.

    Raises:
        MixedTypesError: Each value has an Arrow type, but they have none in common.
    """
    first_rows: dict[str, tuple[int, Any]] = {}
    has_objects = False
    for row, value in enumerate(values):
        if value is not None:
            kind = _kind_of(value)
            has_objects = has_objects or kind == "object"
            first_rows.setdefault(kind, (row, value))
    kinds = set(first_rows)
    if kinds == {"int"}:
        return _from_large_integers(values)
    if has_objects or len(kinds) == 1 or kinds == {"int", "float"}:
        return objects.from_objects(values)
    raise MixedTypesError(
        name, {type(value).__name__: (row, _shorten(value)) for row, value in first_rows.values()}
    )


def _from_large_integers(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.uint64())
    except CONVERSION_ERRORS:
        return objects.from_objects(values)  # too large for any Arrow integer


# The order matters: a bool is an int, and a datetime is a date.
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    (str, "str"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((datetime.datetime, np.datetime64), "datetime"),
    (datetime.date, "date"),
    (datetime.time, "time"),
    ((datetime.timedelta, np.timedelta64), "timedelta"),
    (decimal.Decimal, "Decimal"),
    (Mapping, "dict"),
    ((list, tuple, np.ndarray), "list"),
)


def _kind_of(value: Any) -> str:
    for types, kind in _KINDS:
        if isinstance(value, types):
            return kind
    return "int" if isinstance(value, numbers.Integral) else "object"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
