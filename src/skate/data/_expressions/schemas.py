"""The type that an expression will have, found by evaluating it on no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate.data._expressions.errors import ExpressionError
from skate.data._expressions.evaluate import Evaluation
from skate.data._expressions.udfs import UntypedFunctionError

if TYPE_CHECKING:
    import pyarrow as pa

    from skate.data._expressions.expr import Expr


def output_type(expr: Expr, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of the column an expression computes; None if a column is missing or a type unknown.

    It is the very evaluation that runs on blocks, so the two cannot disagree; functions of the user's are not called.
    """
    try:
        return Evaluation(schema.empty_table(), types_only=True).value(expr).type
    except (ExpressionError, UntypedFunctionError):
        return None
