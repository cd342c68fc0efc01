"""Print expressions as a tree or on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate.data._expressions import sources
from skate.data._expressions.arrow import ArrowExpr
from skate.data._expressions.calls import UDFExpr
from skate.data._expressions.nodes import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    LiteralExpr,
    StarExpr,
    UnaryExpr,
    UnnestExpr,
)
from skate.data._expressions.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skate.data._expressions.expr import Expr

_MAX_LITERAL_LENGTH = 60

# Functions without arguments that create a node.
_NAMES: dict[type[Expr], str] = {
    sources.MonotonicallyIncreasingIdExpr: "monotonically_increasing_id",
    sources.RandomExpr: "random",
    sources.UUIDExpr: "uuid",
}


def tree(expr: Expr) -> str:
    """Return the tree, with one line per node."""
    return "\n    ".join(_lines(expr))


def _lines(expr: Expr) -> Iterator[str]:
    yield _title(expr)
    children = list(zip(_roles(expr), expr.children(), strict=False))
    for position, (role, child) in enumerate(children, start=1):
        first, *rest = _lines(child)
        last = position == len(children)
        yield f"{'└' if last else '├'}── {role}{first}"
        for line in rest:
            yield f"{' ' if last else '│'}   {line}"


def _title(expr: Expr) -> str:
    match expr:
        case ColumnExpr():
            return f"COL({expr.name!r})"
        case LiteralExpr():
            return f"LIT({_literal(expr.value)})"
        case BinaryExpr() | UnaryExpr():
            return expr.op.name
        case AliasExpr():
            return f"ALIAS({expr.name!r})" + (" [rename]" if expr._is_rename else "")
        case StarExpr():
            return "COL(*)"
        case UnnestExpr():
            return "UNNEST"
        case UDFExpr():
            return f"UDF({expr.label})"
        case sources.DownloadExpr():
            return f"DOWNLOAD({expr.uri_column_name!r})"
        case sources.RandomExpr():
            return f"RANDOM(seed={expr.seed}, reseed_after_execution={expr.reseed_after_execution})"
        case ArrowExpr():
            return f"ARROW({expr.expression})"
        case _:
            return f"{_NAMES.get(type(expr), type(expr).__name__).upper()}()"


def _roles(expr: Expr) -> list[str]:
    match expr:
        case BinaryExpr():
            return ["left: ", "right: "]
        case UnaryExpr():
            return ["operand: "]
        case UDFExpr():
            args = [f"arg[{index}]: " for index in range(len(expr.args))]
            return args + [f"kwarg[{name!r}]: " for name in expr.kwargs]
        case sources.DownloadExpr(_source=None):
            return []  # the title names the column
        case _:
            return [""] * len(expr.children())


def inline(expr: Expr) -> str:
    """Return the expression on one line, close to its Python syntax."""
    match expr:
        case ColumnExpr():
            return f"col({expr.name!r})"
        case LiteralExpr():
            return _literal(expr.value)
        case BinaryExpr():
            return f"{_operand(expr.left)} {expr.op.symbol} {_operand(expr.right)}"
        case UnaryExpr(op=Operation.NOT):
            return f"~{_operand(expr.operand)}"
        case UnaryExpr():
            return f"{_operand(expr.operand)}.{expr.op.symbol}()"
        case AliasExpr():
            return f"{_operand(expr.expr)}.alias({expr.name!r})"
        case StarExpr():
            return "col(*)"
        case UnnestExpr():
            return f"unnest({inline(expr.expr)})"
        case UDFExpr():
            args = [inline(arg) for arg in expr.args]
            args += [f"{name}={inline(arg)}" for name, arg in expr.kwargs.items()]
            return f"{expr.label}({', '.join(args)})"
        case sources.DownloadExpr():
            return f"download({expr.uri_column_name!r})"
        case ArrowExpr():
            return str(expr.expression)
        case _:
            return f"{_NAMES.get(type(expr), type(expr).__name__)}()"


def _operand(expr: Expr) -> str:
    return f"({inline(expr)})" if isinstance(expr, BinaryExpr) else inline(expr)


def _literal(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_LITERAL_LENGTH else f"{text[: _MAX_LITERAL_LENGTH - 1]}…"
