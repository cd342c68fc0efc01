"""The content of a progress display: a title, facts, a bar and a table. Each display renders it in its own way."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """How much of the work is done.

    Attributes:
        done: The finished part, in units.
        total: The whole work, in units; None if it is not known.
        unit: The name of the units, such as "rows".
        rate: Units per second; None if it is not known.
    """

    done: float
    total: float | None = None
    unit: str = ""
    rate: float | None = None

    @property
    def share(self) -> float | None:
        """The finished fraction, from 0 to 1; None without a total."""
        if not self.total:
            return None
        return min(1.0, max(0.0, self.done / self.total))

    @property
    def seconds_left(self) -> float | None:
        """The estimated remaining time in seconds; None if it is not known."""
        if self.total is None or not self.rate or self.done >= self.total:
            return None
        return (self.total - self.done) / self.rate

    def count(self) -> str:
        """Return how much is done: "4,700 of 10,000 rows"."""
        of = "" if self.total is None else f" of {format_number(self.total)}"
        return f"{format_number(self.done)}{of} {self.unit}".rstrip()

    def text(self) -> str:
        """Return all numbers: "4,700 of 10,000 rows  940 rows/s  6s left"."""
        parts = [self.count()]
        if self.rate is not None:
            parts.append(f"{format_rate(self.rate)} {self.unit}/s")
        if self.seconds_left is not None:
            parts.append(f"{format_duration(self.seconds_left)} left")
        return "  ".join(parts)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: The text above it.
        is_number: Whether its values are aligned at the right and never shortened.
        min_width: The minimum width in characters, so that columns do not move with each value.
    """

    title: str
    is_number: bool = True
    min_width: int = 0


@dataclass(frozen=True)
class Table:
    """Rows of texts, one for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class View:
    """The state of some work.

    Attributes:
        title: The name of the work.
        seconds: Since its start.
        facts: Short texts that follow the title.
        alerts: Short texts that follow the facts, in red where there are colors.
        bar: How much is done.
        table: The parts of the work.
        footer: Lines below the table.
        summary: The content of table and footer as a short text, for a log.
    """

    title: str
    seconds: float
    facts: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    bar: Bar | None = None
    table: Table | None = None
    footer: str = ""
    summary: str = ""

    def line(self) -> str:
        """Return the view as one line of plain text."""
        bar = [] if self.bar is None else [self.bar.text().replace("  ", ", ")]
        if self.bar is not None and self.bar.share is not None:
            bar[0] += f" ({self.bar.share:.0%})"
        return _join(self.title, format_duration(self.seconds), *self.facts, *self.alerts, *bar, self.summary)

    def last_line(self) -> str:
        """Return the end of the work as one line of plain text."""
        bar = [] if self.bar is None else [self.bar.count()]
        return _join(
            self.title, f"ended after {format_duration(self.seconds)}", *self.alerts, *bar, self.summary
        )


def _join(title: str, *parts: str) -> str:
    text = f"{title}: " + ", ".join(part for part in parts if part)
    return " ".join(text.split())  # a name may have line breaks


def format_number(value: float) -> str:
    """Return a count with separators: 1,234,567.

    >>> format_number(1234567)
    '1,234,567'
    """
    return f"{value:,.0f}" if math.isfinite(value) else str(value)


def format_rate(value: float) -> str:
    """Return a rate with three digits.

    >>> format_rate(1.26e6), format_rate(19.23), format_rate(452.0)
    ('1.26M', '19.2', '452')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def format_duration(seconds: float) -> str:
    """Return a duration with its two largest units.

    >>> format_duration(64), format_duration(3723)
    ('1m 04s', '1h 02m')
    """
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"
