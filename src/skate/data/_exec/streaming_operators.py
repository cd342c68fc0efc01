"""Streaming operators: they emit items as they arrive, without a task or with one task per item."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from skate.data._exec.items import Item
from skate.data._exec.operators import Operator, Tasks
from skate.data._exec.tasks import Task, Work


class Limit(Operator):
    """Emits the first rows, and finishes after the last of them."""

    def __init__(self, name: str, input: Operator, rows: int) -> None:
        super().__init__(name, [input])
        self._left = rows
        self.finished = rows == 0

    def receive(self, port: int, item: Item) -> None:
        """Emit the rows of an item that are within the limit."""
        rows = min(self._left, item.rows)
        if rows or not item.rows:
            self._emit(item.cut(0, rows))
        self._left -= rows
        if self._left == 0:
            self.finished = True

    def close(self, port: int) -> None:
        """Finish: the input has no more rows."""
        self.finished = True


class Union(Operator):
    """Emits all items of the first input, then all items of the second, and so on."""

    def __init__(self, name: str, inputs: Sequence[Operator], *, in_order: bool = True) -> None:
        super().__init__(name, inputs)
        self._in_order = in_order
        self._waiting: list[deque[Item]] = [deque() for _ in inputs]
        self._open = [True] * len(inputs)
        self._current = 0
        self.finished = not inputs

    @property
    def current(self) -> int:
        """The index of the input whose items are emitted now."""
        return self._current

    def receive(self, port: int, item: Item) -> None:
        """Emit or queue an item of an input."""
        if not self._in_order or port == self._current:
            self._emit(item)
        else:
            self._waiting[port].append(item)
            self.held += item.bytes

    def close(self, port: int) -> None:
        """Handle the end of an input; after the current one, continue with the next."""
        self._open[port] = False
        while self._current < len(self.inputs):
            waiting = self._waiting[self._current]
            while waiting:
                item = waiting.popleft()
                self.held -= item.bytes
                self._emit(item)
            if self._open[self._current]:
                break
            self._current += 1
        self.finished = not any(self._open)


class Resize(Tasks):
    """Emits the same rows in items of a given number of rows.

    Args:
        name: The name of the operator.
        work: Concatenates blocks.
        input: The input.
        rows: Number of rows per item.
        strict: Also concatenate smaller items; otherwise only larger items are split.
    """

    def __init__(self, name: str, work: Work, input: Operator, rows: int, *, strict: bool) -> None:
        super().__init__(name, work, [input])
        self._each = rows
        self._strict = strict
        self._waiting: deque[Item] = deque()
        self._rows = 0
        self._closed = False

    def receive(self, port: int, item: Item) -> None:
        """Split an item, or queue it for a task."""
        if not self._strict:
            for start in range(0, max(1, item.rows), self._each):
                self._emit(item.cut(start, min(start + self._each, item.rows)))
        elif item.rows:
            self._waiting.append(item)
            self._rows += item.rows
            self.held += item.bytes

    def close(self, port: int) -> None:
        """Handle the end of the input."""
        self._closed = True
        self._finish_if_done()

    @property
    def waiting(self) -> int:
        """Number of tasks that could start now."""
        return -(-self._rows // self._each) if self._closed else self._rows // self._each

    def has_task(self) -> bool:
        """Return whether the queue has the rows of an item, or its last rows."""
        return self.waiting > 0

    def next_task(self) -> Task:
        """Start a task that creates the next item."""
        items: list[Item] = []
        missing = self._each
        while self._waiting and missing:
            first = self._waiting.popleft()
            if first.rows > missing:
                self._waiting.appendleft(first.cut(missing, first.rows))
                first = first.cut(0, missing)
            items.append(first)
            missing -= first.rows
        self._rows -= self._each - missing
        return self._start(None, items)

    def stop(self) -> list[Task]:
        """Drop all queued items; return the tasks to cancel."""
        self._waiting.clear()
        self._rows = 0
        return super().stop()

    def _finish_if_done(self) -> None:
        self.finished = self._closed and not self._waiting and not self.running


class Mix(Operator):
    """Emits items of its inputs alternately, in the proportions of given weights.

    Args:
        name: The name of the operator.
        inputs: The inputs.
        weights: The share of each input in the rows; only their proportions matter.
        to_the_longest: Continue after the end of an input; otherwise finish with the first input that ends.
    """

    def __init__(
        self, name: str, inputs: Sequence[Operator], weights: Sequence[float], *, to_the_longest: bool
    ) -> None:
        super().__init__(name, inputs)
        self._weights = list(weights)
        self._to_the_longest = to_the_longest
        self._waiting: list[deque[Item]] = [deque() for _ in inputs]
        self._open = [True] * len(inputs)
        self._passed = [0] * len(inputs)

    def receive(self, port: int, item: Item) -> None:
        """Emit or queue an item of an input."""
        self._waiting[port].append(item)
        self.held += item.bytes
        self._emit_due()

    def close(self, port: int) -> None:
        """Handle the end of an input."""
        self._open[port] = False
        self._emit_due()

    def _emit_due(self) -> None:
        while not self.finished:
            taking_part = [
                place for place in range(len(self.inputs)) if self._open[place] or self._waiting[place]
            ]
            ended = len(taking_part) < len(self.inputs)
            if not taking_part or (ended and not self._to_the_longest):
                self.finished = True
                self.held = 0
                return
            # The input furthest behind its share is next, even if its next item has not arrived.
            due = min(taking_part, key=lambda place: self._passed[place] / self._weights[place])
            if not self._waiting[due]:
                return
            item = self._waiting[due].popleft()
            self.held -= item.bytes
            self._passed[due] += item.rows
            self._emit(item)


class Lookup(Tasks):
    """Runs a task for each item of its first input, together with all items of its small second input.

    The large side of a join streams through it, without a barrier and without partitions.
    """

    def __init__(
        self, name: str, work: Work, input: Operator, small: Operator, *, in_order: bool = True
    ) -> None:
        super().__init__(name, work, [input, small], in_order=in_order)
        self._waiting: deque[Item] = deque()
        self._small: list[Item] = []
        self._open = [True, True]

    def receive(self, port: int, item: Item) -> None:
        """Emit or queue an item of an input."""
        if port == 1:
            self._small.append(item)
        else:
            self._waiting.append(item)
            self.held += item.bytes

    def close(self, port: int) -> None:
        """Handle the end of an input; tasks can start after the end of the small one."""
        self._open[port] = False
        self._finish_if_done()

    @property
    def waiting(self) -> int:
        """Number of items that wait for a task."""
        return len(self._waiting)

    def has_task(self) -> bool:
        """Return whether the small input is complete and an item waits."""
        return bool(self._waiting) and not self._open[1]

    def next_task(self) -> Task:
        """Start a task on the next item; its argument is the number of blocks of each side."""
        task = self._start((1, len(self._small)), [self._waiting.popleft(), *self._small])
        self.held += sum(item.bytes for item in self._small)  # while the task uses them
        return task

    def stop(self) -> list[Task]:
        """Drop all queued items; return the tasks to cancel."""
        self._waiting.clear()
        return super().stop()

    def _finish_if_done(self) -> None:
        self.finished = not any(self._open) and not self._waiting and not self.running


class Zip(Tasks):
    """Combines rows of several inputs side by side, as soon as all inputs have them."""

    def __init__(self, name: str, work: Work, inputs: Sequence[Operator]) -> None:
        super().__init__(name, work, inputs)
        self._waiting: list[deque[Item]] = [deque() for _ in inputs]
        self._rows = [0] * len(inputs)
        self._open = [True] * len(inputs)

    def receive(self, port: int, item: Item) -> None:
        """Emit or queue an item of an input."""
        if item.rows:
            self._waiting[port].append(item)
            self.held += item.bytes
        self._rows[port] += item.rows

    def close(self, port: int) -> None:
        """Handle the end of an input, and raise if another input has a different number of rows."""
        self._open[port] = False
        ended = {rows for rows, still in zip(self._rows, self._open, strict=True) if not still}
        most_open = max(
            (rows for rows, still in zip(self._rows, self._open, strict=True) if still), default=0
        )
        if len(ended) > 1 or most_open > min(ended):
            raise ValueError(
                f"Cannot zip datasets of different number of rows: they have {', '.join(map(str, self._rows))} "
                f"rows{' so far' if any(self._open) else ''}."
            )
        self._finish_if_done()

    def has_task(self) -> bool:
        """Return whether every input has queued rows."""
        return all(self._waiting)

    def next_task(self) -> Task:
        """Start a task on the rows that the first items of all inputs have in common."""
        rows = min(waiting[0].rows for waiting in self._waiting)
        items = []
        for waiting in self._waiting:
            first = waiting.popleft()
            if first.rows > rows:
                rest = first.cut(rows, first.rows)
                first = first.cut(0, rows)
                waiting.appendleft(rest)
            items.append(first)
        return self._start(None, items)

    def stop(self) -> list[Task]:
        """Drop all queued items; return the tasks to cancel."""
        for waiting in self._waiting:
            waiting.clear()
        return super().stop()

    def _finish_if_done(self) -> None:
        self.finished = not any(self._open) and not any(self._waiting) and not self.running
