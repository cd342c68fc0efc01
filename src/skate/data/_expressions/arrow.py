"""Expressions of pyarrow's own, as a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._expressions.errors import ExpressionValueError
from skate.data._expressions.expr import Expr
from skate.data._expressions.nodes import node

if TYPE_CHECKING:
    from collections.abc import Hashable


@node
class ArrowExpr(Expr):
    """Hold a `pyarrow.compute.Expression` that a user gave.

    What columns it reads cannot be asked of it, so it counts as reading all.
    """

    expression: pc.Expression

    def own_key(self) -> Hashable:
        """Return how it prints: equal expressions print alike."""
        return str(self.expression)

    def reads_all_columns(self) -> bool:
        """Tell that it may."""
        return True

    def on(self, block: pa.Table) -> Any:
        """Evaluate it on a block.

        Raises:
            ExpressionValueError: It reads a column that the block does not have, or cannot be computed.
        """
        from pyarrow import acero  # a library of its own, that few programs need

        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(block))
        options = acero.ProjectNodeOptions([self.expression], ["value"])
        try:
            plan = acero.Declaration("project", options, [source])
            return plan.to_table(use_threads=False).column(0)
        except pa.ArrowException as error:
            problem = str(error).partition("\n")[0]  # the other lines are the schema
            raise ExpressionValueError(
                f"{self.expression}: {problem}; the columns are {', '.join(block.schema.names) or 'none'}"
            ) from error
