"""The operators of a running plan: their received items, running tasks and ready output.

Operators only decide: they use no clock and no processes, and never touch data. The scheduler moves items between them
and asks them for tasks to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from skate.data._exec.actor_pool import ActorPool
from skate.data._exec.items import Item
from skate.data._exec.tasks import Task, Work


class Operator:
    """Receives items from its inputs, and emits items, both in order.

    Attributes:
        ready: Items that the next operator can take.
        finished: The operator will emit no further items.
        held: Bytes of all items that are not in `ready`: received, in running tasks, or created out of order.
        rows_emitted: Rows of all items that have been in `ready`.
        bytes_emitted: Bytes of these items.
        is_barrier: The operator needs all of its input before it emits anything, so its input is never paused.
        options: Options of its tasks.
        options_fn: Returns further options each time a task starts.
    """

    is_barrier = False

    def __init__(self, name: str, inputs: Sequence[Operator] = ()) -> None:
        self.name = name
        self.inputs = list(inputs)
        self.ready: deque[Item] = deque()
        self.ready_bytes = 0
        self.finished = False
        self.held = 0
        self.running: list[Task] = []
        self.pool: ActorPool | None = None
        self.options: dict[str, Any] = {}
        self.options_fn: Any = None
        self.cpus = 1.0
        self.max_running: int | None = None
        self.tasks_ended = 0
        self.bytes_made = 0
        self.rows_made = 0
        self.rows_emitted = 0
        self.bytes_emitted = 0

    def receive(self, port: int, item: Item) -> None:
        """Handle an item of an input."""
        raise NotImplementedError

    def close(self, port: int) -> None:
        """Handle the end of an input."""
        raise NotImplementedError

    def has_task(self) -> bool:
        """Return whether `next_task` can start a task."""
        return False

    def may_start(self) -> bool:
        """Return whether a task is available and fewer than `max_running` tasks run."""
        most = self.max_running
        return self.has_task() and (most is None or sum(not task.ended for task in self.running) < most)

    def next_task(self) -> Task:
        """Start the next task."""
        raise NotImplementedError

    def made(self, task: Task, item: Item) -> None:
        """Handle an item that a task has created."""
        raise NotImplementedError

    def ended(self, task: Task) -> None:
        """Handle the end of a task."""
        raise NotImplementedError

    def stop(self) -> list[Task]:
        """Discard all work, and return the tasks to cancel."""
        stopped, self.running = self.running, []
        self.held = 0
        self.finished = True
        return stopped

    def take(self) -> Item:
        """Remove and return the next ready item."""
        item = self.ready.popleft()
        self.ready_bytes -= item.bytes
        return item

    @property
    def waiting(self) -> int:
        """Number of tasks that could start now."""
        return 0

    @property
    def all_tasks_started(self) -> bool:
        """Whether the operator will start no further task."""
        return self.finished

    @property
    def expected_bytes(self) -> int:
        """Expected bytes of the output of a new task."""
        return self.bytes_made // self.tasks_ended if self.tasks_ended else 0

    def _emit(self, item: Item) -> None:
        self.ready.append(item)
        self.ready_bytes += item.bytes
        self.rows_emitted += item.rows
        self.bytes_emitted += item.bytes


class Values(Operator):
    """Emits existing blocks.

    Attributes:
        blocks: Number of blocks.
        rows: Number of rows of all blocks.
    """

    def __init__(self, name: str, items: Iterable[Item]) -> None:
        super().__init__(name)
        self.blocks = self.rows = 0
        for item in items:
            self._emit(item)
            self.ready_bytes -= item.bytes  # they exist independently of the plan
            self.blocks += 1
            self.rows += item.rows
        self.finished = True

    def take(self) -> Item:
        """Remove and return the next ready item."""
        return self.ready.popleft()

    def stop(self) -> list[Task]:
        """Drop all blocks."""
        self.ready.clear()
        return super().stop()


class Tasks(Operator):
    """An operator that runs tasks.

    Attributes:
        in_order: Emit the items of tasks in the order in which the tasks were started.
    """

    def __init__(
        self, name: str, work: Work, inputs: Sequence[Operator] = (), *, in_order: bool = True
    ) -> None:
        super().__init__(name, inputs)
        self.work = work
        self.in_order = in_order
        self._started = 0

    def _start(self, argument: Any, items: list[Item], work: Work | None = None) -> Task:
        unit = items[0].unit if items else getattr(argument, "resume_unit", None)
        index = self._started if unit is None else unit.index_for(self)
        task = Task(self, work or self.work, argument, items, index, unit=unit)
        self._started += 1
        self.running.append(task)
        if self.pool is not None:
            self.pool.assign(task)
        return task

    def made(self, task: Task, item: Item) -> None:
        """Handle an item that a task has created."""
        if task.unit is not None:
            item = task.unit.add_item(item)
        self.bytes_made += item.bytes
        self.rows_made += item.rows
        if not self.in_order or self.running[0] is task:
            self._emit(item)
        else:
            task.made.append(item)
            self.held += item.bytes

    def ended(self, task: Task) -> None:
        """Handle the end of a task, and emit the items that waited for it."""
        task.ended = True
        self.tasks_ended += 1
        self.held -= task.input_bytes
        if task.unit is not None:
            task.unit.release(max(1, len(task.inputs)))  # a task without inputs has read one part of a source
        task.inputs = []
        if self.pool is not None:
            self.pool.release(task)
        if not self.in_order:
            self.running.remove(task)
        while self.in_order and self.running:
            first = self.running[0]
            for item in first.made:
                self.held -= item.bytes
                self._emit(item)
            first.made.clear()
            if not first.ended:
                break
            del self.running[0]
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        raise NotImplementedError


class Read(Tasks):
    """Reads the parts of a source, one task per part."""

    def __init__(self, name: str, work: Work, parts: Sequence[Any], *, in_order: bool = True) -> None:
        super().__init__(name, work, in_order=in_order)
        self._parts = deque(parts)
        self.finished = not parts

    def has_task(self) -> bool:
        """Return whether a part is unread and an actor can take it."""
        return bool(self._parts) and (self.pool is None or self.pool.has_room())

    def next_task(self) -> Task:
        """Start a task that reads the next part."""
        return self._start(self._parts.popleft(), [])

    def stop(self) -> list[Task]:
        """Drop all unread parts; return the tasks to cancel."""
        self._parts.clear()
        return super().stop()

    @property
    def waiting(self) -> int:
        """Number of unread parts."""
        return len(self._parts)

    @property
    def all_tasks_started(self) -> bool:
        """Whether every part has a task."""
        return not self._parts

    def _finish_if_done(self) -> None:
        self.finished = not self._parts and not self.running


class Map(Tasks):
    """Transforms items, one task per item or per group of small items.

    Attributes:
        min_rows: Minimum number of rows of a task; the last task may have fewer.
    """

    def __init__(
        self,
        name: str,
        work: Work,
        input: Operator,
        *,
        in_order: bool = True,
        min_rows: int = 0,
        pool: ActorPool | None = None,
    ) -> None:
        super().__init__(name, work, [input], in_order=in_order)
        self.min_rows = min_rows
        self.pool = pool
        self._waiting: deque[Item] = deque()
        self._waiting_rows = 0
        self._closed = False

    def receive(self, port: int, item: Item) -> None:
        """Queue an item of the input."""
        self._waiting.append(item)
        self._waiting_rows += item.rows
        self.held += item.bytes

    def close(self, port: int) -> None:
        """Handle the end of the input."""
        self._closed = True
        self._finish_if_done()

    @property
    def waiting(self) -> int:
        """Number of items that wait for a task."""
        return len(self._waiting)

    @property
    def all_tasks_started(self) -> bool:
        """Whether the input has ended and every item has a task."""
        return self._closed and not self._waiting

    def has_task(self) -> bool:
        """Return whether enough rows for a task wait and an actor can take it."""
        enough = self._waiting and (self._closed or self._has_enough())
        return bool(enough) and (self.pool is None or self.pool.has_room())

    def _has_enough(self) -> bool:
        if self._waiting_rows < self.min_rows:
            return False
        first = self._waiting[0].unit
        rows = 0
        for item in self._waiting:
            rows += item.rows
            if first is None or item.unit is not first or rows >= self.min_rows:
                return True
        return False

    def next_task(self) -> Task:
        """Start a task on the next items."""
        items = [self._next()]
        rows = items[0].rows
        while self._waiting and rows < self.min_rows and self._waiting[0].unit is items[0].unit:
            items.append(self._next())
            rows += items[-1].rows
        return self._start(None, items)

    def _next(self) -> Item:
        item = self._waiting.popleft()
        self._waiting_rows -= item.rows
        return item

    def stop(self) -> list[Task]:
        """Drop all queued items; return the tasks to cancel."""
        self._waiting.clear()
        return super().stop()

    def _finish_if_done(self) -> None:
        self.finished = self._closed and not self._waiting and not self.running
