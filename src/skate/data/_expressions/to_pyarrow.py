"""Convert expressions to those of pyarrow, which readers evaluate while they read."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions.arithmetic import (
    FUNCTIONS,
    concat_text,
    is_view,
    joint_type,
    value_set,
    value_type,
)
from skate.data._expressions.arrow import ArrowExpr
from skate.data._expressions.calls import PyArrowComputeUDFExpr, UDFExpr
from skate.data._expressions.errors import NotExpressibleError
from skate.data._expressions.nodes import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    LiteralExpr,
    StarExpr,
    UnaryExpr,
    strip_alias,
)
from skate.data._expressions.operations import Operation
from skate.data._expressions.printing import inline
from skate.data._expressions.sources import DownloadExpr

if TYPE_CHECKING:
    from skate.data._expressions.expr import Expr


def to_pyarrow(expr: Expr, schema: pa.Schema | None = None) -> pc.Expression:
    """Return the equivalent pyarrow expression.

    Args:
        expr: The expression.
        schema: The columns that it will read, for operators that depend on types.

    Raises:
        NotExpressibleError: pyarrow has no equivalent.
    """
    try:
        return _convert(expr, schema)
    except pa.ArrowException as error:
        raise NotExpressibleError(
            f"{inline(expr)} cannot be converted to a PyArrow expression: {error}"
        ) from error


@singledispatch
def _convert(expr: Expr, schema: pa.Schema | None) -> pc.Expression:
    raise NotExpressibleError(
        f"{inline(expr)} cannot be converted to a PyArrow expression: it depends on more than columns"
    )


@_convert.register
def _(expr: UDFExpr, schema: pa.Schema | None) -> pc.Expression:
    raise NotExpressibleError(
        f"UDF expressions cannot be converted to PyArrow expressions, and {inline(expr)} is one"
    )


@_convert.register
def _(expr: DownloadExpr, schema: pa.Schema | None) -> pc.Expression:
    raise NotExpressibleError(
        f"Download expressions cannot be converted to PyArrow expressions: {inline(expr)}"
    )


@_convert.register
def _(expr: StarExpr, schema: pa.Schema | None) -> pc.Expression:
    raise NotExpressibleError(
        "Star expressions cannot be converted to PyArrow expressions: they expand to several columns"
    )


@_convert.register
def _(expr: ColumnExpr, schema: pa.Schema | None) -> pc.Expression:
    column_type = None if schema is None else expr.get_type(schema)
    if column_type is not None and is_view(column_type):
        return pc.field(expr.name).cast(value_type(column_type))
    return pc.field(expr.name)


@_convert.register
def _(expr: LiteralExpr, schema: pa.Schema | None) -> pc.Expression:
    return pc.scalar(expr.value)


@_convert.register
def _(expr: ArrowExpr, schema: pa.Schema | None) -> pc.Expression:
    return expr.expression


@_convert.register
def _(expr: AliasExpr, schema: pa.Schema | None) -> pc.Expression:
    return _convert(expr.expr, schema)


@_convert.register
def _(expr: UnaryExpr, schema: pa.Schema | None) -> pc.Expression:
    return FUNCTIONS[expr.op](_convert(expr.operand, schema))


@_convert.register
def _(expr: PyArrowComputeUDFExpr, schema: pa.Schema | None) -> pc.Expression:
    return expr.apply([_decode_dictionary(child, schema) for child in expr.children()])


@_convert.register
def _(expr: BinaryExpr, schema: pa.Schema | None) -> pc.Expression:
    if expr.op in (Operation.IN, Operation.NOT_IN):
        found = _membership(expr, schema)
        return pc.invert(found) if expr.op is Operation.NOT_IN else found
    if expr.op in (Operation.FLOORDIV, Operation.MOD):
        raise NotExpressibleError(
            f"{inline(expr)} cannot be converted to a PyArrow expression: pyarrow has no division that rounds down"
        )
    if expr.op is Operation.ADD and (common := _joint_type(expr, schema)) is not None:
        left, right = (_as_type(side, common, schema) for side in expr.children())
        return concat_text(left, right, common)
    return FUNCTIONS[expr.op](_convert(expr.left, schema), _convert(expr.right, schema))


def _membership(expr: BinaryExpr, schema: pa.Schema | None) -> pc.Expression:
    right = strip_alias(expr.right)
    if not isinstance(right, LiteralExpr):
        raise NotExpressibleError(
            f"{inline(expr)} cannot be converted to a PyArrow expression: its values are not constants"
        )
    values = list(right.value)
    column_type = None if schema is None else expr.left.get_type(schema)
    found = pa.array(values) if column_type is None else value_set(values, column_type)
    return pc.is_in(_decode_dictionary(expr.left, schema), value_set=found)


def _joint_type(expr: BinaryExpr, schema: pa.Schema | None) -> pa.DataType | None:
    if schema is None:
        texts = [isinstance(side, LiteralExpr) and isinstance(side.value, str) for side in expr.children()]
        return pa.string() if any(texts) else None
    left, right = (side.get_type(schema) for side in expr.children())
    return None if left is None or right is None else joint_type(left, right)


def _decode_dictionary(expr: Expr, schema: pa.Schema | None) -> pc.Expression:
    column_type = None if schema is None else expr.get_type(schema)
    return _as_type(expr, None if column_type is None else value_type(column_type), schema)


def _as_type(expr: Expr, wanted: pa.DataType | None, schema: pa.Schema | None) -> pc.Expression:
    """Cast an expression unless its type already matches; readers cannot use predicates on casts."""
    converted = _convert(expr, schema)
    if schema is None or wanted is None or expr.get_type(schema) == wanted:
        return converted
    return converted.cast(wanted)
