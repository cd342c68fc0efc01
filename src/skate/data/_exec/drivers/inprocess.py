"""The in-process driver: runs a small plan in the thread of its consumer, without remote tasks.

A few rows are done before a worker would have received them. The duration of user functions is unknown, however: if the
work takes longer than expected, workers run the other tasks. The tasks that have begun end in this thread meanwhile, so
no processor waits until workers have started.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

import skate
from skate.data._exec import interruption as interruptions
from skate.data._exec.items import Item, fetch_rows
from skate.data._exec.scheduler import Cancel, Instruction, Resume, Scheduler, Start
from skate.data._exec.tasks import Blocks, OnMade, Task
from skate.data._exec.worker import produce

if TYPE_CHECKING:
    from skate.data._exec.drivers.workers import WorkerDriver

IN_PROCESS_SECONDS = 0.25  # work for this long before considering workers
SHARE_IN_SESSION = 0.4  # work for this share of that time if a session exists, in which workers start sooner
MIN_SAVED_SECONDS = 0.5  # time that workers must save, because they have to start and to import Arrow
MIN_SAVED_IN_SESSION = 0.2  # the same if a session exists
CHECK_SECONDS = 0.05  # interval of the checks whether a call of user code takes long
TASK_OVERHEAD_SECONDS = 0.001  # cost of a remote task for this process: many tiny tasks are faster in-process

# Returns the driver for the remaining tasks of a scheduler, given its pending instructions and the begun tasks.
StartWorkers = Callable[[list[Instruction], dict[Task, Blocks]], "WorkerDriver"]


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
    return each * left - on_workers > (MIN_SAVED_IN_SESSION if has_session else MIN_SAVED_SECONDS)


class InProcessDriver:
    """Runs the tasks of a scheduler in the thread of its consumer.

    Args:
        scheduler: The scheduler.
        on_made: Called for each block; returns whether to pass it to the scheduler.
        cpus: Number of processors that workers would have.
        start_workers: Starts the driver that takes over if workers save time.
        during_calls: Consider workers during calls of user code, which must not change what `start_workers` pickles.

    Attributes:
        workers: The driver that has taken over.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        on_made: OnMade,
        cpus: float,
        start_workers: StartWorkers,
        *,
        during_calls: bool = False,
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
        self._long_calls = _LongCalls(self._after_user_code) if during_calls else None
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
        if self._long_calls is not None:
            self._long_calls.close()
        return None

    def _consider_workers(self) -> None:
        """Let workers take over if they save time."""
        if self.workers is None and self._takes_long():
            pending: list[Instruction] = [Start(task) for task in self._to_start]
            self.workers = self._start_workers(pending, self._open)

    def _after_user_code(self) -> None:
        """Consider workers between two calls of user code; they get a copy of its state, which is consistent now."""
        if self._long_calls is not None:
            with self._long_calls.lock:
                self._consider_safely()
        else:
            self._consider_safely()

    def _consider_safely(self) -> None:
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
        if self._long_calls is not None:
            self._long_calls.close()
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
            if self._long_calls is None:
                made = next(blocks, None)
            else:
                with self._long_calls:
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


class _LongCalls:
    """Considers workers in a thread while a block is being created: `with long_calls: next(blocks)`.

    Attributes:
        lock: Held while workers are considered; outside of the context, they never are.
    """

    def __init__(self, consider: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self._consider = consider
        self._changed = threading.Condition(self.lock)
        self._is_creating = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        with self._changed:
            self._is_creating = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="skate-data-long-calls", daemon=True)
                self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_creating = False

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_closed, CHECK_SECONDS):
                if self._is_creating:
                    self._consider()
