"""Lines on the terminal that show how a run goes: what is reported, how fast it is, and where its checkpoints are."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from typing import Any

from skate.air import _live
from skate.train._views.rates import Rates, together

_MOST_METRICS = 6  # that fit beside each other
_EACH_RANK = "ranks"  # as the value of the switch: a line for each worker


@dataclass
class Standing:
    """How far a run is.

    Attributes:
        name: The run's.
        state: What it is doing now.
        failures: How often workers have failed.
        checkpoint: The latest complete checkpoint, by its name.
        storing: The latest checkpoint of which a part is being stored.
        lost: How many checkpoints could not be stored.
        reports: How many reports each worker has made.
        metrics: What each worker has last reported.
    """

    name: str
    state: str = "starting"
    failures: int = 0
    checkpoint: str | None = None
    storing: str | None = None
    lost: int = 0
    reports: dict[int, int] = field(default_factory=dict)
    metrics: dict[int, dict[str, Any]] = field(default_factory=dict)
    begun: float = field(default_factory=lambda: time.perf_counter())
    _rates: dict[int, Rates] = field(default_factory=dict)

    def started(self) -> None:
        """Workers have been started, the first time or again: they count anew."""
        self._rates.clear()

    def heard(
        self, rank: int, metrics: dict[str, Any], storing: str | None = None, rows: int | None = None
    ) -> None:
        """A worker has reported.

        Args:
            rank: Which.
            metrics: What.
            storing: The checkpoint of which it stores a part.
            rows: How many rows of its datasets it has read so far.
        """
        self.reports[rank] = self.reports.get(rank, 0) + 1
        self.metrics[rank] = metrics
        self.storing = storing or self.storing
        self._rates.setdefault(rank, Rates()).heard(time.perf_counter(), metrics, rows)

    def lines(self) -> Any:
        """Return what is shown now."""
        from rich.console import Group
        from rich.text import Text

        title = Text(no_wrap=True, overflow="ellipsis")
        title.append(self.name, style="bold")
        title.append(f"  {self.state}  {_duration(time.perf_counter() - self.begun)}  {self._checkpoints()}")
        if self.failures:
            title.append(f"  failures: {self.failures}", style="red")
        return Group(title, self._table()) if self.reports else title

    def _checkpoints(self) -> str:
        said = f"checkpoint: {self.checkpoint or 'none yet'}"
        if self.storing is not None and self.storing != self.checkpoint:
            said += f", storing {self.storing}"
        return said + (f", {self.lost} lost" if self.lost else "")

    def _table(self) -> Any:
        from rich.table import Table

        # A copy: workers go on reporting while this is drawn, in another thread.
        last, rates = dict(self.metrics), {rank: each.now() for rank, each in list(self._rates.items())}
        names = list(dict.fromkeys(name for each in last.values() for name in each))[:_MOST_METRICS]
        each_rank = os.environ.get(_live.SWITCH) == _EACH_RANK
        total = together(list(rates.values()))
        speeds = [kind for kind in total if kind != "reports" or "steps" not in total]
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("rank",) * each_rank + ("reports", *names, *(f"{kind}/s" for kind in speeds)):
            # Wide enough for most values, so that columns do not move with each of them.
            table.add_column(column, justify="right", no_wrap=True, min_width=7 if column in names else None)
        ranks = sorted(last)
        for rank in ranks if each_rank else ranks[:1]:
            cells = [str(rank)] if each_rank else []
            shown = rates.get(rank, {}) if each_rank else total
            cells += [str(self.reports[rank]), *(_shown(last[rank].get(name, "")) for name in names)]
            table.add_row(*cells, *(_short(shown[kind]) if kind in shown else "" for kind in speeds))
        if each_rank and len(ranks) > 1 and speeds:
            blank = [""] * (1 + len(names))
            table.add_row("all", *blank, *(_short(total[kind]) for kind in speeds), style="bold")
        return table


def shown(standing: Standing) -> _live.LiveLines | None:
    """Show a run on the terminal, if somebody looks at one."""
    return _live.LiveLines(standing.lines, "skate-train-progress") if _live.wanted() else None


def _shown(value: Any) -> Any:
    from rich.text import Text

    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else Text(str(value), style="bold red")
    text = str(value)
    return text if len(text) <= 20 else text[:19] + "…"


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"
