"""Runs a plan in this process, on all processors: operations on whole columns, which need no interpreter meanwhile.

Arrow and Polars let go of the interpreter while they read, sort, group and join. So a plan without a function of the
user's needs no worker process: the consumer does a task itself while it waits, and threads do others meanwhile. Nothing
is copied to another process and back.
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
    """Drives a scheduler in the thread of its consumer, and in others as long as there is more than one task to do.

    A task stays in the thread that has begun it, also while it is held back: the scheduler has no more tasks open than it
    has processors, so that there is a thread for each. To wake a thread costs more than a small task, on a machine that
    has other things to do: a plan that is one task after another never leaves the consumer's.

    Args:
        scheduler: What decides.
        on_made: Told of each block; says whether it belongs to the scheduler.
        most_bytes: If sources turn out to have more bytes, the plan is given to whoever can spill.
    """

    def __init__(self, scheduler: Scheduler, on_made: OnMade, most_bytes: int) -> None:
        self.scheduler = scheduler
        self._on_made = on_made
        self._most_bytes = most_bytes
        self._bytes_read = 0
        self._changed = threading.Condition()  # guards the scheduler, and all that follows
        self._to_start: deque[Task] = deque()
        self._open: set[Task] = set()
        self._error: BaseException | None = None
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._mine: _Open | None = None  # what the consumer's thread has begun
        with self._changed:
            self._note(scheduler.begin())

    # ------------------------------------------------------------ the consumer's side

    def next(self) -> Item | None:
        """Return the next item, as soon as there is one; None at the end, or when it is too much for this process."""
        interruption = interruptions.current()
        interruption.waits_at(self._changed)
        while True:
            with self._changed:
                interruption.check()
                if self._error is not None:
                    raise self._error
                item, instructions = self.scheduler.take()
                self._note(instructions)
                if item is not None or self.scheduler.finished or (self._is_too_much and not self._open):
                    return item
                if self._mine is None and self._may_start():
                    self._mine = self._begun()
                if self._mine is None or (self._mine.task.paused and self._is_wanted(self._mine.task)):
                    self._changed.wait()
                    continue
            if not self._make_next(self._mine):
                self._mine = None

    def hand_over(self) -> tuple[Scheduler, list[Instruction]]:
        """Return the scheduler, for somebody else to drive, and what has not been done of what it wants."""
        assert not self._open
        self._end_threads()
        return self.scheduler, [Start(task) for task in self._to_start]

    def close(self) -> None:
        """Give up what has begun; what a thread is in the middle of ends first."""
        with self._changed:
            self.scheduler.stop()
        self._end_threads()
        if self._mine is not None:
            self._mine.blocks.close()  # type: ignore[attr-defined]
            self._mine = None

    # ------------------------------------------------------------ the threads

    @property
    def _is_too_much(self) -> bool:
        return self._bytes_read > self._most_bytes

    def _end_threads(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _note(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Start):
                self._to_start.append(instruction.task)
            elif isinstance(instruction, Cancel):
                if instruction.task in self._to_start:
                    self._to_start.remove(instruction.task)
                self._open.discard(instruction.task)
        # One of them is the consumer's.
        for _ in range(len(self._open) + len(self._to_start) - 1 - len(self._threads)):
            thread = threading.Thread(target=self._serve, name="skate-data-relational", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._changed.notify_all()

    def _serve(self) -> None:
        """Do tasks, one after another, until there is nothing more to do."""
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._may_start())
                    if self._stopped:
                        return
                    mine = self._begun()
                while self._make_next(mine):
                    with self._changed:
                        self._changed.wait_for(lambda: not mine.task.paused or not self._is_wanted(mine.task))  # noqa: B023
        except (
            BaseException
        ) as error:  # the consumer is the one to judge it; a panic of Polars is no Exception
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _may_start(self) -> bool:
        return bool(self._to_start) and not self._is_too_much

    def _begun(self) -> _Open:
        task = self._to_start.popleft()
        self._open.add(task)
        return _Open(task)

    def _make_next(self, mine: _Open) -> bool:
        """Make one more block; tell whether there may be others."""
        made = next(mine.blocks, None) if self._is_wanted(mine.task) else None
        with self._changed:
            if not self._is_wanted(mine.task):
                mine.blocks.close()  # type: ignore[attr-defined]
            elif made is None:
                self._open.discard(mine.task)
                self._note(self.scheduler.ended(mine.task))
            else:
                block, report = made
                item = Item.of(block, report)
                if not mine.task.operator.inputs:
                    self._bytes_read += item.bytes
                if self._on_made(mine.task, item, report):
                    self._note(self.scheduler.made(mine.task, item))
                return True
        return False

    def _is_wanted(self, task: Task) -> bool:
        return not self._stopped and task in self._open


class _Open:
    """A task that has begun, and the blocks that it makes."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.blocks = self._produced()

    def _produced(self) -> Iterator[tuple[pa.Table, Report]]:
        task = self.task
        yield from produce(task.work, task.argument, [fetch_rows(item) for item in task.inputs], task.index)
