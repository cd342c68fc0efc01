"""Progress in a notebook: one output of the cell, which is updated in place."""

from __future__ import annotations

import contextvars
from typing import Any

from skate._api.progress.view import Bar, Table, View, format_duration
from skate._base.html_tables import escape

_CELL = "text-align:{};padding:0 0.8em 0 0"


class NotebookOutput:
    """One output of the running cell.

    Create it in the thread that runs the cell: the output belongs to the cell of this context. Another thread may show
    and update it.
    """

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self._handle: Any = None

    def show(self, view: View) -> None:
        """Replace the view."""
        self._publish({"text/html": to_html(view), "text/plain": view.line()})

    def clear(self) -> None:
        """Clear the output."""
        if self._handle is not None:
            self._publish({"text/html": "", "text/plain": ""})

    def _publish(self, content: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = self._context.run(display, content, raw=True, display_id=True)
        else:
            self._context.run(self._handle.update, content, raw=True)


def to_html(view: View) -> str:
    """Return a view as HTML."""
    facts = "".join(f" &nbsp;{escape(fact)}" for fact in view.facts)
    alerts = "".join(f' &nbsp;<span style="color:#c00">{escape(alert)}</span>' for alert in view.alerts)
    parts = [f"<div><b>{escape(view.title)}</b> &nbsp;{format_duration(view.seconds)}{facts}{alerts}</div>"]
    if view.bar is not None:
        parts.append(_bar(view.bar))
    if view.table is not None and view.table.rows:
        parts.append(_table(view.table))
    parts += [f"<div>{escape(line)}</div>" for line in view.footer.splitlines()]
    return "".join(parts)


def _bar(bar: Bar) -> str:
    text = escape(bar.text())
    if bar.share is None:
        return f"<div>{text}</div>"
    return f'<div><progress value="{bar.share:.4f}" max="1"></progress> {bar.share:.0%} &nbsp;{text}</div>'


def _table(table: Table) -> str:
    styles = [_CELL.format("right" if column.is_number else "left") for column in table.columns]
    head = "".join(
        f'<th style="{style}">{escape(column.title)}</th>'
        for style, column in zip(styles, table.columns, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(f'<td style="{s}">{escape(cell)}</td>' for s, cell in zip(styles, row, strict=True))
        + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
