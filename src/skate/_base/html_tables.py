"""HTML of objects in notebooks: a title, facts, and a table. All texts are escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

MAX_TEXT = 200  # characters of a value
_CELL = "text-align:left;padding:0 0.8em 0 0;vertical-align:top"


def facts_html(title: str, facts: Mapping[str, object], *parts: str) -> str:
    """Return a title and a list of facts.

    Args:
        title: The kind of object.
        facts: The values by name; those that are None are left out.
        *parts: HTML that follows.

    >>> facts_html("Point", {"x": "<1>", "y": None})
    '<div><b>Point</b> &nbsp;x: &lt;1&gt;</div>'
    """
    shown = "".join(
        f" &nbsp;{escape(name)}: {_shorten(value)}" for name, value in facts.items() if value is not None
    )
    return f"<div><b>{escape(title)}</b>{shown}{''.join(parts)}</div>"


def table_html(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, bold: Collection[int] = (), note: str = ""
) -> str:
    """Return a table.

    Args:
        columns: The titles; a line break in one starts a second line.
        rows: The values.
        bold: The numbers of the rows to emphasize.
        note: A text below the table.
    """
    head = "".join(
        f'<th style="{_CELL}">{_shorten(column).replace(chr(10), "<br>")}</th>' for column in columns
    )
    lines = []
    for number, row in enumerate(rows):
        weight = ";font-weight:bold" if number in bold else ""
        cells = "".join(f'<td style="{_CELL}{weight}">{_shorten(value)}</td>' for value in row)
        lines.append(f"<tr>{cells}</tr>")
    below = f"<div>{escape(note)}</div>" if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{below}"


def text_html(text: str) -> str:
    """Return a text with its line breaks and spaces."""
    return f"<pre>{escape(text)}</pre>"


def escape(text: str) -> str:
    """Return a text with the characters that HTML reserves replaced."""
    import html  # it loads the names of all characters

    return html.escape(text)


def _shorten(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
    return escape(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")
