"""The output of commands: tables or JSON on standard output, messages on standard error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from skate._api.variables import PREFIXES
from skate.cli import candidates

C = TypeVar("C", bound=click.Command)
F = TypeVar("F", bound=Callable[..., Any])

TABLE, JSON, YAML = "table", "json", "yaml"
RAY = "ray"  # the name of Ray's command line


def format_option(command: F) -> F:
    """Add `--format`."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice([TABLE, JSON, YAML]),
        default=TABLE,
        show_default=True,
        help="The output format. JSON is valid YAML, so `yaml` writes JSON.",
    )(command)


def address_option(command: F) -> F:
    """Add `--address`."""
    return _address_option("ADDRESS")(command)


def job_address_option(command: F) -> F:
    """Add `--address` for commands of jobs, whose address has a variable of its own too."""
    return _address_option("API_SERVER_ADDRESS", "ADDRESS")(command)


def _address_option(*names: str) -> Callable[[F], F]:
    return click.option(
        "--address",
        envvar=[prefix + name for name in names for prefix in PREFIXES],
        default="auto",
        show_default=True,
        shell_complete=candidates.addresses,
        help="The node: `auto`, the folder of a session, or for some commands the URL of a dashboard.",
    )


def say(text: str) -> None:
    """Write a message for the user to standard error."""
    click.echo(text, err=True)


def runs_as_ray() -> bool:
    """Return whether the command line runs under the name of Ray's, `ray`."""
    context = click.get_current_context(silent=True)
    name = context.find_root().info_name if context else None
    return name is not None and name.partition(" ")[0] == RAY


def under_rays_name(command: C) -> C:
    """Return a copy of a command that runs as part of `ray`, also without the group that contains it."""
    renamed = copy.copy(command)
    renamed.name = f"{RAY} {command.name}"
    return renamed


def tell(text: str) -> None:
    """Write a message that Ray writes to standard output: there if run as `ray`, else to standard error."""
    click.echo(text, err=not runs_as_ray())


def write_json(value: object) -> None:
    """Write a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def write_yaml(value: object) -> None:
    """Write a value as a document of YAML; it is JSON, which is valid YAML."""
    click.echo(f"---\n{json.dumps(value, indent=2, default=str)}\n...")


def write_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as a table with a header."""
    lines = [[name.upper() for name in columns], *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def write_block(row: dict[str, Any]) -> None:
    """Write one row, with one line per column."""
    width = max(map(len, row))
    for name, value in row.items():
        click.echo(f"{name.ljust(width)}  {cell(value)}")


def write_row(row: dict[str, Any], format_: str) -> None:
    """Write one row in the format that the user has chosen."""
    if format_ == TABLE:
        write_block(row)
    else:
        write_json(row)


def cell(value: Any) -> str:
    """Return a value as the text of a table cell."""
    if value is None or value == "":
        return "-"
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str) if value else "-"
    return str(value).replace("\n", " ")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
