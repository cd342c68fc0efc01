"""Plots of a run's metrics: one panel per metric, by report."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skate.train._reports.metrics import numbers

_COLUMNS = 3
_MAX_PANELS = 24
_MAX_RANKS = 8  # lines that remain distinguishable
_MAX_POINTS = 2000  # per line: more than the image has pixels
_SMOOTH_FROM = 100  # points: below that, each one is visible
_INK, _FAINT, _GRID, _RED = "#222222", "#777777", "#e6e6e6", "#d62728"

Line = tuple[list[int], list[float]]


def render(
    name: str, history: Iterable[Mapping[str, Any]], starts: Sequence[int], *, ranks: bool
) -> bytes | None:
    """Return the plots of a run as a PNG file; None if no metric was reported twice.

    Args:
        name: The name of the run.
        history: All reports of all workers, in order of arrival.
        starts: The number of the first report of each attempt.
        ranks: Draw a line per worker, instead of one for the lowest rank that has reported.

    Raises:
        ImportError: matplotlib is missing.
    """
    panels = {metric: lines for metric, lines in collect(history, ranks=ranks).items() if _is_curve(lines)}
    if not panels:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # without pyplot: no window, no global state
    from matplotlib.figure import Figure

    shown = list(panels.items())[:_MAX_PANELS]
    columns = min(_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(4.6 * columns, 2.9 * rows + 0.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    left_out = (
        f"   ({len(panels) - len(shown)} more metrics are not shown)" if len(panels) > len(shown) else ""
    )
    figure.suptitle(name + left_out, x=0.01, ha="left", fontsize=11, fontweight="bold", color=_INK)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, (metric, lines) in zip(axes.flat, shown, strict=False):
        _draw(axis, metric, lines, starts[1:])
    figure.supxlabel(_legend(panels, starts), x=0.01, ha="left", fontsize=8, color=_FAINT)
    out = io.BytesIO()
    figure.savefig(out, format="png", facecolor="white")
    return out.getvalue()


def collect(history: Iterable[Mapping[str, Any]], *, ranks: bool) -> dict[str, dict[int, Line]]:
    """Return the values of each metric by rank; if a report was repeated after a failure, the later one counts."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    for entry in history:
        for metric, value in numbers(entry["metrics"]).items():
            found.setdefault(metric, {}).setdefault(entry["rank"], {})[entry["report"]] = value
    lines: dict[str, dict[int, Line]] = {}
    for metric, by_rank in found.items():
        chosen = sorted(by_rank)[: _MAX_RANKS if ranks else 1]
        lines[metric] = {rank: _line(by_rank[rank]) for rank in chosen}
    return lines


def _line(values: Mapping[int, float]) -> Line:
    steps = sorted(values)
    stride = math.ceil(len(steps) / _MAX_POINTS)
    # From the end, to include the last value.
    steps = steps[::-1][::stride][::-1]
    return steps, [values[step] for step in steps]


def _is_curve(lines: Mapping[int, Line]) -> bool:
    return any(len(steps) > 1 for steps, _ in lines.values())


def _legend(panels: Mapping[str, Mapping[int, Line]], starts: Sequence[int]) -> str:
    parts = ["by report"]
    if len(starts) > 1:
        parts.append("dashed: workers restarted")
    values = (value for lines in panels.values() for _, line in lines.values() for value in line)
    if not all(map(math.isfinite, values)):
        parts.append("× not a number")
    return "   ·   ".join(parts)


def _draw(axis: Any, metric: str, lines: Mapping[int, Line], restarts: Sequence[int]) -> None:
    for number, (rank, (steps, values)) in enumerate(lines.items()):
        color, label = f"C{number}", f"rank {rank}"
        if len(steps) < _SMOOTH_FROM:
            axis.plot(steps, values, color=color, linewidth=1.6, marker=".", markersize=4, label=label)
        else:
            axis.plot(steps, values, color=color, linewidth=0.7, alpha=0.3)
            axis.plot(steps, _smooth(values), color=color, linewidth=1.6, label=label)
        if missing := [step for step, value in zip(steps, values, strict=True) if not math.isfinite(value)]:
            bottom = [0.03] * len(missing)
            axis.plot(missing, bottom, "x", color=_RED, markersize=5, transform=axis.get_xaxis_transform())
    for restart in restarts:
        axis.axvline(restart - 0.5, color=_FAINT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5)
    last = next(iter(lines.values()))[1][-1]
    axis.set_title(metric, loc="left", fontsize=10, color=_INK)
    axis.set_title(
        _format_number(last), loc="right", fontsize=10, color=_INK if math.isfinite(last) else _RED
    )
    axis.grid(visible=True, color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8, colors=_FAINT, length=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.xaxis.set_major_formatter(lambda value, _: _format_number(value, 6))
    axis.yaxis.set_major_formatter(lambda value, _: _format_number(value, 6))
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(_FAINT)
    axis.margins(x=0.02)
    if len(lines) > 1:
        axis.legend(fontsize=7, frameon=False, ncols=2)


def _smooth(values: Sequence[float]) -> list[float]:
    """Return a centered moving average, which does not lag behind the curve."""
    reach = max(2, len(values) // 80)
    sums, counts = [0.0], [0]
    for value in values:
        is_number = math.isfinite(value)
        sums.append(sums[-1] + (value if is_number else 0.0))
        counts.append(counts[-1] + is_number)
    out = []
    for index in range(len(values)):
        near = min(reach, index, len(values) - 1 - index)  # symmetric, also at the ends
        first, last = index - near, index + near + 1
        count = counts[last] - counts[first]
        out.append((sums[last] - sums[first]) / count if count else math.nan)
    return out


def _format_number(value: float, digits: int = 4) -> str:
    """Return a number in short form: 1234567 as 1.235M."""
    if not math.isfinite(value):
        return str(value)
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.{digits}g}{letter}"
    return f"{value:.{digits}g}"
