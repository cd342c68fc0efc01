"""Barrier operators: they wait for all of their input, and then run rounds of tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from skate.data._exec.items import Item
from skate.data._exec.operators import Operator, Tasks
from skate.data._exec.tasks import Task, Work

# An exchange is a generator that yields rounds of tasks and receives the items that each task has created. It returns
# its last round, whose items are the output of the operator. A round may contain finished items beside tasks.
Round = list[tuple[Work, Any, list[Item]] | Item]
Exchange = Generator[Round, list[list[Item]], Round]


class Barrier(Tasks):
    """Receives all items of its inputs, and then runs the rounds of an exchange: sort, group, join, shuffle.

    Args:
        name: The name of the operator.
        inputs: Its inputs.
        exchange: Takes a list of items per input, and returns an `Exchange`.
        work: The default work of its tasks.
    """

    is_barrier = True

    def __init__(self, name: str, inputs: Sequence[Operator], exchange: Any, work: Work) -> None:
        super().__init__(name, work, inputs)
        self._exchange = exchange
        self._received: list[list[Item]] = [[] for _ in inputs]
        self._open = len(inputs)
        self._steps: Exchange | None = None
        self._last = False
        self._to_start: deque[tuple[int, Any]] = deque()
        self._results: list[list[Item]] = []
        self._unfinished = 0
        self._position: dict[Task, int] = {}

    def receive(self, port: int, item: Item) -> None:
        """Store an item of an input."""
        self._received[port].append(item)

    def close(self, port: int) -> None:
        """Handle the end of an input; after the last one, begin the first round."""
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
        """In the last round, emit finished items in order, behind the tasks that were started before them."""
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
        """Return whether the round has a task that has not started."""
        return bool(self._to_start)

    @property
    def waiting(self) -> int:
        """Number of tasks of the round that have not started."""
        return len(self._to_start)

    def next_task(self) -> Task:
        """Start the next task of the round."""
        place, entry = self._to_start.popleft()
        work, argument, items = entry
        task = self._start(argument, items, work)
        self._position[task] = place
        self.held += task.input_bytes
        self._emit_available()
        return task

    def made(self, task: Task, item: Item) -> None:
        """Handle an item that a task has created."""
        if self._last:
            super().made(task, item)
        else:
            self._results[self._position[task]].append(item)

    def ended(self, task: Task) -> None:
        """Handle the end of a task; after the last task of a round, begin the next round."""
        del self._position[task]
        self._unfinished -= 1
        super().ended(task)

    def _finish_if_done(self) -> None:
        if self._unfinished == 0:
            self._end_round()

    def stop(self) -> list[Task]:
        """Discard all tasks and inputs; return the tasks to cancel."""
        self._to_start.clear()
        self._received = []
        return super().stop()
