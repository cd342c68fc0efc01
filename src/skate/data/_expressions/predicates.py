"""Parse predicates: expressions, pyarrow expressions, and strings in Python syntax."""

from __future__ import annotations

import ast
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from skate.data._expressions.arrow import ArrowExpr
from skate.data._expressions.calls import compute
from skate.data._expressions.errors import PredicateSyntaxError
from skate.data._expressions.expr import Expr
from skate.data._expressions.nodes import ColumnExpr, LiteralExpr

if TYPE_CHECKING:
    from collections.abc import Callable

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.And: lambda a, b: a & b,
    ast.Or: lambda a, b: a | b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}

_FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    "is_null": lambda a: a.is_null(),
    "is_not_null": lambda a: a.is_not_null(),
    "is_valid": lambda a: a.is_not_null(),
    "is_nan": lambda a: compute("is_nan", pc.is_nan, a),
    "abs": lambda a: a.abs(),
    "ceil": lambda a: a.ceil(),
    "floor": lambda a: a.floor(),
    "round": lambda a: a.round(),
    "lower": lambda a: a.str.lower(),
    "upper": lambda a: a.str.upper(),
}


def as_predicate(value: Any) -> Expr:
    """Convert a predicate that the user passed to an expression.

    Raises:
        PredicateSyntaxError: The string cannot be parsed.
        TypeError: The value is not a predicate.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, pc.Expression):
        return ArrowExpr(value)
    raise TypeError(
        f"a predicate is an expression such as col('id') > 3, or a string such as 'id > 3'; got {value!r}"
    )


def parse(text: str) -> Expr:
    """Parse a predicate in Python syntax, in which names are columns.

    Supported are literals, arithmetic, comparisons, `and`, `or`, `not`, `in` a list of literals, `is None`, and
    functions such as `is_null(column)`; `a.b` is the column of that name.

    Raises:
        PredicateSyntaxError: The text contains anything else.

    >>> parse("id > 3 and name == 'x'")
    AND
        ├── left: GT
        │   ├── left: COL('id')
        │   └── right: LIT(3)
        └── right: EQ
            ├── left: COL('name')
            └── right: LIT('x')
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise PredicateSyntaxError(f"Invalid syntax in the expression {text!r}: {reason}") from None
    return _Reader(text).read(tree.body)


class _Reader:
    """Convert a Python syntax tree to an expression."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, node: ast.expr) -> Expr:
        """Return the expression for a node of the syntax tree."""
        match node:
            case ast.Constant(value=value):
                return LiteralExpr(value)
            case ast.Name() | ast.Attribute():
                return ColumnExpr(self._name(node))
            case ast.List() | ast.Tuple() | ast.Set():
                return LiteralExpr(self._literals(node))
            case ast.BoolOp(op=op, values=values):
                return reduce(_OPERATORS[type(op)], map(self.read, values))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.read(left), self.read(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self.read(operand))
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._comparisons(left, ops, others)
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](self.read(argument))
            case ast.Call():
                known = ", ".join(f"{name}(column)" for name in _FUNCTIONS)
                raise self._error(node, f"the functions are {known}")
            case _:
                raise self._error(
                    node,
                    "supported are columns, literals, arithmetic, comparisons, and, or, not, in, is None",
                )

    def _unary(self, op: ast.unaryop, operand: Expr) -> Expr:
        if isinstance(op, (ast.Not, ast.Invert)):
            return ~operand
        if isinstance(operand, LiteralExpr) and isinstance(operand.value, (int, float)):
            return LiteralExpr(-operand.value if isinstance(op, ast.USub) else operand.value)
        return -operand if isinstance(op, ast.USub) else operand

    def _comparisons(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> Expr:
        found = []
        for op, right in zip(ops, others, strict=True):
            found.append(self._comparison(left, op, right))
            left = right
        return reduce(lambda a, b: a & b, found)

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Expr:
        if isinstance(op, (ast.In, ast.NotIn)):
            if not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                raise self._error(right, "in needs a list of literals, such as ['a', 'b']")
            values = self._literals(right)
            column = self.read(left)
            return column.is_in(values) if isinstance(op, ast.In) else column.not_in(values)
        if isinstance(op, (ast.Is, ast.IsNot)):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self._error(right, "is and is not need None; compare other values with == and !=")
            column = self.read(left)
            return column.is_null() if isinstance(op, ast.Is) else column.is_not_null()
        return _OPERATORS[type(op)](self.read(left), self.read(right))

    def _literals(self, node: ast.List | ast.Tuple | ast.Set) -> list[Any]:
        values = [self.read(element) for element in node.elts]
        for element, value in zip(node.elts, values, strict=True):
            if not isinstance(value, LiteralExpr):
                raise self._error(element, "a list may hold literals only")
        return [value.value for value in values if isinstance(value, LiteralExpr)]

    def _name(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=value, attr=attribute):
                return f"{self._name(value)}.{attribute}"
            case _:
                raise self._error(node, "only the name of a column may contain a dot")

    def _error(self, node: ast.expr, hint: str) -> PredicateSyntaxError:
        return PredicateSyntaxError(
            f"{ast.unparse(node)!r} is not allowed in the expression {self._text!r}: {hint}"
        )
