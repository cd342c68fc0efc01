"""The units of a resumable write: each is a part of a source, and is committed as a whole.

A unit is complete when no unread part, no queued block and no unread report of it exists. Operators pass the unit of
each block on to the blocks that they create from it, and count them. So a unit is complete as soon as its last block is
written, for any number of steps and actor pools, in any order.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from skate.data._exec.items import Item
from skate.data.block import BlockMetadata
from skate.data.datasource import Datasource, ReadTask

# The index of a task contains its unit in the lower bits. Values that depend on the index, such as seeded samples, are
# therefore the same whichever units are left.
_UNIT_BITS = 20
MAX_UNITS = 1 << _UNIT_BITS


def split_task_index(index: int) -> tuple[int, int]:
    """Return the number of the unit, and of the task within the unit, from the index of a task."""
    return index & (MAX_UNITS - 1), index >> _UNIT_BITS


class CompletedUnits:
    """Completed units, in the order of their completion."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # the plan runs in one thread, commits in another
        self._units: deque[Unit] = deque()

    def add(self, unit: Unit) -> None:
        """Add a unit; the caller holds the lock."""
        self._units.append(unit)

    def take(self) -> list[Unit]:
        """Return the units that have completed since the last call."""
        with self.lock:
            found = list(self._units)
            self._units.clear()
        return found


@dataclass(eq=False)
class Unit:
    """A part of a source, and the state of its rows.

    Attributes:
        number: The index of the unit in the write.
        identity: Identifies exactly the rows that it reads.
        completed: Receives the unit when it is complete.
        files: The written files, as in `UnitRecord`.
        rows: Number of rows of these files.
        failed_rows: Rows dropped because user code failed.
    """

    number: int
    identity: str
    completed: CompletedUnits
    files: dict[str, str | None] = field(default_factory=dict)
    rows: int = 0
    failed_rows: int = 0
    _alive: int = 1  # the unread part
    _tasks: dict[Any, int] = field(default_factory=dict)

    def index_for(self, operator: Any) -> int:
        """Return the index of an operator's next task on this unit."""
        task = self._tasks.get(operator, 0)
        self._tasks[operator] = task + 1
        return task << _UNIT_BITS | self.number

    def add_item(self, item: Item) -> Item:
        """Count an item that a task has created, and return it as an item of the unit."""
        with self.completed.lock:
            self._alive += 1
        return replace(item, unit=self)

    def release(self, items: int) -> None:
        """Stop counting items that have been processed; complete the unit after the last."""
        with self.completed.lock:
            self._alive -= items
            if self._alive == 0:
                self.completed.add(self)


class UnitReadTask:
    """A read task with its unit; pickling drops the unit, so workers get the read task alone."""

    def __init__(self, part: ReadTask, unit: Unit) -> None:
        self._part = part
        self.resume_unit = unit
        known = part.metadata
        # The number of rows is unknown to the planner, which would combine small parts of different units.
        self.metadata = BlockMetadata(None, known.size_bytes, input_files=known.input_files)

    def __call__(self) -> Any:
        """Read the part of the source."""
        return self._part()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unchanged, (self._part,)


def _unchanged(part: ReadTask) -> ReadTask:
    return part


class UnitsSource(Datasource):
    """The uncommitted parts of a source.

    Args:
        whole: The source.
        parts: The read tasks of its uncommitted units.
    """

    def __init__(self, whole: Datasource, parts: list[UnitReadTask]) -> None:
        self._whole = whole
        self._remaining = parts

    def get_name(self) -> str:
        """Return the name of the source."""
        return self._whole.get_name()

    def schema(self) -> Any:
        """Return the schema of the source."""
        return self._whole.schema()

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the bytes of the uncommitted parts."""
        sizes = [part.metadata.size_bytes for part in self._remaining]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> Any:
        """Return the uncommitted parts; `parallelism` has no effect."""
        return self._remaining
