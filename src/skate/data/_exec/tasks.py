"""A piece of work of an operator: what runs in a worker, on which rows, and what it has made so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from skate.data._exec.failures import FailedRows
from skate.data._exec.items import Item, Report
from skate.data.context import DataContext


class Work(Protocol):
    """What the tasks of an operator do. It is pickled once, and kept by every worker that runs one of them."""

    @property
    def name(self) -> str:
        """What it is called where plans are shown."""

    @property
    def context(self) -> DataContext | None:
        """The settings of the dataset, which user code may ask for."""

    def prepare(self) -> None:
        """Set up what all tasks in this process share: instances of the user's classes."""

    def run(self, argument: Any, blocks: Sequence[pa.Table], index: int) -> Iterator[pa.Table | FailedRows]:
        """Yield the blocks that a task makes, and letters about rows that have failed.

        Args:
            argument: What tells this task from the others of the same work: the part of a source to read, …
            blocks: The rows that the task gets.
            index: The place of the task among those of its operator.
        """


@dataclass(eq=False, slots=True)
class Task:
    """A piece of work of an operator, on its way or running."""

    operator: Any
    work: Work
    argument: Any
    inputs: list[Item]
    index: int
    made: deque[Item] = field(
        default_factory=deque
    )  # and not passed on yet: an earlier task has to end first
    ended: bool = False
    paused: bool = False  # nobody reads what it makes, so that it stops after a block or two
    borrows: bool = False  # it runs on the processor of tasks that are held back
    actor: Any = None
    unit: Any = None  # in a write that can be resumed: what its rows are part of

    @property
    def is_active(self) -> bool:
        """Whether it makes something, or will as soon as it has been started."""
        return not self.ended and not self.paused

    @property
    def input_bytes(self) -> int:
        """Bytes of what the task gets."""
        return sum(item.bytes for item in self.inputs)


# Told of each block that a task has made; says whether it belongs to the scheduler.
OnMade = Callable[[Task, Item, Report], bool]
