"""What a write that can be resumed is cut into: units, each a part of a source, that are done or not done.

A unit is done when nothing exists any more that could become rows of it: no unread part, no block on its way, no
report that nobody has looked at. Operators pass each block's unit on to what they make of it, and tell it; so a unit
is done as soon as its last block is written, however many steps and pools of actors it went through, in whatever order.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from skate.data._exec.items import Item
from skate.data.block import BlockMetadata
from skate.data.datasource import Datasource, ReadTask

# A task's place among its operator's holds the unit in its lower bits: what depends on it (seeded samples, row numbers)
# is the same whichever units are left to do.
_UNIT_BITS = 20
MAX_UNITS = 1 << _UNIT_BITS


def split_task_index(index: int) -> tuple[int, int]:
    """Return the number of the unit, and of the task within it, of a task's place."""
    return index & (MAX_UNITS - 1), index >> _UNIT_BITS


class Done:
    """Units in the order in which they were done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # the plan runs in one thread, whoever commits in another
        self._units: deque[Unit] = deque()

    def add(self, unit: Unit) -> None:
        """Note that a unit is done; the lock is held."""
        self._units.append(unit)

    def take(self) -> list[Unit]:
        """Return those that have been done since the last call."""
        with self.lock:
            found = list(self._units)
            self._units.clear()
        return found


@dataclass(eq=False)
class Unit:
    """A part of a source, and what has become of it.

    Attributes:
        number: Its place in the write.
        identity: Names exactly what it reads.
        done: Where it goes when it is done.
        files: What has been written of it, as records note it.
        rows: How many rows these hold.
        failed_rows: Rows for which user code failed, and that were left out.
    """

    number: int
    identity: str
    done: Done
    files: dict[str, str | None] = field(default_factory=dict)
    rows: int = 0
    failed_rows: int = 0
    _alive: int = 1  # the part itself, which nobody has read yet
    _tasks: dict[Any, int] = field(default_factory=dict)

    def index_for(self, operator: Any) -> int:
        """Return the place of an operator's next task on this unit."""
        task = self._tasks.get(operator, 0)
        self._tasks[operator] = task + 1
        return task << _UNIT_BITS | self.number

    def added(self, item: Item) -> Item:
        """Note that a task has made an item of the unit's rows, and return it as one of the unit."""
        with self.done.lock:
            self._alive += 1
        return replace(item, unit=self)

    def used(self, items: int) -> None:
        """Note that items have become others, or have been looked at."""
        with self.done.lock:
            self._alive -= items
            if self._alive == 0:
                self.done.add(self)


class UnitReadTask:
    """A part of a source in a plan, with its unit; a worker gets the part alone."""

    def __init__(self, part: ReadTask, unit: Unit) -> None:
        self._part = part
        self.resume_unit = unit
        known = part.metadata
        # Without its number of rows: a plan joins parts that are smaller than a batch, and units stay apart.
        self.metadata = BlockMetadata(None, known.size_bytes, input_files=known.input_files)

    def __call__(self) -> Any:
        """Read the part."""
        return self._part()

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (self._part,)


def _same(part: ReadTask) -> ReadTask:
    return part


class UnitsSource(Datasource):
    """The parts of a source that are left to do.

    Args:
        whole: The source that was cut.
        parts: What of it is left.
    """

    def __init__(self, whole: Datasource, parts: list[UnitReadTask]) -> None:
        self._whole = whole
        self._left = parts

    def get_name(self) -> str:
        """Return the name of the source that was cut."""
        return self._whole.get_name()

    def schema(self) -> Any:
        """Return the schema of the source that was cut."""
        return self._whole.schema()

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the bytes of what is left."""
        sizes = [part.metadata.size_bytes for part in self._left]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> Any:
        """Return the parts that are left, however many are wanted."""
        return self._left
