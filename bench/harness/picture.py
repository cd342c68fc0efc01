"""The picture: one horizontal bar a row, as long as the ratio to Ray, with the bar to reach marked on it."""

from __future__ import annotations

from pathlib import Path

from harness.figures import Results, show_ratio
from harness.rows import PEERS

_COLOURS = {
    "moonshot": "#1a7f37",
    "bar met": "#4ac26b",
    "faster": "#8ab4d8",
    "below bar": "#d1615d",
    "slower": "#d1615d",
}
_GREY = "#777777"
_MARKERS = dict(zip(PEERS, "os^DvPX<>ph*", strict=True))


def draw(results: Results, path: Path) -> bool:
    """Draw the rows that have a ratio; return whether there was anything to draw.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = [result for result in results.rows if result.ratio is not None]
    if not rows:
        return False
    figure = Figure(figsize=(10, 1.6 + 0.38 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for at, result in enumerate(rows):
        ratio = result.ratio
        assert ratio is not None
        # On a log scale a bar has to start somewhere: at 1×, as fast as Ray.
        axes.barh(at, ratio - 1, left=1, height=0.6, color=_COLOURS[result.verdict], zorder=2)
        axes.annotate(
            f" {show_ratio(ratio)} ",
            (ratio, at),
            va="center",
            ha="left" if ratio >= 1 else "right",
            fontsize=8,
        )
        marks = result.row.bar_ratios(result.median("ray"))
        if marks:
            axes.plot([marks[0]] * 2, [at - 0.42, at + 0.42], color="black", linewidth=2, zorder=4)
            axes.plot([marks[1]], [at], marker="*", color="black", markersize=6, zorder=4)
        for peer, marker in _MARKERS.items():
            peer_ratio = result.ratio_to_ray(peer)
            if peer_ratio is not None:
                axes.plot([peer_ratio], [at + 0.38], marker=marker, color=_GREY, markersize=4, zorder=3)
    axes.set_yticks(range(len(rows)), [result.row.title for result in rows], fontsize=9)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.axvline(1, color="black", linewidth=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.grid(axis="x", color="#dddddd", zorder=0)
    axes.set_xlabel("times better than Ray, same program, same machine, same run")
    axes.set_title(_title(results), fontsize=10)
    figure.legend(
        handles=[
            Line2D([], [], color="black", linewidth=2, label="bar"),
            Line2D([], [], color="black", marker="*", linestyle="", label="moonshot"),
            *(
                Line2D([], [], color=_GREY, marker=marker, markersize=4, linestyle="", label=PEERS[peer])
                for peer, marker in _MARKERS.items()
            ),
            *(Patch(color=_COLOURS[name], label=name) for name in ("moonshot", "bar met", "below bar")),
            Patch(color=_COLOURS["faster"], label="faster (no bar set)"),
        ],
        fontsize=7,
        loc="outside lower center",
        ncols=9,
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    return True


def _title(results: Results) -> str:
    machine, settings = results.machine, results.settings
    return (
        f"Skate {settings.get('skate')} beside Ray {settings.get('ray')}: {machine.get('cpus')} CPUs "
        f"({machine.get('architecture')}), Python {settings.get('python')}, {settings.get('rounds')} rounds"
    )
