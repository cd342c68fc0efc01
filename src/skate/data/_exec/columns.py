"""Steps that evaluate expressions: new columns, and rows that are kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from skate.data._exec.failures import FailedRows
from skate.data._exec.transforms import Blocks
from skate.data._expressions import evaluate
from skate.data._expressions.context import EvaluationContext, Instances

# Objects made from users' classes: they stay as long as the process.
_instances = Instances()


@dataclass(frozen=True)
class Columns:
    """Makes columns out of columns, or keeps the rows for which an expression is true.

    Attributes:
        title: What it is called in plans and statistics.
        expressions: The columns to make; for a filter, one expression.
        keeps: It is a filter.
        context: Where random expressions start from, so that a block that is done again gets the same values.
    """

    title: str
    expressions: tuple[Any, ...]
    keeps: bool = False
    context: EvaluationContext = field(default_factory=EvaluationContext)

    @property
    def name(self) -> str:
        """What it is called in plans and statistics."""
        return self.title

    def prepare(self) -> None:
        """Set up nothing: instances of classes are made with the first block."""

    def apply(self, blocks: Blocks, index: int) -> Blocks:
        """Return what becomes of each block."""
        passed = 0
        for block in blocks:
            if isinstance(block, FailedRows):
                yield block
                continue
            context = replace(self.context, task_index=index, row_offset=passed, instances=_instances)
            passed += block.num_rows
            if self.keeps:
                yield block.filter(evaluate.mask(block, self.expressions[0], context))
            else:
                yield evaluate.project(block, self.expressions, context)
