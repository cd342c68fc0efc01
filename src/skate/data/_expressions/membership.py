"""Implementation of `is_in` and `not_in`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions.arithmetic import value_type

_FAMILIES = (
    lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
    lambda t: pa.types.is_string(t) or pa.types.is_large_string(t),
    lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
    pa.types.is_temporal,
    pa.types.is_boolean,
)


def value_set(values: list[Any], column_type: pa.DataType) -> pa.Array:
    """Return the values as a lookup array for a column.

    Values that the type of the column cannot represent are dropped: no value of the column equals them.

    Raises:
        pa.ArrowTypeError: The values are of another kind, such as text for a column of numbers.
    """
    wanted = value_type(column_type)
    found = pa.array(values)
    if found.type == wanted:
        return found
    if not pa.types.is_null(found.type) and not any(is_a(found.type) and is_a(wanted) for is_a in _FAMILIES):
        raise pa.ArrowTypeError(f"{found.type} never equals {wanted}")
    try:
        return found.cast(wanted)
    except pa.ArrowInvalid:
        return pa.array([value.as_py() for value in found if _fits(value, wanted)]).cast(wanted)


def is_in(column: Any, values: list[Any]) -> Any:
    """Return which values of a column are in a list; null matches only if None is in the list."""
    return pc.is_in(column, value_set=value_set(values, column.type))


def _fits(value: pa.Scalar, wanted: pa.DataType) -> bool:
    try:
        value.cast(wanted)
    except pa.ArrowInvalid:
        return False
    return True
