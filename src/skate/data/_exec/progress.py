"""A live line for each step of a running plan, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from skate.air import _live
from skate.data._exec.operator_stats import OperatorStats
from skate.data._exec.operators import Operator


def wanted(enabled: bool) -> bool:
    """Tell whether there is somebody to look at progress, who has not turned it off."""
    return enabled and _live.wanted()


class Progress:
    """Shows lines from half a second after it begins until it is stopped."""

    def __init__(self, title: str, stats: Mapping[Operator, OperatorStats]) -> None:
        self._title = title
        self._stats = stats
        self._begun = time.perf_counter()
        self._lines = _live.LiveLines(self.lines, "skate-data-progress")

    def stop(self) -> None:
        """Remove the lines."""
        self._lines.stop()

    def lines(self) -> Any:
        """Return the lines as they are now."""
        from rich.table import Table

        elapsed = time.perf_counter() - self._begun
        table = Table(title=f"{self._title}  {elapsed:.0f} s", title_justify="left", box=None, pad_edge=False)
        for name in ("step", "running", "queued", "rows", "rows/s", "size", "memory"):
            table.add_column(name, justify="left" if name == "step" else "right", no_wrap=True)
        for operator, done in self._stats.items():
            if not done.tasks and not operator.running and not operator.waiting:
                continue
            running = sum(not task.ended for task in list(operator.running))
            rate = done.rows / elapsed if elapsed else 0
            table.add_row(
                _short(done.name),
                str(running),
                str(operator.waiting),
                f"{done.rows:,}",
                f"{rate:,.0f}",
                _size(done.bytes),
                _size(done.largest_memory),
            )
        return table


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:23]}…{name[-24:]}"


def _size(amount: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit in ("B", "KB") else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("the loop returns")
