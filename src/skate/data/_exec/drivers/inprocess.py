"""The in-process driver: runs a small plan in the thread of its consumer, without remote tasks.

A few rows are done before a worker would have received them. The duration of user functions is unknown, however: if the
work takes longer than expected, the driver hands the rest of the plan over to workers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from skate.data._exec import interruption as interruptions
from skate.data._exec.items import Item, Report, fetch_rows
from skate.data._exec.scheduler import Cancel, Instruction, Resume, Scheduler, Start
from skate.data._exec.tasks import OnMade, Task
from skate.data._exec.worker import produce

IN_PROCESS_SECONDS = 0.25  # work for this long before considering workers
MIN_REMAINING_SECONDS = 0.5  # remaining work that is worth starting workers, which have to import Arrow
TASK_OVERHEAD_SECONDS = 0.001  # cost of a remote task for this process: many tiny tasks are faster in-process


class InProcessDriver:
    """Runs the tasks of a scheduler in the thread of its consumer."""

    def __init__(self, scheduler: Scheduler, on_made: OnMade) -> None:
        self.scheduler = scheduler
        self._on_made = on_made
        self._to_start: list[Task] = []
        self._open: dict[Task, Iterator[tuple[pa.Table, Report]]] = {}
        self._to_resume: list[Task] = []
        self._worked = 0.0
        self._ended = 0
        self._queue(scheduler.begin())

    def next(self) -> Item | None:
        """Return the next item, or None at the end or when workers should take over; run tasks meanwhile."""
        interruption = interruptions.current()
        while True:
            interruption.check()
            item, instructions = self.scheduler.take()
            self._queue(instructions)
            if item is not None or self.scheduler.finished:
                return item
            if self._to_start and not self._open and self._takes_long():
                return None
            begun = time.perf_counter()
            self._work()
            self._worked += time.perf_counter() - begun

    def _takes_long(self) -> bool:
        """Return whether the remaining tasks are worth starting workers, judged by the tasks that have ended."""
        left = self.scheduler.tasks_left + len(self._to_start)
        each = self._worked / max(1, self._ended)
        return (
            self._worked > IN_PROCESS_SECONDS
            and (each - TASK_OVERHEAD_SECONDS) * left > MIN_REMAINING_SECONDS
        )

    def hand_over(self) -> tuple[Scheduler, list[Instruction]]:
        """Return the scheduler and its pending instructions, for another driver."""
        assert not self._open
        return self.scheduler, [Start(task) for task in self._to_start]

    def close(self) -> None:
        """Close all open tasks."""
        for generator in self._open.values():
            generator.close()  # type: ignore[attr-defined]
        self._open.clear()
        self.scheduler.stop()

    def _queue(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Start):
                self._to_start.append(instruction.task)
            elif isinstance(instruction, Resume):
                self._to_resume.append(instruction.task)
            elif isinstance(instruction, Cancel):
                if instruction.task in self._to_start:
                    self._to_start.remove(instruction.task)
                elif (generator := self._open.pop(instruction.task, None)) is not None:
                    generator.close()  # type: ignore[attr-defined]

    def _work(self) -> None:
        """Run one task until it is paused or ends."""
        if self._to_resume:
            task = self._to_resume.pop(0)
        else:
            task = self._to_start.pop(0)
            blocks = [fetch_rows(item) for item in task.inputs]
            self._open[task] = produce(task.work, task.argument, blocks, task.index)
        generator = self._open.get(task)
        if generator is None:
            return
        for block, report in generator:
            item = Item.of(block, report)
            if self._on_made(task, item, report):
                self._queue(self.scheduler.made(task, item))
            if task.paused or task not in self._open:
                return
        self._open.pop(task, None)
        self._ended += 1
        self._queue(self.scheduler.ended(task))
