"""Statistics of the operators of a running plan: work done and idle time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from skate.data._exec.items import Report
from skate.data._exec.operators import Operator
from skate.data._exec.scheduler import OperatorStatus, Scheduler
from skate.data._exec.tasks import Task


@dataclass
class OperatorStats:
    """Counters of one operator.

    Attributes:
        seconds: Total time of all tasks, including `user_seconds`.
        user_seconds: Time in functions of the user.
        input_seconds: Idle time without input rows.
        output_seconds: Idle time while the output was not consumed.
        processor_seconds: Idle time while other operators used all processors.
        failed_rows: Rows dropped because user code failed.
        errored_blocks: Tasks that failed and whose last block was dropped.
        written: Rows and bytes that an operator has written to a sink; None if it has no sink.
    """

    name: str
    tasks: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    user_seconds: float = 0.0
    input_seconds: float = 0.0
    output_seconds: float = 0.0
    processor_seconds: float = 0.0
    failed_rows: int = 0
    errored_blocks: int = 0
    largest_memory: int = 0
    written: tuple[int, int] | None = None
    begun: float | None = None
    ended: float | None = None
    processes: set[int] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)

    def add(self, task: Task, report: Report) -> None:
        """Count one report of a task."""
        now = time.perf_counter()
        self.begun = now - report.seconds if self.begun is None else self.begun
        self.ended = now
        if task.index not in self._seen:
            self._seen.add(task.index)
            self.tasks += 1
        self.seconds += report.seconds
        self.user_seconds += report.user_seconds
        self.failed_rows += report.notes.get("failed_rows", 0)
        self.largest_memory = max(self.largest_memory, report.memory)
        self.processes.add(report.process)
        if report.notes.get("errored") is not None:
            self.errored_blocks += 1
        elif not report.notes.get("dead_letter"):
            self.blocks += 1
            self.rows += report.rows
            self.bytes += report.bytes
            if "written" in report.notes:
                rows, size = self.written or (0, 0)
                self.written = rows + report.notes["written"][0], size + report.notes["written"][1]

    @property
    def framework_seconds(self) -> float:
        """Total time of all tasks outside user code."""
        return max(0.0, self.seconds - self.user_seconds)


class IdleTimes:
    """Adds the idle time of operators to their statistics after every decision of the scheduler.

    Args:
        scheduler: The scheduler to observe.
        stats: The statistics of each operator.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        stats: Mapping[Operator, OperatorStats],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scheduler = scheduler
        self._stats = stats
        self._clock = clock
        self._since = clock()
        self._status: dict[Operator, OperatorStatus] = {}
        scheduler.on_change = self.record

    def record(self) -> None:
        """Add the time since the last call to each operator's previous status, and store its current status."""
        now = self._clock()
        elapsed, self._since = now - self._since, now
        for operator, stats in self._stats.items():
            status = self._status.get(operator)
            if status is OperatorStatus.WAITING_FOR_INPUT:
                stats.input_seconds += elapsed
            elif status is OperatorStatus.WAITING_FOR_OUTPUT:
                stats.output_seconds += elapsed
            elif status is OperatorStatus.WAITING_FOR_PROCESSOR:
                stats.processor_seconds += elapsed
            self._status[operator] = self._scheduler.status_of(operator)

    def status_of(self, operator: Operator) -> OperatorStatus | None:
        """Return the status of an operator after the latest decision; None before the first."""
        return self._status.get(operator)


def format_bytes(amount: float) -> str:
    """Return a number of bytes as short text."""
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit in ("B", "KB") else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("the loop returns")
