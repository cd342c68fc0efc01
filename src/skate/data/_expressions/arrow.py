"""A node for pyarrow expressions."""

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
    """A `pyarrow.compute.Expression` that the user passed.

    pyarrow does not expose the columns that it reads, so it counts as reading all.
    """

    expression: pc.Expression

    def own_key(self) -> Hashable:
        """Return its text: equal expressions print alike."""
        return str(self.expression)

    def reads_all_columns(self) -> bool:
        """Return True: its columns are unknown."""
        return True

    def on(self, block: pa.Table) -> Any:
        """Evaluate it on a block.

        Raises:
            ExpressionValueError: It reads a column that does not exist, or cannot be computed.
        """
        from pyarrow import acero  # a separate library that few programs need

        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(block))
        options = acero.ProjectNodeOptions([self.expression], ["value"])
        try:
            plan = acero.Declaration("project", options, [source])
            return plan.to_table(use_threads=False).column(0)
        except pa.ArrowException as error:
            problem = str(error).partition("\n")[0]  # the other lines show the schema
            raise ExpressionValueError(
                f"{self.expression}: {problem}; the columns are {', '.join(block.schema.names) or 'none'}"
            ) from error
