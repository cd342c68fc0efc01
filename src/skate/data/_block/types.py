"""The common type of two Arrow types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types as is_

from skate.data._block.errors import SchemaConflictError
from skate.data._block.kinds import is_extension, is_list, is_number, is_string, is_text
from skate.data._block.objects import PythonObjectType
from skate.data._block.tensors import VariableShapedTensorType, is_tensor

_UNITS = ("s", "ms", "us", "ns")  # from coarse to fine
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # decimal digits of the largest integer of this many bits


def common_type(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    """Return the type that represents the values of both.

    Args:
        left: Type of a column in one block.
        right: Its type in another block.
        column: Name of the column, for the error.

    Raises:
        SchemaConflictError: No such type exists, for example for strings and numbers.
    """
    if left == right or is_.is_null(right):
        return left
    if is_.is_null(left):
        return right
    found = _common(left, right, column)
    if found is None:
        raise SchemaConflictError(column, (str(left), str(right)))
    return found


def _common(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType | None:
    if isinstance(left, PythonObjectType) or isinstance(right, PythonObjectType):
        return PythonObjectType()  # any value can be pickled
    if is_extension(left) or is_extension(right):
        return _common_tensor(left, right, column) if is_tensor(left) and is_tensor(right) else None
    if is_.is_dictionary(left) or is_.is_dictionary(right):
        return _common_dictionary(left, right, column)
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_text(left) and is_text(right):
        return _common_text(left, right)
    if is_.is_temporal(left) and is_.is_temporal(right):
        return _common_time(left, right)
    return _common_nested(left, right, column)


def _common_tensor(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    value = common_type(left.value_type, right.value_type, f"{column}[]")
    left_fixed, right_fixed = (isinstance(type_, pa.FixedShapeTensorType) for type_ in (left, right))
    if left_fixed and right_fixed and left.shape == right.shape and left.permutation == right.permutation:
        return pa.fixed_shape_tensor(value, left.shape, permutation=left.permutation)
    left_ndim, right_ndim = (
        len(type_.shape) if isinstance(type_, pa.FixedShapeTensorType) else type_.ndim
        for type_ in (left, right)
    )
    return VariableShapedTensorType(value, left_ndim if left_ndim == right_ndim else None)


def _common_dictionary(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType:
    values = [type_.value_type if is_.is_dictionary(type_) else type_ for type_ in (left, right)]
    value = common_type(values[0], values[1], column)
    if is_.is_dictionary(left) and is_.is_dictionary(right):
        return pa.dictionary(_common_number(left.index_type, right.index_type), value)
    return value


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if is_.is_decimal(left) or is_.is_decimal(right):
        if is_.is_floating(left) or is_.is_floating(right):
            return pa.float64()
        return _common_decimal(left, right)
    if is_.is_integer(left) and is_.is_integer(right) and {left, right} & {pa.uint64()}:
        # No integer type represents both; int64 at least rejects values out of range, whereas a float rounds them.
        return pa.uint64() if is_.is_unsigned_integer(left) == is_.is_unsigned_integer(right) else pa.int64()
    return pa.from_numpy_dtype(np.promote_types(left.to_pandas_dtype(), right.to_pandas_dtype()))


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    whole, scale = 0, 0
    for type_ in (left, right):
        if is_.is_decimal(type_):
            whole, scale = max(whole, type_.precision - type_.scale), max(scale, type_.scale)
        else:
            whole = max(whole, _DIGITS[type_.bit_width])
    precision = whole + scale
    if precision <= 38:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale) if precision <= 76 else None


def _common_text(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    is_large = any(is_.is_large_string(type_) or is_.is_large_binary(type_) for type_ in (left, right))
    if is_string(left) and is_string(right):
        return pa.large_string() if is_large else pa.string()
    # Like Arrow, which converts a list of strings and bytes to bytes.
    return pa.large_binary() if is_large else pa.binary()


def _common_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if is_.is_date(left) and is_.is_date(right):
        return pa.date64()
    if is_.is_time(left) and is_.is_time(right):
        unit = _finer(left.unit, right.unit)
        return pa.time64(unit) if unit in {"us", "ns"} else pa.time32(unit)
    if is_.is_duration(left) and is_.is_duration(right):
        return pa.duration(_finer(left.unit, right.unit))
    if is_.is_timestamp(left) and is_.is_timestamp(right):
        if (left.tz is None) != (right.tz is None):
            return None  # a time without a zone is ambiguous
        return pa.timestamp(_finer(left.unit, right.unit), tz=left.tz if left.tz == right.tz else "UTC")
    dates_and_timestamps = [type_ for type_ in (left, right) if is_.is_date(type_) or is_.is_timestamp(type_)]
    if len(dates_and_timestamps) == 2:
        timestamp = left if is_.is_timestamp(left) else right
        return timestamp if timestamp.tz is None else None
    return None


def _finer(left: str, right: str) -> str:
    return max(left, right, key=_UNITS.index)


def _common_nested(left: pa.DataType, right: pa.DataType, column: str) -> pa.DataType | None:
    if is_list(left) and is_list(right):
        value = common_type(left.value_type, right.value_type, f"{column}[]")
        if is_.is_large_list(left) or is_.is_large_list(right):
            return pa.large_list(value)
        if (
            is_.is_fixed_size_list(left)
            and is_.is_fixed_size_list(right)
            and left.list_size == right.list_size
        ):
            return pa.list_(value, left.list_size)
        return pa.list_(value)
    if is_.is_struct(left) and is_.is_struct(right):
        return pa.struct(common_fields([list(left), list(right)], f"{column}."))
    if is_.is_map(left) and is_.is_map(right):
        key = common_type(left.key_type, right.key_type, f"{column} keys")
        return pa.map_(key, common_type(left.item_type, right.item_type, f"{column}[]"))
    return None


def common_fields(groups: list[list[pa.Field]], path: str = "") -> list[pa.Field]:
    """Return one field per name, in the order of first occurrence, with a type that represents all.

    Args:
        groups: The fields of each schema, or of each struct.
        path: Prefix of names in an error.
    """
    fields: dict[str, pa.Field] = {}
    for group in groups:
        for field in group:
            known = fields.get(field.name)
            if known is None:
                fields[field.name] = field.with_nullable(True)
            elif known.type != field.type:
                type_ = common_type(known.type, field.type, f"{path}{field.name}")
                fields[field.name] = known.with_type(type_)
    return list(fields.values())
