"""What an expression may know about where it is evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Instances:
    """Keep the objects made from callable classes: one for each class and its arguments.

    A worker that evaluates an expression on many blocks keeps one of these, so that a class that loads a model
    loads it once.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the object for this key; make it if there is none yet."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


@dataclass(frozen=True, kw_only=True)
class EvaluationContext:
    """Say where in a dataset the rows of a block stand.

    Args:
        task_index: Which part of the dataset it is; parts are numbered from zero in the order of the dataset.
        row_offset: How many rows of this part came before the block.
        execution_index: How many times the dataset has been executed before.
        seed: What `random()` without a seed and `uuid()` start from, so that a block that is done again gets
            the same values; drawn from the operating system if not given.
        instances: The objects made from callable classes so far.
    """

    task_index: int = 0
    row_offset: int = 0
    execution_index: int = 0
    seed: int | None = None
    instances: Instances = field(default_factory=Instances, compare=False, repr=False)
