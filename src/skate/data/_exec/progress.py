"""The progress of a running plan, as it is shown to the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from skate._api.progress import Bar, Column, Table, View, format_number, format_rate
from skate.data._exec.operator_stats import OperatorStats, format_bytes
from skate.data._exec.operators import Operator
from skate.data._exec.run_description import RunDescription

_MAX_NAME = 48  # characters
_COLUMNS = (Column("step", is_number=False), *map(Column, ("running", "queued", "rows", "rows/s", "size")))
_MORE_COLUMNS = (Column("memory"), Column("waits for", is_number=False))


class PlanProgress:
    """Describes a plan; another thread calls it while the plan runs.

    Args:
        title: The name of the dataset.
        describe: Describes the plan.
        stats: The statistics of each operator, upstream first.
        has_operators: Whether to show a line per operator.
        is_verbose: Whether these lines have the memory of workers and the reason of backpressure.
        is_awaited: Returns whether the consumer waits for the plan now.
    """

    def __init__(
        self,
        title: str,
        describe: RunDescription,
        stats: Mapping[Operator, OperatorStats],
        *,
        has_operators: bool,
        is_verbose: bool,
        is_awaited: Callable[[], bool],
    ) -> None:
        self._title = title
        self._describe = describe
        self._stats = list(stats.items())
        self._has_operators = has_operators
        self._is_verbose = is_verbose
        self._is_awaited = is_awaited

    def view(self) -> View | None:
        """Return the current state; None while an interactive user types, and the plan waits for its consumer."""
        if hasattr(sys, "ps1") and not self._is_awaited() and not self._describe.is_finished:
            return None
        described = self._describe()
        rows = []
        for (operator, stats), each in zip(self._stats, described["operators"], strict=True):
            if not stats.tasks and not operator.running and not operator.waiting:
                continue
            more = (format_bytes(stats.largest_memory), each["backpressure"] or "")
            rows.append(
                (
                    _shorten(each["name"]),
                    str(each["tasks_active"]),
                    str(each["blocks_queued"]),
                    format_number(each["rows_out"]),
                    format_rate(each["rate"]),
                    format_bytes(each["bytes_out"]),
                    *(more if self._is_verbose else ()),
                )
            )
        total = described["total_rows"]
        bar = Bar(described["rows"], total, "rows", described["operators"][-1]["rate"])
        return View(
            self._title,
            self._describe.seconds,
            bar=bar if total is not None or not self._has_operators else None,
            table=Table(_COLUMNS + (_MORE_COLUMNS if self._is_verbose else ()), tuple(rows))
            if self._has_operators
            else None,
            summary="; ".join(
                f"{name} {count} rows" for name, _, _, count, *_ in (rows if total is None else rows[:-1])
            ),
        )


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[:23]}…{name[-24:]}"
