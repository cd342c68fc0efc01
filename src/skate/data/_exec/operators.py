"""The operators of a running plan: what each has received, has running, and has ready for the next one.

They decide, and do nothing else: no clock, no processes, no data. `Scheduler` moves items between them, and asks them for
tasks to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from skate.data._exec.actor_pool import ActorPool
from skate.data._exec.items import Item
from skate.data._exec.tasks import Task, Work


class Operator:
    """Takes items from its inputs, in order, and has items ready, in order.

    Attributes:
        ready: What the next operator may take.
        finished: Nothing will be added to `ready` any more.
        held: Bytes of everything here that is not in `ready`: received, in running tasks, or waiting for its turn.
        is_barrier: It needs all of its input before it makes anything, so that its input is not held back.
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
        self.options_fn: Any = None  # called for further options when a task starts
        self.cpus = 1.0
        self.max_running: int | None = None
        self.tasks_ended = 0
        self.bytes_made = 0
        self.rows_made = 0

    def receive(self, port: int, item: Item) -> None:
        """Take an item from an input."""
        raise NotImplementedError

    def close(self, port: int) -> None:
        """Note that an input has nothing more."""
        raise NotImplementedError

    def has_task(self) -> bool:
        """Tell whether `next_task` would return one."""
        return False

    def may_start(self) -> bool:
        """Tell whether there is a task to start, and not more of them run than may."""
        most = self.max_running
        return self.has_task() and (most is None or sum(not task.ended for task in self.running) < most)

    def next_task(self) -> Task:
        """Return the next task to start."""
        raise NotImplementedError

    def made(self, task: Task, item: Item) -> None:
        """Note what a running task has made."""
        raise NotImplementedError

    def ended(self, task: Task) -> None:
        """Note that a task has made its last item."""
        raise NotImplementedError

    def stop(self) -> list[Task]:
        """Give up all work, because nobody needs it; return the tasks to cancel."""
        stopped, self.running = self.running, []
        self.held = 0
        self.finished = True
        return stopped

    def take(self) -> Item:
        """Hand over the next item."""
        item = self.ready.popleft()
        self.ready_bytes -= item.bytes
        return item

    @property
    def waiting(self) -> int:
        """How many tasks there would be to start now."""
        return 0

    @property
    def all_tasks_started(self) -> bool:
        """Whether all tasks that there will be have been started."""
        return self.finished

    @property
    def expected(self) -> int:
        """Bytes that a new task is expected to add to what is held at once."""
        return self.bytes_made // self.tasks_ended if self.tasks_ended else 0

    def _emit(self, item: Item) -> None:
        self.ready.append(item)
        self.ready_bytes += item.bytes


class Values(Operator):
    """Blocks that are there already.

    Attributes:
        blocks: How many there were.
        rows: How many rows they had together.
    """

    def __init__(self, name: str, items: Iterable[Item]) -> None:
        super().__init__(name)
        self.blocks = self.rows = 0
        for item in items:
            self._emit(item)
            self.ready_bytes -= item.bytes  # they exist whether the plan runs or not
            self.blocks += 1
            self.rows += item.rows
        self.finished = True

    def take(self) -> Item:
        """Hand over the next item."""
        return self.ready.popleft()

    def stop(self) -> list[Task]:
        """Forget what nobody needs."""
        self.ready.clear()
        return super().stop()


class Tasks(Operator):
    """An operator whose tasks make its items; they are passed on in the order in which the tasks were started.

    Attributes:
        in_order: Whether a later task's items wait for an earlier task's.
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
        """Note what a running task has made."""
        if task.unit is not None:
            item = task.unit.added(item)
        self.bytes_made += item.bytes
        self.rows_made += item.rows
        if not self.in_order or self.running[0] is task:
            self._emit(item)
        else:
            task.made.append(item)
            self.held += item.bytes

    def ended(self, task: Task) -> None:
        """Note that a task has made its last item, and pass on what waited for it."""
        task.ended = True
        self.tasks_ended += 1
        self.held -= task.input_bytes
        if task.unit is not None:
            task.unit.used(max(1, len(task.inputs)))  # of a source, one part
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

    @property
    def at_work(self) -> int:
        """How many tasks run."""
        return sum(not task.ended for task in self.running)


class Read(Tasks):
    """Makes items out of the parts of a source."""

    def __init__(self, name: str, work: Work, parts: Sequence[Any], *, in_order: bool = True) -> None:
        super().__init__(name, work, in_order=in_order)
        self._parts = deque(parts)
        self.finished = not parts

    def has_task(self) -> bool:
        """Tell whether a part is left."""
        return bool(self._parts) and (self.pool is None or self.pool.has_room())

    def next_task(self) -> Task:
        """Return a task that reads the next part."""
        return self._start(self._parts.popleft(), [])

    def stop(self) -> list[Task]:
        """Read no further."""
        self._parts.clear()
        return super().stop()

    @property
    def waiting(self) -> int:
        """How many parts nobody reads yet."""
        return len(self._parts)

    @property
    def all_tasks_started(self) -> bool:
        """Whether every part is read by somebody."""
        return not self._parts

    def _finish_if_done(self) -> None:
        self.finished = not self._parts and not self.running


class Map(Tasks):
    """Makes items out of items, one task for each, or for several small ones.

    Attributes:
        min_rows: A task gets at least as many rows, as long as there are some.
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
        """Take an item from the input."""
        self._waiting.append(item)
        self._waiting_rows += item.rows
        self.held += item.bytes

    def close(self, port: int) -> None:
        """Note that the input has nothing more."""
        self._closed = True
        self._finish_if_done()

    @property
    def waiting(self) -> int:
        """How many items wait for a task."""
        return len(self._waiting)

    @property
    def all_tasks_started(self) -> bool:
        """Whether there is no input any more that has no task."""
        return self._closed and not self._waiting

    def has_task(self) -> bool:
        """Tell whether there is enough for a task, and somebody to run it."""
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
        """Return a task on the next items."""
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
        """Take nothing more."""
        self._waiting.clear()
        return super().stop()

    def _finish_if_done(self) -> None:
        self.finished = self._closed and not self._waiting and not self.running


