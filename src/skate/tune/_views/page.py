"""The HTML page of a report: one file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skate.air import _optional

if TYPE_CHECKING:
    from skate.tune._views.report import Report

_STYLE = """
:root { color-scheme: light dark;
  --text: #1f2933; --muted: #5f6b7a; --line: #d9dee5; --back: #ffffff; --card: #f7f9fb; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e7eb; --muted: #9aa5b1; --line: #3a424d; --back: #14171c; --card: #1b1f26; }
  .js-plotly-plot text:not(.hoverlayer text) { fill: #e4e7eb !important; }
}
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
p.note { color: var(--muted); margin: .2rem 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.summary th { font-weight: 600; white-space: nowrap; padding-right: 1.5rem; }
.summary td { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.wide th, .wide td { white-space: nowrap; padding-right: 1.2rem; }
tr.best td { font-weight: 600; }
pre { background: var(--card); border: 1px solid var(--line); padding: .6rem; white-space: pre-wrap;
  overflow-wrap: anywhere; margin: .2rem 0 1rem; }
"""

_CLEAR = "rgba(0,0,0,0)"
_GRID = "rgba(128,128,128,0.25)"
_HEIGHTS = {"learning_curves": 420, "history": 360, "parallel_coordinates": 420, "slices": 380}
_BAR_HEIGHT = 34  # of a parameter in the plot of importance

TITLES = {
    "learning_curves": "Learning curves",
    "history": "Best value so far",
    "parallel_coordinates": "Parameters",
    "importance": "Importance of parameters",
    "slices": "Single parameters",
}


def render(report: Report) -> str:
    """Return the page of a report."""
    script = _optional.load("plotly.offline", "ResultGrid.plot").get_plotlyjs()
    title = _text(f"{report.name}: {report.metric}")
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style><script>{script}</script></head><body>",
        f"<h1>{title}</h1>",
        _summary(report.summary),
        *(_section(report, name) for name in TITLES),
        *_trials(report),
        *_errors(report.errors),
        "</body></html>",
    ]
    return "\n".join(parts)


def in_frame(page: str) -> str:
    """Return a page as an element of another page, whose style and scripts it does not affect."""
    return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 48rem; border: 0"></iframe>'


def _text(value: object) -> str:
    return html.escape(str(value))


def _summary(rows: Mapping[str, str]) -> str:
    body = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>' for name, value in rows.items()
    )
    return f'<table class="summary">{body}</table>'


def _section(report: Report, name: str) -> str:
    figure = report.figures.get(name)
    if figure is None:
        why = report.missing.get(name)
        return "" if why is None else f"<h2>{TITLES[name]}</h2>{_note(why)}"
    # The titles of figures have their HTML escaped already.
    title = figure.layout.title.text or TITLES[name]
    notes = "".join(map(_note, report.notes.get(name, ())))
    return f"<h2>{title}</h2>{notes}{_embed(figure, name)}"


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>'


def _embed(figure: Any, name: str) -> str:
    """Return a figure as an element of the page, with its colors."""
    shown = type(figure)(figure)  # a copy, because the page has its own background and titles
    height = _HEIGHTS.get(name)
    if height is None:
        bars = max((len(trace.y) for trace in figure.data if trace.y is not None), default=1)
        height = 90 + _BAR_HEIGHT * bars
    shown.update_layout(
        title=None,
        width=None,
        height=height,
        margin={"l": 70, "r": 80 if name == "slices" else 20, "t": 30, "b": 50},
        paper_bgcolor=_CLEAR,
        plot_bgcolor=_CLEAR,
    )
    shown.update_xaxes(gridcolor=_GRID, zerolinecolor=_GRID, linecolor=_GRID)
    shown.update_yaxes(gridcolor=_GRID, zerolinecolor=_GRID, linecolor=_GRID, automargin=True)
    text: str = shown.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{name}",
        config={"displaylogo": False, "responsive": True},
    )
    return text


def _trials(report: Report) -> Iterable[str]:
    if not report.trials:
        return
    total = report.num_trials
    shown = len(report.trials)
    title = "Trials" if shown == total else f"Trials (best {shown} of {total})"
    header = "".join(f'<th scope="col">{_text(name)}</th>' for name in report.columns)
    yield f'<h2>{title}</h2><div class="wide"><table><thead><tr>{header}</tr></thead><tbody>'
    for number, row in enumerate(report.trials):
        cells = "".join(f"<td>{_text(row.get(name, ''))}</td>" for name in report.columns)
        yield f'<tr class="best">{cells}</tr>' if number == 0 and report.has_best else f"<tr>{cells}</tr>"
    yield "</tbody></table></div>"


def _errors(errors: Sequence[tuple[str, str]]) -> Iterable[str]:
    if not errors:
        return
    yield "<h2>Errors</h2>"
    for trial, text in errors:
        yield f"<div>{_text(trial)}</div><pre>{_text(text)}</pre>"
