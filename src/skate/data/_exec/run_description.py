"""Describes a running plan for its run record and its progress: rows, rates and backpressure of each operator."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from skate.data._exec.operator_stats import IdleTimes, OperatorStats, format_bytes
from skate.data._exec.operators import Operator
from skate.data._exec.scheduler import OperatorStatus, Scheduler

_RATE_WINDOW_S = 10.0  # blocks arrive one at a time, so a shorter window would show jumps


def operator_names(operators: Iterable[Operator]) -> str:
    """Return the operators of a plan as the name of a dataset without one."""
    return " → ".join(operator.name for operator in operators)


class RunDescription:
    """Reads the counters of a plan. Another thread calls it while the plan runs, so it must not iterate over queues.

    Args:
        scheduler: The scheduler of the plan.
        stats: The statistics of each operator, upstream first.
        idle_times: Has the status of each operator.
        count_rows: Returns the number of rows that the plan will have, if it is known.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        stats: Mapping[Operator, OperatorStats],
        idle_times: IdleTimes,
        count_rows: Callable[[], int | None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scheduler = scheduler
        self._stats = stats
        self._operators = list(stats)
        self._idle_times = idle_times
        self._count_rows = count_rows
        self._clock = clock
        self._total: int | None = None
        self._has_total = False
        self._begun = clock()
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque([(self._begun, (0,) * len(stats))])

    @property
    def seconds(self) -> float:
        """The time since the start of the plan."""
        return self._clock() - self._begun

    @property
    def is_finished(self) -> bool:
        """Whether the plan has yielded its last block."""
        return self._scheduler.root.finished

    def __call__(self) -> dict[str, Any]:
        """Return the rows of the plan and the counters of its operators."""
        if not self._has_total:
            # Not before the run is recorded: most runs are too short for it.
            self._has_total, self._total = True, self._count_rows()
        rows, sizes = zip(*map(self._output, self._operators), strict=True)
        rates = self._rates(rows)
        numbers = {operator: index for index, operator in enumerate(self._operators)}
        done = rows[-1]
        return {
            "summary": f"{done:,} rows" if self._total is None else f"{done:,} of {self._total:,} rows",
            "rows": done,
            "total_rows": self._total,
            "operators": [
                {
                    "id": str(numbers[operator]),
                    "name": operator.name,
                    "inputs": [str(numbers[each]) for each in operator.inputs],
                    "rows_in": sum(each.rows_emitted for each in operator.inputs),
                    "rows_out": rows[index],
                    "bytes_out": sizes[index],
                    "blocks_queued": operator.waiting,
                    "output_backpressure_s": round(self._stats[operator].output_seconds, 3),
                    "submission_backpressure_s": round(self._stats[operator].processor_seconds, 3),
                    "tasks_active": sum(task.is_active for task in list(operator.running)),
                    "rate": rates[index],
                    **self._state(operator),
                }
                for index, operator in enumerate(self._operators)
            ],
        }

    def _output(self, operator: Operator) -> tuple[int, int]:
        """Return the rows and bytes that an operator has emitted or, if it has a sink, written."""
        return self._stats[operator].written or (operator.rows_emitted, operator.bytes_emitted)

    def _rates(self, rows: tuple[int, ...]) -> list[float]:
        """Return the rows per second of each operator: of the last seconds or, at the end, of the whole run."""
        now = self._clock()
        if self._scheduler.root.finished:
            return [count / max(now - self._begun, 1e-6) for count in rows]
        self._samples.append((now, rows))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _RATE_WINDOW_S:
            self._samples.popleft()
        since, before = self._samples[0]
        return [
            (count - earlier) / max(now - since, 1e-6) for count, earlier in zip(rows, before, strict=True)
        ]

    def _state(self, operator: Operator) -> dict[str, Any]:
        status = self._idle_times.status_of(operator)
        if operator.finished or status is OperatorStatus.FINISHED:
            return {"state": "finished", "backpressure": None}
        if status is OperatorStatus.WAITING_FOR_PROCESSOR:
            reason = f"all {self._scheduler.limits.cpus:g} processors of the plan are in use"
            return {"state": "waiting", "backpressure": reason}
        if status is OperatorStatus.WAITING_FOR_OUTPUT:
            return {"state": "waiting", "backpressure": self._why_paused()}
        running = list(operator.running)
        paused = sum(task.paused and not task.ended for task in running)
        state = "running" if status is OperatorStatus.ACTIVE else "waiting"
        if paused:
            why = f"{paused} of {len(running)} tasks are paused: {self._why_paused()}"
            return {"state": state, "backpressure": why}
        needs_input = not running and not operator.waiting
        return {"state": state, "backpressure": "its input is not there yet" if needs_input else None}

    def _why_paused(self) -> str:
        used, limits = self._scheduler.used, self._scheduler.limits
        memory = used + sum(list(self._scheduler.memory_of.values()))
        if limits.memory is not None and memory > limits.memory:
            return f"blocks and workers use {format_bytes(memory)}; the memory limit is {format_bytes(limits.memory)}"
        return (
            f"blocks are not consumed as fast as they are created: {format_bytes(used)} wait, "
            f"the limit of the plan is {format_bytes(limits.bytes)}"
        )
