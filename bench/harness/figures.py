"""What was measured: repeated figures, their middle and spread, and the results of a whole run."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.rows import PEERS, Row, Verdict


@dataclass
class Samples:
    """One system's figures for one row, in the order they were taken."""

    values: list[float] = field(default_factory=list)
    error: str | None = None

    @property
    def median(self) -> float | None:
        """Return the middle figure, or None when there is none."""
        return statistics.median(self.values) if self.values and self.error is None else None

    @property
    def spread(self) -> float:
        """Return half the distance from the smallest to the largest, as a share of the median."""
        middle = self.median
        return (max(self.values) - min(self.values)) / 2 / middle if middle else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return what goes into results.json."""
        return {"median": self.median, "spread": self.spread, "samples": self.values, "error": self.error}


@dataclass
class RowResult:
    """All figures for one row."""

    row: Row
    systems: dict[str, Samples] = field(default_factory=dict)
    limits: dict[str, Samples] = field(default_factory=dict)

    def median(self, system: str) -> float | None:
        """Return a system's middle figure, if it has one."""
        samples = self.systems.get(system)
        return samples.median if samples else None

    @property
    def ratio(self) -> float | None:
        """Return how many times better Skate's median is than Ray's."""
        return self.ratio_to_ray("skate")

    def ratio_to_ray(self, system: str) -> float | None:
        """Return how many times better a system's median is than Ray's."""
        theirs, ray = self.median(system), self.median("ray")
        return self.row.ratio(theirs, ray) if theirs and ray else None

    @property
    def ratio_range(self) -> tuple[float, float] | None:
        """Return the worst and the best ratio among the rounds, each of which ran both systems."""
        if self.ratio is None:
            return None
        pairs = zip(self.systems["skate"].values, self.systems["ray"].values, strict=False)
        ratios = [self.row.ratio(skate, ray) for skate, ray in pairs]
        return min(ratios), max(ratios)

    @property
    def verdict(self) -> Verdict:
        """Judge Skate on this row."""
        if "skate" in self.systems and self.systems["skate"].error:
            return "failed"
        return self.row.verdict(self.median("skate"), self.median("ray"))

    def as_dict(self) -> dict[str, Any]:
        """Return what goes into results.json."""
        bar = self.row.bar
        return {
            "row": self.row.name,
            "title": self.row.title,
            "unit": self.row.unit,
            "smaller_is_better": self.row.smaller_is_better,
            "skate": self.systems["skate"].as_dict() if "skate" in self.systems else None,
            "ray": self.systems["ray"].as_dict() if "ray" in self.systems else None,
            "ratio": self.ratio,
            "ratio_range": self.ratio_range,
            "bar": {"need": bar.need, "moonshot": bar.dream, "absolute": bar.absolute} if bar else None,
            "verdict": self.verdict,
            "peers": {name: self.systems[name].as_dict() for name in PEERS if name in self.systems},
            "limits": {name: samples.as_dict() for name, samples in self.limits.items()},
        }


@dataclass
class Results:
    """A whole run: where, how, and every row."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[RowResult] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return what goes into results.json."""
        return {
            "machine": self.machine,
            "settings": self.settings,
            "rows": [result.as_dict() for result in self.rows],
        }

    def write(self, path: Path) -> None:
        """Write results.json."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_dict(), indent=2) + "\n")

    def summary(self) -> str:
        """Return one sentence on how the rows with a bar came out."""
        verdicts = [result.verdict for result in self.rows if result.row.bar is not None]
        met = sum(verdict in ("bar met", "moonshot") for verdict in verdicts)
        moonshots = verdicts.count("moonshot")
        return f"{met} of {len(verdicts)} rows with a bar reach it, {moonshots} of them the moonshot"


def show(value: float | None, unit: str) -> str:
    """Write a figure for people: `1,350 /s`, `0.21 s`, `14.2 GB/s`."""
    if value is None:
        return "–"
    if value >= 100:
        digits = f"{value:,.0f}"
    elif value >= 10:
        digits = f"{value:.1f}"
    elif value >= 0.1:
        digits = f"{value:.2f}"
    else:
        digits = f"{value:.2g}"
    return f"{digits} {unit}"


def show_ratio(value: float | None) -> str:
    """Write a ratio for people: `21×`, `1.1×`."""
    if value is None:
        return "–"
    return f"{value:,.0f}×" if value >= 20 else f"{value:.3g}×"
