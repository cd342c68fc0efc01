"""What commands write: tables or JSON to standard output, words to standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

TABLE, JSON, YAML = "table", "json", "yaml"


def format_option(command: F) -> F:
    """Add `--format`."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice([TABLE, JSON, YAML]),
        default=TABLE,
        show_default=True,
        help="How to write: for eyes, or for programs. JSON is YAML too, so `yaml` writes JSON.",
    )(command)


def address_option(command: F) -> F:
    """Add `--address`."""
    return click.option(
        "--address",
        envvar=["SKATE_ADDRESS", "RAY_ADDRESS"],
        default="auto",
        show_default=True,
        help="The node to ask: `auto`, or a session's folder.",
    )(command)


def say(text: str) -> None:
    """Tell the user something that is no data."""
    click.echo(text, err=True)


def write_json(value: object) -> None:
    """Write a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def write_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows under their columns' names."""
    lines = [[name.upper() for name in columns], *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def write_block(row: dict[str, Any]) -> None:
    """Write one row with a column to a line."""
    width = max(map(len, row))
    for name, value in row.items():
        click.echo(f"{name.ljust(width)}  {cell(value)}")


def cell(value: Any) -> str:
    """Return a value as it stands in a table."""
    if value is None or value == "":
        return "-"
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str) if value else "-"
    return str(value).replace("\n", " ")


def counted(number: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
