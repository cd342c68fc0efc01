"""The text and the HTML of a dataset: a table of its columns and materialized rows, or its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from skate._api.html_tables import facts_html, table_html
from skate.data._block import rows as row_blocks
from skate.data._exec.exchanges import split_items
from skate.data._exec.items import Item, fetch_rows
from skate.data._plan import estimates, nodes
from skate.data._plan.schemas import infer_schema
from skate.data._schema import type_text

_END_ROWS = 5  # number of rows shown of the beginning and of the end
_MAX_WIDTH = 40  # characters of a value


def plan_text(node: nodes.Node, kind: str, name: str | None) -> str:
    """Return the operations of a plan, the last one first, and below them their source.

    Args:
        node: The plan, whose schema is unknown.
        kind: The class name of the dataset.
        name: The name of the dataset.
    """
    titles = []
    while len(node.inputs) == 1:
        titles.append(node.title)
        node = node.inputs[0]
    schema, rows = None, None
    if node.inputs:
        titles.append(node.title)
    else:
        schema, rows = infer_schema(node), estimates.row_count(node)
    columns = "Unknown schema"
    if schema is not None:
        columns = "{" + ", ".join(f"{field.name}: {type_text(field.type)}" for field in schema) + "}"
    named = "" if name is None else f"name={name}, "
    lines = [*titles, f"{kind}({named}num_rows={'?' if rows is None else rows}, schema={columns})"]
    return "\n".join(f"{'   ' * (depth - 1)}+- {line}" if depth else line for depth, line in enumerate(lines))


def table_text(schema: pa.Schema, rows: int | None, items: Sequence[Item] | None) -> str:
    """Return a table of columns and rows.

    Args:
        schema: The columns.
        rows: Number of rows; None if it is unknown.
        items: The rows of a materialized dataset.
    """
    head = [[name, "---", type_text(schema.field(name).type)] for name in schema.names]
    shown: list[list[str]] = []
    if items is None:
        note = "(Dataset isn't materialized)"
    else:
        shown, count = _shown(schema, items, rows or 0)
        note = f"(Showing {count} of {rows} rows)"
    columns = [
        [_short(text) for text in (*top, *(row[place] for row in shown))] for place, top in enumerate(head)
    ]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        f"shape: ({'?' if rows is None else f'{rows:,}'}, {len(head)})",
        _rule("╭", "─", "┬", "╮", widths),
        *(_line([column[place] for column in columns], widths) for place in range(3)),
    ]
    if items is not None:
        lines.append(_rule("╞", "═", "╪", "╡", widths))
        lines += [_line([column[3 + place] for column in columns], widths) for place in range(len(shown))]
    return "\n".join([*lines, _rule("╰", "─", "┴", "╯", widths), note])


def table_as_html(schema: pa.Schema, rows: int | None, items: Sequence[Item] | None, name: str | None) -> str:
    """Return a table of columns and rows as HTML.

    Args:
        schema: The columns.
        rows: Number of rows; None if it is unknown.
        items: The rows of a materialized dataset.
        name: The name of the dataset.
    """
    shown: list[list[str]] = []
    note = "not materialized"
    if items is not None:
        shown, count = _shown(schema, items, rows or 0)
        note = f"{count:,} of {rows:,} rows"
    titles = [f"{field.name}\n{type_text(field.type)}" for field in schema]
    cells = [[_short(text) for text in row] for row in shown]
    facts = {"name": name, "rows": None if rows is None else f"{rows:,}", "columns": len(titles)}
    return facts_html("Dataset", facts, table_html(titles, cells, note=note))


def _shown(schema: pa.Schema, items: Sequence[Item], rows: int) -> tuple[list[list[str]], int]:
    """Return the texts of the shown rows, and their number."""
    if rows <= 2 * _END_ROWS:
        found = _texts(schema, items)
        return found, len(found)
    first, _, last = split_items(items, [_END_ROWS, rows - _END_ROWS, rows])
    return [*_texts(schema, first), ["…"] * len(schema.names), *_texts(schema, last)], 2 * _END_ROWS


def _texts(schema: pa.Schema, items: Sequence[Item]) -> list[list[str]]:
    found = [row for item in items for row in row_blocks.to_rows(fetch_rows(item))]
    return [[_text(row.get(name)) for name in schema.names] for row in found]


def _text(value: Any) -> str:
    return " ".join(str(value).split())


def _short(text: str) -> str:
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…"


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "│ " + " ┆ ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)) + " │"


def _rule(left: str, dash: str, between: str, right: str, widths: Sequence[int]) -> str:
    return left + between.join(dash * (width + 2) for width in widths) + right
