"""Families of Arrow types that are treated alike."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as is_


def is_list(type_: pa.DataType) -> bool:
    """Return whether values are lists, of variable or fixed length."""
    return bool(is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_))


def is_number(type_: pa.DataType) -> bool:
    """Return whether values are integers, floats or decimals."""
    return bool(is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_))


def is_plain_number(type_: pa.DataType) -> bool:
    """Return whether values are integers or floats, in memory as NumPy has them."""
    return bool(is_.is_integer(type_) or is_.is_floating(type_))


def is_string(type_: pa.DataType) -> bool:
    """Return whether values are text."""
    return bool(is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether values are bytes, of variable or fixed length."""
    variable = is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_binary_view(type_)
    return bool(variable or (is_.is_fixed_size_binary(type_) and not is_.is_decimal(type_)))


def is_text(type_: pa.DataType) -> bool:
    """Return whether values are text or bytes."""
    return is_string(type_) or is_bytes(type_)


def is_extension(type_: pa.DataType) -> bool:
    """Return whether a type is an extension type: a tensor, a Python object, a UUID."""
    return isinstance(type_, pa.BaseExtensionType)


def without_views(type_: pa.DataType) -> pa.DataType:
    """Return the type for the same values without views, which few Arrow kernels support."""
    if is_.is_string_view(type_):
        return pa.string()
    if is_.is_binary_view(type_):
        return pa.binary()
    if is_.is_struct(type_):
        return pa.struct([field.with_type(without_views(field.type)) for field in type_])
    if is_.is_list(type_) or is_.is_large_list(type_):
        make = pa.list_ if is_.is_list(type_) else pa.large_list
        return make(type_.value_field.with_type(without_views(type_.value_type)))
    return type_
