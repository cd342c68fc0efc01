"""The table on the terminal: with rich where it is installed, in plain text where it is not."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from typing import IO

from harness.figures import Results, RowResult, Samples, show, show_ratio
from harness.rows import PEERS

COLUMNS = ("row", "Skate", "Ray", "ratio", "bar (moonshot)", "peers", "limit", "verdict")

_COLOURS = {
    "moonshot": "bold green",
    "bar met": "green",
    "faster": "green",
    "below bar": "red",
    "slower": "red",
    "failed": "bold red",
    "not measured": "dim",
}


def cells(result: RowResult) -> list[str]:
    """Return the texts of one line, in the order of `COLUMNS`; a newline splits the lines of a cell."""
    row = result.row
    ratio = show_ratio(result.ratio)
    if result.ratio_range and result.ratio_range[0] != result.ratio_range[1]:
        low, high = (show_ratio(value) for value in result.ratio_range)
        ratio += f"\n{low}–{high}"
    bar = "–"
    if row.bar and row.bar.absolute:
        bar = f"{show(row.bar.need, row.unit)} ({show(row.bar.dream, row.unit)})"
    elif row.bar:
        bar = f"{show_ratio(row.bar.need)} ({show_ratio(row.bar.dream)})"
    return [
        row.title,
        _figure(result.systems.get("skate"), row.unit),
        _figure(result.systems.get("ray"), row.unit),
        ratio,
        bar,
        "\n".join(
            f"{label} {_median(result.systems[name], row.unit)}"
            for name, label in PEERS.items()
            if name in result.systems
        ),
        "\n".join(f"{label} {_median(samples, row.unit)}" for label, samples in result.limits.items()),
        result.verdict,
    ]


def print_table(results: Results, stream: IO[str] | None = None, *, rich: bool | None = None) -> None:
    """Print all rows.

    Args:
        stream: Where to; standard output by default.
        rich: Whether to draw with rich; by default, if it is installed.
    """
    stream = stream or sys.stdout
    if rich is None:
        rich = importlib.util.find_spec("rich") is not None
    if rich:
        _print_rich(results, stream)
    else:
        stream.write(plain(results))
    for result in results.rows:
        for name, samples in result.systems.items():
            if samples.error:
                print(f"{result.row.name} on {name}: {samples.error}", file=stream)
    print(results.summary(), file=stream)


def plain(results: Results) -> str:
    """Return the table as text, one line a row."""
    lines = [list(COLUMNS)] + [[cell.replace("\n", "; ") for cell in cells(r)] for r in results.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def _print_rich(results: Results, stream: IO[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Skate beside Ray: median of each, ± half the range", show_lines=True)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in ("Skate", "Ray", "ratio") else "left", no_wrap=True)
    for result in results.rows:
        *texts, verdict = cells(result)
        table.add_row(*texts, f"[{_COLOURS[verdict]}]{verdict}[/]")
    # In a file or a pipe there is no width to fit into; cutting figures off would help nobody.
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    Console(file=stream, width=max(width, 170)).print(table)


def _figure(samples: Samples | None, unit: str) -> str:
    if samples is None:
        return "–"
    text = _median(samples, unit)
    return f"{text}\n±{samples.spread:.0%}" if len(samples.values) > 1 and not samples.error else text


def _median(samples: Samples, unit: str) -> str:
    return "failed" if samples.error else show(samples.median, unit)
