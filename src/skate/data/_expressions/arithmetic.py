"""Implementation of the operators on Arrow arrays and scalars.

Most operators are functions of `pyarrow.compute`. The exceptions are `+`, which also concatenates text, and `//`
and `%`, which round as in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Callable


FUNCTIONS: dict[Operation, Callable[..., Any]] = {
    Operation.ADD: pc.add,
    Operation.SUB: pc.subtract,
    Operation.MUL: pc.multiply,
    Operation.DIV: pc.divide,
    Operation.GT: pc.greater,
    Operation.LT: pc.less,
    Operation.GE: pc.greater_equal,
    Operation.LE: pc.less_equal,
    Operation.EQ: pc.equal,
    Operation.NE: pc.not_equal,
    Operation.AND: pc.and_kleene,
    Operation.OR: pc.or_kleene,
    Operation.NOT: pc.invert,
    Operation.IS_NULL: pc.is_null,
    Operation.IS_NOT_NULL: pc.is_valid,
}
# Few Arrow functions support views; a view may exceed 2 GiB.
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_FAMILIES = (
    lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
    lambda t: pa.types.is_string(t) or pa.types.is_large_string(t),
    lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
    pa.types.is_temporal,
    pa.types.is_boolean,
)


def is_text(column_type: pa.DataType) -> bool:
    """Return whether values of this type are text, dictionary-encoded or not."""
    column_type = value_type(column_type)
    return bool(pa.types.is_string(column_type) or pa.types.is_large_string(column_type))


def value_type(column_type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column, without dictionary encoding or views."""
    if pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
    return _VIEWS.get(column_type, column_type)


def is_view(column_type: pa.DataType) -> bool:
    """Return whether the type is a view."""
    return column_type in _VIEWS


def decode_dictionary(value: Any) -> Any:
    """Return an array without dictionary encoding, which few Arrow functions support."""
    plain = value_type(value.type)
    return value if plain == value.type else value.cast(plain)


def apply_binary(op: Operation, left: Any, right: Any) -> Any:
    """Combine two arrays or scalars by an operator other than IN and NOT_IN."""
    if op in (Operation.FLOORDIV, Operation.MOD):
        return _divide_rounded(op, left, right)
    if op is Operation.ADD and (common := joint_type(left.type, right.type)) is not None:
        return concat_text(left.cast(common), right.cast(common), common)
    return FUNCTIONS[op](left, right)


def joint_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type of text that `+` concatenates these types to; None if it does not apply.

    It applies to text and text, and to text and a column of nulls.
    """
    kinds = {value_type(left), value_type(right)} - {pa.null()}
    if not kinds or not all(map(is_text, kinds)):
        return None
    return pa.large_string() if pa.large_string() in kinds else pa.string()


def concat_text(left: Any, right: Any, common: pa.DataType) -> Any:
    """Concatenate text of one type; also for pyarrow expressions."""
    return pc.binary_join_element_wise(left, right, pa.scalar("", common))


def _divide_rounded(op: Operation, left: Any, right: Any) -> Any:
    """Divide as Python does: the quotient rounds down, and the remainder has the sign of the divisor."""
    common = pc.divide(_empty(left), _empty(right)).type  # raises for types that cannot be divided
    if pa.types.is_decimal(common):
        quotient = pc.floor(pc.divide(left, right))
        return quotient if op is Operation.FLOORDIV else pc.subtract(left, pc.multiply(quotient, right))
    if not (pa.types.is_integer(common) or pa.types.is_floating(common)):
        raise pa.ArrowNotImplementedError("the quotient is not a number that can be rounded")
    dividend, divisor = _numpy(left.cast(common)), _numpy(right.cast(common))
    nulls = _nulls(left) | _nulls(right)
    if pa.types.is_integer(common) and np.any((divisor == 0) & ~nulls):
        raise pa.ArrowInvalid("divide by zero")
    with np.errstate(all="ignore"):  # floats become inf or NaN; the remaining integer zeros are under nulls
        values = (np.floor_divide if op is Operation.FLOORDIV else np.remainder)(dividend, divisor)
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return pa.scalar(None if nulls else values.item(), common)
    return pa.array(values, common, mask=np.broadcast_to(nulls, values.shape) if np.any(nulls) else None)


def _empty(value: Any) -> pa.Array:
    """Return an empty array of the type of a value, to determine the result type of an operator."""
    return pa.array([], value_type(value.type))


def _nulls(value: Any) -> np.ndarray[Any, Any]:
    """Return a mask of the nulls; a scalar if there are none."""
    if isinstance(value, pa.Scalar) or value.null_count == 0:
        return np.asarray(isinstance(value, pa.Scalar) and not value.is_valid)
    return _numpy(pc.is_null(value))


def _numpy(value: Any) -> np.ndarray[Any, Any]:
    """Return numbers or booleans as a NumPy array, with zeros for nulls."""
    if isinstance(value, pa.Scalar):
        return np.asarray(value.as_py() if value.is_valid else 0, value.type.to_pandas_dtype())
    if value.null_count:
        value = pc.fill_null(value, pa.scalar(0, value.type))
    array = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow has no types


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
