"""A live line for each step of a running plan, on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from skate.data._exec.operators import Operator
from skate.data._exec.stats import OperatorStats

DELAY = 0.5  # seconds: what is over by then needs no lines
INTERVAL = 0.25
SWITCH = "SKATE_PROGRESS"  # "0" turns the lines of all libraries off


def wanted(enabled: bool) -> bool:
    """Tell whether there is somebody to look at progress, who has not turned it off."""
    return enabled and os.environ.get(SWITCH, "1") != "0" and sys.stderr.isatty()


class Progress:
    """Shows lines from half a second after it begins until it is stopped."""

    def __init__(self, title: str, stats: Mapping[Operator, OperatorStats]) -> None:
        self._title = title
        self._stats = stats
        self._begun = time.perf_counter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._show, name="skate-data-progress", daemon=True)
        self._thread.start()

    def _show(self) -> None:
        if self._stopped.wait(DELAY):
            return
        from rich.console import Console
        from rich.live import Live

        screen = Console(stderr=True)
        with Live(get_renderable=self.lines, console=screen, auto_refresh=False, transient=True) as live:
            live.refresh()
            while not self._stopped.wait(INTERVAL):
                live.refresh()

    def stop(self) -> None:
        """Remove the lines."""
        self._stopped.set()
        self._thread.join()

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
