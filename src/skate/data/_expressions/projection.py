"""Lists of expressions in a projection: expansion of `star()` and `unnest()`, and the resulting fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skate.data._expressions.nodes import AliasExpr, ColumnExpr, StarExpr, UnnestExpr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skate.data._expressions.expr import Expr


def is_rename_expr(expr: Expr) -> bool:
    """Return whether an expression renames a column."""
    return isinstance(expr, AliasExpr) and expr._is_rename and isinstance(expr.expr, ColumnExpr)


def expand_star(exprs: Sequence[Expr], schema: pa.Schema) -> Sequence[Expr]:
    """Replace `star()` with the columns of the schema.

    A renamed column takes the position of its source; if the schema lacks the source, it keeps its own.
    """
    if not any(isinstance(expr, StarExpr) for expr in exprs):
        return exprs
    renames = {expr.expr.name: expr for expr in exprs if is_rename_expr(expr) and isinstance(expr, AliasExpr)}
    moved = {id(renames[name]) for name in schema.names if name in renames}
    result: list[Expr] = []
    for expr in exprs:
        if isinstance(expr, StarExpr):
            result += [renames[name] if name in renames else ColumnExpr(name) for name in schema.names]
        elif id(expr) not in moved:
            result.append(expr)
    return result


def expand_star_exprs(exprs: list[Expr], input_schema: pa.Schema | None) -> list[Expr]:
    """Replace `star()` with the columns of the schema; return the same list if it does not occur."""
    if input_schema is None or not any(isinstance(expr, StarExpr) for expr in exprs):
        return exprs
    return list(expand_star(exprs, input_schema))


def expand_projection_exprs(exprs: list[Expr], input_schema: pa.Schema | None) -> list[Expr]:
    """Replace `star()` and `unnest()` with one expression per column, where types are known."""
    if input_schema is None:
        return exprs
    result: list[Expr] = []
    for expr in expand_star(exprs, input_schema):
        result += _unnest(expr, input_schema) if isinstance(expr, UnnestExpr) else [expr]
    return result


def exprlist_to_fields(exprs: Sequence[Expr], input_schema: pa.Schema) -> list[pa.Field] | None:
    """Return the fields of the block that a projection produces; None if a field is unknown."""
    fields: dict[str, pa.Field] = {}
    for expr in expand_projection_exprs(list(exprs), input_schema):
        field = expr.to_field(input_schema)
        if field is None:
            return None
        fields[field.name] = field
    return list(fields.values())


def _unnest(expr: UnnestExpr, schema: pa.Schema) -> list[Expr]:
    record_type = expr.expr.get_type(schema)
    if record_type is None or not pa.types.is_struct(record_type):
        return [expr]
    return [expr.expr.struct.field(field.name).alias(field.name) for field in record_type]
