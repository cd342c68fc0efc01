"""Convert expressions to those of pyiceberg, which tables use to skip files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.air import _optional
from skate.data._expressions.errors import NotExpressibleError
from skate.data._expressions.nodes import BinaryExpr, ColumnExpr, LiteralExpr, UnaryExpr, strip_alias
from skate.data._expressions.operations import Operation
from skate.data._expressions.printing import inline

if TYPE_CHECKING:
    from skate.data.expressions import Expr

_MIRRORED = {
    Operation.GT: Operation.LT,
    Operation.GE: Operation.LE,
    Operation.LT: Operation.GT,
    Operation.LE: Operation.GE,
    Operation.EQ: Operation.EQ,
    Operation.NE: Operation.NE,
}


def to_iceberg(expr: Expr) -> Any:
    """Convert a predicate of comparisons between columns and values, and their combinations.

    Raises:
        NotExpressibleError: pyiceberg has no equivalent, for example for a comparison of two columns.
    """
    expressions = _optional.load("pyiceberg.expressions", "a filter of an Iceberg table", "pyiceberg")
    expr = strip_alias(expr)
    if isinstance(expr, BinaryExpr) and expr.op in (Operation.AND, Operation.OR):
        join = expressions.And if expr.op is Operation.AND else expressions.Or
        return join(to_iceberg(expr.left), to_iceberg(expr.right))
    if isinstance(expr, UnaryExpr):
        if expr.op is Operation.NOT:
            return expressions.Not(to_iceberg(expr.operand))
        ask = {Operation.IS_NULL: expressions.IsNull, Operation.IS_NOT_NULL: expressions.NotNull}[expr.op]
        return ask(_column(expr.operand, expr))
    if isinstance(expr, BinaryExpr) and expr.op in (Operation.IN, Operation.NOT_IN):
        among = expressions.In if expr.op is Operation.IN else expressions.NotIn
        values = list(_value(expr.right, expr))
        if any(value is None for value in values):
            raise _not_expressible(expr, "in Iceberg, null equals nothing: use is_null()")
        return among(_column(expr.left, expr), values)
    if isinstance(expr, BinaryExpr) and expr.op in _MIRRORED:
        compare = {
            Operation.GT: expressions.GreaterThan,
            Operation.GE: expressions.GreaterThanOrEqual,
            Operation.LT: expressions.LessThan,
            Operation.LE: expressions.LessThanOrEqual,
            Operation.EQ: expressions.EqualTo,
            Operation.NE: expressions.NotEqualTo,
        }
        column, value, op = expr.left, expr.right, expr.op
        if isinstance(strip_alias(column), LiteralExpr):
            column, value, op = expr.right, expr.left, _MIRRORED[op]
        return compare[op](_column(column, expr), _value(value, expr))
    raise _not_expressible(expr, "it is not a comparison of a column with a value")


def _column(side: Expr, whole: Expr) -> str:
    side = strip_alias(side)
    if not isinstance(side, ColumnExpr):
        raise _not_expressible(whole, f"{inline(side)} is not a column")
    return side.name


def _value(side: Expr, whole: Expr) -> Any:
    side = strip_alias(side)
    if not isinstance(side, LiteralExpr):
        raise _not_expressible(whole, f"{inline(side)} is not a value")
    if side.value is None:
        raise _not_expressible(whole, "in Iceberg, null equals nothing: use is_null()")
    return side.value


def _not_expressible(expr: Expr, why: str) -> NotExpressibleError:
    return NotExpressibleError(f"{inline(expr)} cannot be converted to an Iceberg expression: {why}")
