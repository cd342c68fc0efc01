"""The progress of a run: reported metrics, rates, and checkpoints."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skate._api import progress

_MAX_METRICS = 6  # columns
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
        """Handle the start of a group of workers: the rates count from zero."""
        self._rates.clear()

    def reported(
        self, rank: int, metrics: dict[str, Any], storing: str | None = None, rows: int | None = None
    ) -> None:
        """Handle a report.

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

    def view(self) -> progress.View:
        """Return the current state. It is called in another thread while workers report."""
        last = dict(self.metrics)
        table = self._table(last) if last else None
        alerts = [f"failures: {self.failures}"] if self.failures else []
        first = last[min(last)] if last else {}
        alerts += [f"{name} is {value}" for name, value in first.items() if _is_not_finite(value)]
        return progress.View(
            self.name,
            time.perf_counter() - self.begun,
            facts=(self.state, self._format_checkpoints()),
            alerts=tuple(alerts),
            table=table,
            summary="" if table is None else ", ".join(_pairs(table)),
        )

    def _format_checkpoints(self) -> str:
        text = f"checkpoint: {self.checkpoint or 'none yet'}"
        if self.storing is not None and self.storing != self.checkpoint:
            text += f", storing {self.storing}"
        return text + (f", {self.lost} lost" if self.lost else "")

    def _table(self, last: Mapping[int, Mapping[str, Any]]) -> progress.Table:
        rates = {rank: each.per_second() for rank, each in list(self._rates.items())}
        names = list(dict.fromkeys(name for each in last.values() for name in each))[:_MAX_METRICS]
        each_rank = progress.shows_each_rank()
        total = combine(list(rates.values()))
        units = [unit for unit in total if unit != "reports" or "steps" not in total]
        titles = ("rank",) * each_rank + ("reports", *names, *(f"{unit}/s" for unit in units))
        # Wide enough for most values, so that columns do not move with each report.
        columns = tuple(progress.Column(title, min_width=7 if title in names else 0) for title in titles)
        ranks = sorted(last)
        rows = []
        for rank in ranks if each_rank else ranks[:1]:
            cells = [str(rank)] if each_rank else []
            shown = rates.get(rank, {}) if each_rank else total
            cells += [str(self.reports[rank]), *(_format_metric(last[rank].get(name, "")) for name in names)]
            rows.append(
                (*cells, *(progress.format_rate(shown[unit]) if unit in shown else "" for unit in units))
            )
        if each_rank and len(ranks) > 1 and units:
            blank = [""] * (1 + len(names))
            rows.append(("all", *blank, *(progress.format_rate(total[unit]) for unit in units)))
        return progress.Table(columns, tuple(rows))


def _pairs(table: progress.Table) -> list[str]:
    """Return title and value of each column of the first row."""
    return [
        f"{value} {column.title}" if column.title.endswith("/s") else f"{column.title} {value}"
        for column, value in zip(table.columns, table.rows[0], strict=True)
        if value
    ]


def show(run: RunProgress) -> progress.Shown | None:
    """Show a run to the user, if progress is wanted."""
    return progress.show(run.view, logs_end=False)  # `logs.py` logs the end


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _format_metric(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 20 else text[:19] + "…"
