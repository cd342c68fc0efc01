"""How fast a run is: from what workers count and report, and from the rows that they have read."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

_WINDOW = 20  # reports over which a rate is taken: long enough to be steady, short enough to be of now
# Metrics that count on over the whole run, and what they count.
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
KINDS = ("reports", "steps", "rows", "samples", "tokens")


class Rates:
    """The rates of one worker."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, float]]] = deque(maxlen=_WINDOW)
        self._reports = 0

    def heard(self, at: float, metrics: Mapping[str, Any], rows: int | None = None) -> None:
        """The worker has reported.

        Args:
            at: When, in seconds.
            metrics: What it reported.
            rows: How many rows of its datasets it has read so far.
        """
        self._reports += 1
        counted: dict[str, float] = {"reports": self._reports}
        if rows is not None:
            counted["rows"] = rows
        for name, kind in _COUNTERS.items():
            value = metrics.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                counted.setdefault(kind, value)
        self._seen.append((at, counted))

    def now(self) -> dict[str, float]:
        """Return what is done in a second, by what is counted."""
        if len(self._seen) < 2:
            return {}
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        if ended <= began:
            return {}
        # What goes down is no count of the whole run: of one step, or it began anew.
        return {
            kind: (last[kind] - first[kind]) / (ended - began)
            for kind in KINDS
            if last.get(kind) and kind in first and last[kind] >= first[kind]
        }


def together(rates: list[dict[str, float]]) -> dict[str, float]:
    """Return the rates of several workers: their rows, samples and tokens add up; steps they take side by side."""
    found: dict[str, float] = {}
    for kind in KINDS:
        values = [each[kind] for each in rates if kind in each]
        if values:
            found[kind] = max(values) if kind in ("reports", "steps") else sum(values)
    return found
