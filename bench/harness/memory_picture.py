"""The picture of memory over time: what each system had while a dataset was taken slowly, and what it may have."""

from __future__ import annotations

from pathlib import Path

from harness.footprint import Footprint
from harness.rows import Row

_NAMES = {"skate": ("Skate", "#1a7f37"), "ray": ("Ray", "#d1615d")}


def draw_memory(row: Row, footprints: dict[str, Footprint], path: Path) -> None:
    """Draw a line for each system, and the bar of the row.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for system, footprint in footprints.items():
        name, colour = _NAMES[system]
        gigabytes = [value / 1e9 for value in footprint.bytes]
        axes.plot(
            footprint.seconds,
            gigabytes,
            color=colour,
            linewidth=1,
            label=f"{name}: at most {footprint.peak / 1e9:.2f} GB",
        )
    assert row.bar is not None
    axes.axhline(row.bar.need / 1e3, color="black", linestyle="--", linewidth=1, label="bar")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("memory of all processes, GB")
    axes.set_title(row.title, fontsize=10)
    axes.grid(color="#dddddd")
    axes.legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
