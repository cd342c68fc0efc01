"""What each operator of a running plan waits for, and how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from skate.data._exec.operator_stats import OperatorStats
from skate.data._exec.operators import Operator
from skate.data._exec.scheduler import OperatorStatus, Scheduler


class Waiting:
    """Adds to the statistics of operators how long they stood still, each time something has changed.

    Args:
        scheduler: What is watched.
        stats: Of each operator.
        clock: Tells the time in seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        stats: Mapping[Operator, OperatorStats],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._flow = scheduler
        self._stats = stats
        self._clock = clock
        self._since = clock()
        self._stood: dict[Operator, OperatorStatus] = {}
        scheduler.on_change = self.note

    def note(self) -> None:
        """Count the time since the last change for what each operator did then; see what it does now."""
        now = self._clock()
        elapsed, self._since = now - self._since, now
        for operator, stats in self._stats.items():
            stood = self._stood.get(operator)
            if stood is OperatorStatus.WAITS_FOR_INPUT:
                stats.input_seconds += elapsed
            elif stood is OperatorStatus.WAITS_FOR_OUTPUT:
                stats.output_seconds += elapsed
            elif stood is OperatorStatus.WAITS_FOR_PROCESSOR:
                stats.processor_seconds += elapsed
            self._stood[operator] = self._flow.status_of(operator)
