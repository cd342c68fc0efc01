"""Tasks of operators: the work they run, their input, and the items they have created."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from skate.data._exec.failures import FailedRows
from skate.data._exec.items import Item, Report
from skate.data.context import DataContext


class Work(Protocol):
    """The work that the tasks of an operator share. It is pickled once, and every worker caches it."""

    @property
    def name(self) -> str:
        """The name of the work in plans and statistics."""

    @property
    def context(self) -> DataContext | None:
        """The settings of the dataset, as user code sees them."""

    def prepare(self) -> None:
        """Create the instances of user classes that all tasks of this process share."""

    def run(self, argument: Any, blocks: Sequence[pa.Table], index: int) -> Iterator[pa.Table | FailedRows]:
        """Yield the blocks that a task creates, and the rows for which user code failed.

        Args:
            argument: The argument of this task, such as the part of a source to read.
            blocks: The input rows of the task.
            index: The index of the task among the tasks of its operator.
        """


@dataclass(eq=False, slots=True)
class Task:
    """A task of an operator that has been started."""

    operator: Any
    work: Work
    argument: Any
    inputs: list[Item]
    index: int
    made: deque[Item] = field(default_factory=deque)  # items that wait for the end of an earlier task
    ended: bool = False
    paused: bool = False  # its blocks are not read, so backpressure stops it after one or two
    borrows: bool = False  # it uses the processor of a paused task
    actor: Any = None
    unit: Any = None  # the unit of its rows in a resumable write

    @property
    def is_active(self) -> bool:
        """Whether the task has neither ended nor been paused."""
        return not self.ended and not self.paused

    @property
    def input_bytes(self) -> int:
        """Bytes of the input of the task."""
        return sum(item.bytes for item in self.inputs)


# The blocks of a task that runs in this process, each with its report.
Blocks = Generator[tuple[pa.Table, Report], None, None]

# Called for each block of a task; returns whether to pass the item to the scheduler.
OnMade = Callable[[Task, Item, Report], bool]