# What an exchange does: it asks for rounds of tasks, and is told what each has made. The items of its last round,
# which it returns instead of yielding, are those of the operator. An item in place of a task is there already.
Round = list[tuple[Work, Any, list[Item]] | Item]
Exchange = Generator[Round, list[list[Item]], Round]


class Barrier(Tasks):
    """Waits for all of its inputs, and then works in rounds: sorting, grouping, joining, shuffling."""

    is_barrier = True

    def __init__(self, name: str, inputs: Sequence[Operator], exchange: Any, work: Work) -> None:
        super().__init__(name, work, inputs)
        self._exchange = exchange  # given the items of each input, returns an Exchange
        self._received: list[list[Item]] = [[] for _ in inputs]
        self._open = len(inputs)
        self._steps: Exchange | None = None
        self._last = False
        self._to_start: deque[tuple[int, Any]] = deque()
        self._results: list[list[Item]] = []
        self._unfinished = 0
        self._place: dict[Task, int] = {}

    def receive(self, port: int, item: Item) -> None:
        """Take an item from an input."""
        self._received[port].append(item)

    def close(self, port: int) -> None:
        """Note that an input has nothing more; with the last one, begin."""
        self._open -= 1
        if self._open == 0:
            self._steps = self._exchange(*self._received)
            self._received = []
            self._begin_round(None)

    def _begin_round(self, results: list[list[Item]] | None) -> None:
        assert self._steps is not None
        try:
            tasks = self._steps.send(results) if results is not None else next(self._steps)
        except StopIteration as end:
            tasks = end.value
            self._last = True
        self._results = [[entry] if isinstance(entry, Item) else [] for entry in tasks]
        self._unfinished = sum(not isinstance(entry, Item) for entry in tasks)
        self._to_start.extend(enumerate(tasks))
        self._emit_available()
        if not self._unfinished:
            self._end_round()

    def _emit_available(self) -> None:
        """In the last round, pass on items that need no task, as soon as what is before them has been started."""
        while self._to_start and isinstance(entry := self._to_start[0][1], Item):
            self._to_start.popleft()
            if self._last and self.running:
                self.running.append(
                    Task(self, self.work, None, [], self._started, deque([entry]), ended=True)
                )
                self.held += entry.bytes
            elif self._last:
                self._emit(entry)

    def _end_round(self) -> None:
        if self._last:
            self.finished = True
        else:
            results, self._results = self._results, []
            self._begin_round(results)

    def has_task(self) -> bool:
        """Tell whether the round has a task that has not been started."""
        return bool(self._to_start)

    @property
    def waiting(self) -> int:
        """How many tasks of the round have not been started."""
        return len(self._to_start)

    def next_task(self) -> Task:
        """Return the next task of the round."""
        place, entry = self._to_start.popleft()
        work, argument, items = entry
        task = self._start(argument, items, work)
        self._place[task] = place
        self.held += task.input_bytes
        self._emit_available()
        return task

    def made(self, task: Task, item: Item) -> None:
        """Note what a running task has made."""
        if self._last:
            super().made(task, item)
        else:
            self._results[self._place[task]].append(item)

    def ended(self, task: Task) -> None:
        """Note that a task has made its last item; with the round's last task, begin the next."""
        del self._place[task]
        self._unfinished -= 1
        super().ended(task)

    def _finish_if_done(self) -> None:
        if self._unfinished == 0:
            self._end_round()

    def stop(self) -> list[Task]:
        """Begin no further round."""
        self._to_start.clear()
        self._received = []
        return super().stop()
