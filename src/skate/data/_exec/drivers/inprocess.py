"""The in-process driver: runs a small plan in the thread of its consumer, without remote tasks.

A few rows are done before a worker would have received them. The duration of user functions is unknown, however: if the
work takes longer than expected, workers run the other tasks. The tasks that have begun end in this thread meanwhile, so
no processor waits until workers have started.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pyarrow as pa

import skate
from skate.data._exec import interruption as interruptions
from skate.data._exec.drivers.workers import WorkerDriver
from skate.data._exec.items import Item, fetch_rows
from skate.data._exec.scheduler import Cancel, Instruction, Resume, Scheduler, Start
from skate.data._exec.tasks import Blocks, OnMade, Task
from skate.data._exec.worker import produce

IN_PROCESS_SECONDS = 0.25  # work for this long before considering workers
SHARE_IN_SESSION = 0.4  # work for this share of that time if a session exists, in which workers start sooner
MIN_SAVED_SECONDS = 0.5  # time that workers must save, because they have to start and to import Arrow
TASK_OVERHEAD_SECONDS = 0.001  # cost of a remote task for this process: many tiny tasks are faster in-process

# Returns the driver for the remaining tasks of a scheduler, given its pending instructions and the begun tasks.
StartWorkers = Callable[[list[Instruction], dict[Task, Blocks]], WorkerDriver]


def saves_time(worked: float, tasks: int, left: int, cpus: float, has_session: bool = False) -> bool:
    """Return whether workers would end the remaining tasks sooner.

    Args:
        worked: Seconds that this process has worked on the plan.
        tasks: Number of tasks it has worked on.
        left: Number of tasks that have not begun.
        cpus: Number of processors for workers.
        has_session: Whether workers can start without starting a session.

    >>> saves_time(1.0, 1, left=1, cpus=16), saves_time(1.0, 1, left=2, cpus=16)
    (False, True)
    """
    if worked <= IN_PROCESS_SECONDS * (SHARE_IN_SESSION if has_session else 1):
        return False
    each = worked / max(1, tasks)
    on_workers = each * math.ceil(left / max(1, min(left, int(cpus)))) + TASK_OVERHEAD_SECONDS * left
    return each * left - on_workers > MIN_SAVED_SECONDS


class InProcessDriver:
    """Runs the tasks of a scheduler in the thread of its consumer.

    Args:
        scheduler: The scheduler.
        on_made: Called for each block; returns whether to pass it to the scheduler.
        cpus: Number of processors that workers would have.
        start_workers: Starts the driver that takes over if workers save time.

    Attributes:
        workers: The driver that has taken over.
    """

    def __init__(
        self, scheduler: Scheduler, on_made: OnMade, cpus: float, start_workers: StartWorkers
    ) -> None:
        self.scheduler = scheduler
        self.workers: WorkerDriver | None = None
        self._on_made = on_made
        self._cpus = cpus
        self._start_workers = start_workers
        self._to_start: list[Task] = []
        self._open: dict[Task, Blocks] = {}
        self._to_resume: list[Task] = []
        self._worked = 0.0
        self._work_began: float | None = None
        self._ended = 0
        self._error: Exception | None = None
        self._queue(scheduler.begin())
        if scheduler.tasks_left:
            # Arrow imports pandas with its first list; tasks would seem to take long otherwise.
            pa.array([None])

    def next(self) -> Item | None:
        """Return the next item, or None at the end or when workers have taken over; run tasks meanwhile."""
        interruption = interruptions.current()
        while self.workers is None:
            interruption.check()
            item, instructions = self.scheduler.take()
            self._queue(instructions)
            if item is not None or self.scheduler.finished:
                return item
            self._consider_workers()
            if self.workers is None:
                self._work_began = time.perf_counter()
                self._work()
                self._worked += time.perf_counter() - self._work_began
                self._work_began = None
        return None

    def _consider_workers(self) -> None:
        """Let workers take over if they save time."""
        if self.workers is None and self._takes_long():
            pending: list[Instruction] = [Start(task) for task in self._to_start]
            self.workers = self._start_workers(pending, self._open)

    def _after_user_code(self) -> None:
        """Consider workers between two calls of user code; they get a copy of its state, which is consistent now."""
        if self._error is None:
            try:
                self._consider_workers()
            except Exception as error:  # no error of user code, inside of which this is called
                self._error = error

    def _takes_long(self) -> bool:
        left = self.scheduler.tasks_left + len(self._to_start)
        if not left:
            return False
        worked = self._worked
        if self._work_began is not None:
            worked += time.perf_counter() - self._work_began
        tasks = self._ended + len(self._open)
        return saves_time(worked, tasks, left, self._cpus, skate.is_initialized())

    def close(self) -> None:
        """Close all open tasks."""
        if self.workers is not None:
            self.workers.close()
            return
        for blocks in self._open.values():
            blocks.close()
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
                elif (blocks := self._open.pop(instruction.task, None)) is not None:
                    blocks.close()

    def _work(self) -> None:
        """Run one task until it is paused or ends, or workers take over."""
        if self._to_resume:
            task = self._to_resume.pop(0)
        else:
            task = self._to_start.pop(0)
            inputs = [fetch_rows(item) for item in task.inputs]
            self._open[task] = produce(task.work, task.argument, inputs, task.index, self._after_user_code)
        blocks = self._open.get(task)
        if blocks is None:
            return
        while True:
            made = next(blocks, None)
            if self._error is not None:
                raise self._error
            if self.workers is not None:
                self.workers.report_own(task, made)
                return
            if made is None:
                break
            block, report = made
            item = Item.of(block, report)
            if self._on_made(task, item, report):
                self._queue(self.scheduler.made(task, item))
            if task.paused or task not in self._open:
                return
        self._open.pop(task, None)
        self._ended += 1
        self._queue(self.scheduler.ended(task))
