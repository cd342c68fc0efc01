"""A live table of a run on the terminal: one line for each worker, with what it last reported."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from skate.air import _live

_MOST_METRICS = 6  # that fit beside each other


@dataclass
class Standing:
    """How far a run is.

    Attributes:
        name: The run's.
        state: What it is doing now.
        failures: How often workers have failed.
        checkpoint: The latest complete checkpoint, by its name.
        reports: How many reports each worker has made.
        metrics: What each worker has last reported.
    """

    name: str
    state: str = "starting"
    failures: int = 0
    checkpoint: str | None = None
    reports: dict[int, int] = field(default_factory=dict)
    metrics: dict[int, dict[str, Any]] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)

    def heard(self, rank: int, metrics: dict[str, Any]) -> None:
        """A worker has reported."""
        self.reports[rank] = self.reports.get(rank, 0) + 1
        self.metrics[rank] = metrics

    def lines(self) -> Any:
        """Return the table as it is now."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        elapsed = time.perf_counter() - self.begun
        said = [
            f"{self.name}: {self.state}",
            f"{elapsed:.0f} s",
            f"checkpoint: {self.checkpoint or 'none yet'}",
        ]
        if self.failures:
            said.append(f"failures: {self.failures}")
        names = list(dict.fromkeys(name for each in self.metrics.values() for name in each))[:_MOST_METRICS]
        table = Table(box=None, pad_edge=False)
        for column in ("rank", "reports", "reports/s", *names):
            table.add_column(column, justify="right", no_wrap=True)
        for rank in sorted(self.reports):
            rate = self.reports[rank] / elapsed if elapsed else 0.0
            values = [_shown(self.metrics[rank].get(name, "")) for name in names]
            table.add_row(str(rank), str(self.reports[rank]), f"{rate:.2f}", *values)
        return Group(Text("  ".join(said), no_wrap=True), table)


def shown(standing: Standing) -> _live.LiveLines | None:
    """Show a run on the terminal, if somebody looks at one."""
    return _live.LiveLines(standing.lines, "skate-train-progress") if _live.wanted() else None


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 20 else text[:19] + "…"
