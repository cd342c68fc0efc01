"""The progress of a run on the terminal: reported metrics, rates, and checkpoints."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skate.air import _live

_MAX_METRICS = 6  # columns
_EACH_RANK = "ranks"  # the value of the switch for a row per worker

_WINDOW = 20  # reports over which a rate is averaged
# Metrics that count up over the whole run, and the units that they count.
_COUNTERS = {
    "step": "steps",
    "global_step": "steps",
    "samples": "samples",
    "num_samples": "samples",
    "samples_seen": "samples",
    "tokens": "tokens",
    "num_tokens": "tokens",
    "tokens_seen": "tokens",
    "num_input_tokens_seen": "tokens",
}
_UNITS = ("reports", "steps", "rows", "samples", "tokens")


class Rates:
    """The rates of one worker, from its counters and from the rows that it has read."""

    def __init__(self) -> None:
        self._window: deque[tuple[float, dict[str, float]]] = deque(maxlen=_WINDOW)
        self._reports = 0

    def add(self, at: float, metrics: Mapping[str, Any], rows: int | None = None) -> None:
        """Add a report.

        Args:
            at: Its time, in seconds.
            metrics: Its metrics.
            rows: How many rows of its datasets the worker has read so far.
        """
        self._reports += 1
        counts: dict[str, float] = {"reports": self._reports}
        if rows is not None:
            counts["rows"] = rows
        for name, unit in _COUNTERS.items():
            value = metrics.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                counts.setdefault(unit, value)
        self._window.append((at, counts))

    def per_second(self) -> dict[str, float]:
        """Return the current rates, by unit."""
        if len(self._window) < 2:
            return {}
        (began, first), (ended, last) = self._window[0], self._window[-1]
        if ended <= began:
            return {}
        # A counter that decreases does not count over the whole run, or has started again.
        return {
            unit: (last[unit] - first[unit]) / (ended - began)
            for unit in _UNITS
            if last.get(unit) and unit in first and last[unit] >= first[unit]
        }


def combine(rates: list[dict[str, float]]) -> dict[str, float]:
    """Return the rates of a run: rows, samples and tokens of its workers add up; steps and reports do not."""
    found: dict[str, float] = {}
    for unit in _UNITS:
        values = [each[unit] for each in rates if unit in each]
        if values:
            found[unit] = max(values) if unit in ("reports", "steps") else sum(values)
    return found


@dataclass
class RunProgress:
    """The progress of a run.

    Attributes:
        name: The name of the run.
        state: What the run is doing now.
        failures: How many attempts have failed.
        checkpoint: The name of the latest complete checkpoint.
        storing: The name of the latest checkpoint that is being stored.
        lost: How many checkpoints could not be stored.
        reports: The number of reports of each worker.
        metrics: The last metrics of each worker.
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

    def attempt_started(self) -> None:
        """A new group of workers starts: the rates count from zero."""
        self._rates.clear()

    def reported(
        self, rank: int, metrics: dict[str, Any], storing: str | None = None, rows: int | None = None
    ) -> None:
        """A worker has reported.

        Args:
            rank: The worker.
            metrics: Its metrics.
            storing: The checkpoint of which it stores a part.
            rows: How many rows of its datasets it has read so far.
        """
        self.reports[rank] = self.reports.get(rank, 0) + 1
        self.metrics[rank] = metrics
        self.storing = storing or self.storing
        self._rates.setdefault(rank, Rates()).add(time.perf_counter(), metrics, rows)

    def lines(self) -> Any:
        """Return the current lines for the terminal."""
        from rich.console import Group
        from rich.text import Text

        title = Text(no_wrap=True, overflow="ellipsis")
        title.append(self.name, style="bold")
        title.append(f"  {self.state}  {_format_duration(time.perf_counter() - self.begun)}")
        title.append(f"  {self._format_checkpoints()}")
        if self.failures:
            title.append(f"  failures: {self.failures}", style="red")
        return Group(title, self._table()) if self.reports else title

    def _format_checkpoints(self) -> str:
        text = f"checkpoint: {self.checkpoint or 'none yet'}"
        if self.storing is not None and self.storing != self.checkpoint:
            text += f", storing {self.storing}"
        return text + (f", {self.lost} lost" if self.lost else "")

    def _table(self) -> Any:
        from rich.table import Table

        # Copies, because another thread draws while workers report.
        last = dict(self.metrics)
        rates = {rank: each.per_second() for rank, each in list(self._rates.items())}
        names = list(dict.fromkeys(name for each in last.values() for name in each))[:_MAX_METRICS]
        each_rank = os.environ.get(_live.SWITCH) == _EACH_RANK
        total = combine(list(rates.values()))
        units = [unit for unit in total if unit != "reports" or "steps" not in total]
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("rank",) * each_rank + ("reports", *names, *(f"{unit}/s" for unit in units)):
            # Wide enough for most values, so that columns do not move with each report.
            table.add_column(column, justify="right", no_wrap=True, min_width=7 if column in names else None)
        ranks = sorted(last)
        for rank in ranks if each_rank else ranks[:1]:
            cells = [str(rank)] if each_rank else []
            shown = rates.get(rank, {}) if each_rank else total
            cells += [str(self.reports[rank]), *(_format_metric(last[rank].get(name, "")) for name in names)]
            table.add_row(*cells, *(_format_rate(shown[unit]) if unit in shown else "" for unit in units))
        if each_rank and len(ranks) > 1 and units:
            blank = [""] * (1 + len(names))
            table.add_row("all", *blank, *(_format_rate(total[unit]) for unit in units), style="bold")
        return table


def show(progress: RunProgress) -> _live.LiveLines | None:
    """Show a run on the terminal, if progress is wanted there."""
    return _live.LiveLines(progress.lines, "skate-train-progress") if _live.wanted() else None


def _format_metric(value: Any) -> Any:
    from rich.text import Text

    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else Text(str(value), style="bold red")
    text = str(value)
    return text if len(text) <= 20 else text[:19] + "…"


def _format_rate(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _format_duration(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"
