"""What a plan has done: for each operator, its tasks, rows, bytes, and where the time went."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from skate.data._exec.items import Report
from skate.data._exec.tasks import Task


@dataclass
class OperatorStats:
    """What one operator has done so far.

    Attributes:
        seconds: Time of all tasks together, of which `user_seconds` in functions that the user wrote.
        input_seconds: Time in which nothing ran because there were no rows to work on.
        output_seconds: The same, because nobody had taken what was made.
        processor_seconds: The same, because other operators had all processors.
        failed_rows: Rows for which user code has failed, and that were left out.
        errored_blocks: Tasks that have failed, and whose last block was left out.
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
    begun: float | None = None
    ended: float | None = None
    processes: set[int] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)

    def add(self, task: Task, report: Report) -> None:
        """Count what a task has reported."""
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

    @property
    def framework_seconds(self) -> float:
        """Time of all tasks together that was not in user code."""
        return max(0.0, self.seconds - self.user_seconds)
