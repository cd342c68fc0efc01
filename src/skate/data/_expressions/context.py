"""The position of a block in its dataset, and the instances of callable classes, for evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Instances:
    """Cache the instances of callable classes: one per class and arguments.

    A worker keeps one cache for all blocks, so that a class that loads a model loads it once.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the instance for a key; create it on first use."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


@dataclass(frozen=True, kw_only=True)
class EvaluationContext:
    """Describe the position of a block in its dataset.

    Args:
        task_index: Index of the task, in the order of the dataset.
        row_offset: Number of rows of the task before the block.
        execution_index: Number of earlier executions of the dataset.
        seed: Seed of `random()` without a seed and of `uuid()`, so that a retried block gets the same values; drawn
            from the operating system by default.
        instances: The instances of callable classes.
    """

    task_index: int = 0
    row_offset: int = 0
    execution_index: int = 0
    seed: int | None = None
    instances: Instances = field(default_factory=Instances, compare=False, repr=False)
