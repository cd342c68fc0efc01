"""Lists of expressions, as a projection has them: what `star()` stands for, and what fields come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skate.data._expressions.nodes import AliasExpr, ColumnExpr, StarExpr, UnnestExpr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skate.data._expressions.expr import Expr


def is_rename_expr(expr: Expr) -> bool:
    """Tell whether an expression names a column anew."""
    return isinstance(expr, AliasExpr) and expr._is_rename and isinstance(expr.expr, ColumnExpr)


def expand_star(exprs: Sequence[Expr], schema: pa.Schema) -> Sequence[Expr]:
    """Return the expressions with the columns of the schema in place of `star()`.

    A renamed column takes the place of its source; where the schema has no such column, it stays where it is.
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
    """Return the expressions with the columns of the schema in place of `star()`; the same list if there is none."""
    if input_schema is None or not any(isinstance(expr, StarExpr) for expr in exprs):
        return exprs
    return list(expand_star(exprs, input_schema))


def expand_projection_exprs(exprs: list[Expr], input_schema: pa.Schema | None) -> list[Expr]:
    """Return the expressions with one for each column in place of `star()` and `unnest()`, where types are known."""
    if input_schema is None:
        return exprs
    result: list[Expr] = []
    for expr in expand_star(exprs, input_schema):
        result += _unnest(expr, input_schema) if isinstance(expr, UnnestExpr) else [expr]
    return result


def exprlist_to_fields(exprs: Sequence[Expr], input_schema: pa.Schema) -> list[pa.Field] | None:
    """Return the fields of the block that a projection makes; None if one of them is not known beforehand."""
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
