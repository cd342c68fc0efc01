"""The thread driver: runs a plan of columnar operations on threads of this process.

Arrow and Polars release the interpreter lock while they read, sort, group and join. A plan without user functions
therefore needs no worker process: the consumer runs a task while it waits, and threads run others concurrently. No
block is copied to another process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from skate.data._exec import interruption as interruptions
from skate.data._exec.items import Item, Report, fetch_rows
from skate.data._exec.scheduler import Cancel, Instruction, Scheduler, Start
from skate.data._exec.tasks import OnMade, Task
from skate.data._exec.worker import produce


class ThreadDriver:
    """Runs the tasks of a scheduler in the thread of its consumer, and in further threads for concurrent tasks.

    A task stays in the thread that has begun it, also while it is paused: the scheduler opens at most as many tasks as
    it has processors, so each task has a thread. Waking a thread of a busy machine costs more than a small task, so a
    plan with one task at a time never leaves the consumer's thread.

    Args:
        scheduler: The scheduler.
        on_made: Called for each block; returns whether to pass it to the scheduler.
        max_bytes: If sources have more bytes, another driver, which can spill, takes over.
    """

    def __init__(self, scheduler: Scheduler, on_made: OnMade, max_bytes: int) -> None:
        self.scheduler = scheduler
        self._on_made = on_made
        self._max_bytes = max_bytes
        self._bytes_read = 0
        self._changed = threading.Condition()  # guards the scheduler and the attributes below
        self._to_start: deque[Task] = deque()
        self._open: set[Task] = set()
        self._error: BaseException | None = None
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._own_task: _OpenTask | None = None  # the open task of the consumer's thread
        with self._changed:
            self._queue(scheduler.begin())

    # ------------------------------------------------------------ consumer

    def next(self) -> Item | None:
        """Wait for the next item; return None at the end or if the plan is too large for this process."""
        interruption = interruptions.current()
        interruption.register(self._changed)
        while True:
            with self._changed:
                interruption.check()
                if self._error is not None:
                    raise self._error
                item, instructions = self.scheduler.take()
                self._queue(instructions)
                if item is not None or self.scheduler.finished or (self._is_too_large and not self._open):
                    return item
                if self._own_task is None and self._may_start():
                    self._own_task = self._open_task()
                if self._own_task is None or (
                    self._own_task.task.paused and self._is_wanted(self._own_task.task)
                ):
                    self._changed.wait()
                    continue
            if not self._make_next(self._own_task):
                self._own_task = None

    def hand_over(self) -> list[Instruction]:
        """Return the pending instructions, for another driver."""
        assert not self._open
        self._end_threads()
        return [Start(task) for task in self._to_start]

    def close(self) -> None:
        """Stop all threads after their current block, and close the consumer's task."""
        with self._changed:
            self.scheduler.stop()
        self._end_threads()
        if self._own_task is not None:
            self._own_task.blocks.close()  # type: ignore[attr-defined]
            self._own_task = None

    # ------------------------------------------------------------ threads

    @property
    def _is_too_large(self) -> bool:
        return self._bytes_read > self._max_bytes

    def _end_threads(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _queue(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Start):
                self._to_start.append(instruction.task)
            elif isinstance(instruction, Cancel):
                if instruction.task in self._to_start:
                    self._to_start.remove(instruction.task)
                self._open.discard(instruction.task)
        # The consumer runs one of the tasks.
        for _ in range(len(self._open) + len(self._to_start) - 1 - len(self._threads)):
            thread = threading.Thread(target=self._serve, name="skate-data-relational", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._changed.notify_all()

    def _serve(self) -> None:
        """Run tasks until the driver stops."""
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._may_start())
                    if self._stopped:
                        return
                    mine = self._open_task()
                while self._make_next(mine):
                    with self._changed:
                        self._changed.wait_for(lambda: not mine.task.paused or not self._is_wanted(mine.task))  # noqa: B023
        except BaseException as error:  # a Polars panic is no Exception; the consumer raises it
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _may_start(self) -> bool:
        return bool(self._to_start) and not self._is_too_large

    def _open_task(self) -> _OpenTask:
        task = self._to_start.popleft()
        self._open.add(task)
        return _OpenTask(task)

    def _make_next(self, mine: _OpenTask) -> bool:
        """Create one block; return whether the task may create more."""
        made = next(mine.blocks, None) if self._is_wanted(mine.task) else None
        with self._changed:
            if not self._is_wanted(mine.task):
                mine.blocks.close()  # type: ignore[attr-defined]
            elif made is None:
                self._open.discard(mine.task)
                self._queue(self.scheduler.ended(mine.task))
            else:
                block, report = made
                item = Item.of(block, report)
                if not mine.task.operator.inputs:
                    self._bytes_read += item.bytes
                if self._on_made(mine.task, item, report):
                    self._queue(self.scheduler.made(mine.task, item))
                return True
        return False

    def _is_wanted(self, task: Task) -> bool:
        return not self._stopped and task in self._open


class _OpenTask:
    """An open task and the iterator of its blocks."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.blocks = self._produce()

    def _produce(self) -> Iterator[tuple[pa.Table, Report]]:
        task = self.task
        yield from produce(task.work, task.argument, [fetch_rows(item) for item in task.inputs], task.index)
