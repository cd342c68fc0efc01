"""Runs a plan in this process, without a task: the whole of a small plan, and the beginning of others.

Five rows are through before a worker would have been asked. Nobody knows how long a user's function takes, though: once
the work has taken a while and there is more of it, the rest is given to workers.
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

IN_PROCESS_SECONDS = 0.25  # seconds of work before anybody else is thought of
MIN_REMAINING_SECONDS = (
    0.5  # seconds of work left that workers are asked for: they have to be started, and to import Arrow
)
TASK_OVERHEAD_SECONDS = 0.001  # seconds of this process that a task costs which a worker does: many tiny ones are done sooner here


class InProcessDriver:
    """Drives a scheduler in the thread of its consumer."""

    def __init__(self, scheduler: Scheduler, on_made: OnMade) -> None:
        self.scheduler = scheduler
        self._on_made = on_made
        self._to_start: list[Task] = []
        self._open: dict[Task, Iterator[tuple[pa.Table, Report]]] = {}
        self._to_resume: list[Task] = []
        self._worked = 0.0
        self._ended = 0
        self._note(scheduler.begin())

    def next(self) -> Item | None:
        """Return the next item, working as long as there is none; None at the end, or when patience is over."""
        interruption = interruptions.current()
        while True:
            interruption.check()
            item, instructions = self.scheduler.take()
            self._note(instructions)
            if item is not None or self.scheduler.finished:
                return item
            if self._to_start and not self._open and self._takes_long():
                return None
            begun = time.perf_counter()
            self._work()
            self._worked += time.perf_counter() - begun

    def _takes_long(self) -> bool:
        """Tell whether what is left is worth starting workers for, if it takes as long as what has been done."""
        left = self.scheduler.tasks_left + len(self._to_start)
        each = self._worked / max(1, self._ended)
        return (
            self._worked > IN_PROCESS_SECONDS
            and (each - TASK_OVERHEAD_SECONDS) * left > MIN_REMAINING_SECONDS
        )

    def hand_over(self) -> tuple[Scheduler, list[Instruction]]:
        """Return the scheduler, for somebody else to drive, and what has not been done of what it wants."""
        assert not self._open
        return self.scheduler, [Start(task) for task in self._to_start]

    def close(self) -> None:
        """Give up what has begun."""
        for generator in self._open.values():
            generator.close()  # type: ignore[attr-defined]
        self._open.clear()
        self.scheduler.stop()

    def _note(self, instructions: list[Instruction]) -> None:
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
        """Go on with a task until it is held back, or has ended."""
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
                self._note(self.scheduler.made(task, item))
            if task.paused or task not in self._open:
                return
        self._open.pop(task, None)
        self._ended += 1
        self._note(self.scheduler.ended(task))
