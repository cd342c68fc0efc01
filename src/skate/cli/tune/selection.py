"""Tables of `skate tune`: rows that options select, sort and save."""

from __future__ import annotations

import csv
import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from skate._base.suggestions import did_you_mean
from skate.cli.output import TABLE, counted, say, write_json, write_table

F = TypeVar("F", bound=Callable[..., Any])
Row = dict[str, Any]

_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_FILTER = re.compile(r"(?P<column>.+?)\s*(?P<operator><=|>=|==|!=|<|>|=)\s*(?P<value>.+)")
_FILES = (".csv", ".json", ".p", ".pickle", ".pkl")
_DIGITS = 6  # of numbers in tables


@dataclass(frozen=True)
class Selection:
    """The options that select, sort and save rows, as the command line has them."""

    sort: str | None
    output: str | None
    filters: tuple[str, ...]
    columns: str | None
    limit: int | None
    desc: bool


def selection_options(command: F) -> F:
    """Add the options of `Selection`."""
    for option in (
        click.option(
            "--desc",
            type=bool,
            is_flag=False,
            flag_value="true",
            default=False,
            help="Sort in descending order.",
        ),
        click.option("--limit", type=click.IntRange(min=0), help="The number of rows to show."),
        click.option("--columns", help="The columns to show, separated by commas."),
        click.option(
            "--filter",
            "filters",
            multiple=True,
            help="'COLUMN OPERATOR VALUE' with <, <=, ==, !=, >= or >. Repeatable.",
        ),
        click.option(
            "-o", "--output", metavar="FILE", help="Also save the rows, as .csv, .json or .pkl (for pandas)."
        ),
        click.option("--sort", help="The columns to sort by, separated by commas."),
    ):
        command = option(command)
    return command


def write_rows(what: str, rows: list[Row], usual: list[str], selection: Selection, format_: str) -> None:
    """Write and save the selected rows.

    Args:
        what: What they are, in the plural.
        rows: The rows.
        usual: The columns that a table has by default; JSON has all columns.
        selection: Which rows and columns to write.
        format_: The format.
    """
    if selection.output is not None and Path(selection.output).suffix.lower() not in _FILES:
        raise click.BadParameter(
            f"{selection.output!r} must end with .csv, .json or .pkl.", param_hint="--output"
        )
    known = list(dict.fromkeys([*usual, *(name for row in rows for name in row)]))
    tests = [parse_filter(text) for text in selection.filters]
    order, chosen = _names(selection.sort), _names(selection.columns)
    for name in (*order, *chosen, *(column for column, _, _ in tests)):
        if rows and name not in known:
            raise click.ClickException(
                f"There is no column {name!r}; the columns are {', '.join(known)}.{did_you_mean(name, known)}"
            )
    rows = [row for row in rows if all(_passes(row, *test) for test in tests)]
    for name in reversed(order):  # sorting is stable, so the first column comes last
        rows = _sort(rows, name, descending=selection.desc)
    rows = rows[: selection.limit]
    if format_ != TABLE:
        write_json([{name: row.get(name) for name in chosen or known} for row in rows])
    elif rows:
        shown = chosen or usual
        write_table(shown, [[round_number(row.get(name)) for name in shown] for row in rows])
    else:
        say(f"There are no {what}{' that match' if tests else ''}.")
    if selection.output is not None:
        _save(rows, chosen or known, Path(selection.output))
        say(f"Wrote {counted(len(rows), 'row')} to {selection.output}.")


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def parse_filter(text: str) -> tuple[str, str, str]:
    """Return the column, the operator and the value of a filter.

    >>> parse_filter("config/lr <= 0.1")
    ('config/lr', '<=', '0.1')
    """
    found = _FILTER.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not a filter: write 'COLUMN OPERATOR VALUE', such as 'loss < 0.5'."
        )
    return found["column"], found["operator"], found["value"]


def _passes(row: Row, column: str, symbol: str, value: str) -> bool:
    """Compare two values: as numbers if both are, otherwise as text. A row without a value passes no filter."""
    found = row.get(column)
    if found is None:
        return False
    compare = _COMPARE[symbol]
    try:
        return bool(compare(float(found), float(value)))
    except (TypeError, ValueError):
        return bool(compare(str(found).lower(), value.lower()))


def _sort(rows: Sequence[Row], column: str, *, descending: bool) -> list[Row]:
    """Sort rows by a column, numbers before texts; those without a value, or with NaN, come last."""
    keys = {id(row): _sort_key(row.get(column)) for row in rows}
    present = [row for row in rows if keys[id(row)] is not None]
    absent = [row for row in rows if keys[id(row)] is None]
    return [*sorted(present, key=lambda row: keys[id(row)] or (0, 0.0, ""), reverse=descending), *absent]


def _sort_key(value: Any) -> tuple[int, float, str] | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 1, 0.0, str(value)
    return None if math.isnan(number) else (0, number, "")


def round_number(value: Any) -> Any:
    """Return a float as a short text, and other values unchanged."""
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else value


def _save(rows: Sequence[Row], columns: Sequence[str], path: Path) -> None:
    table = [{name: row.get(name) for name in columns} for row in rows]
    kind = path.suffix.lower()
    try:
        if kind == ".csv":
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows(table)
        elif kind == ".json":
            path.write_text(json.dumps(table, indent=2, default=str), encoding="utf-8")
        else:
            from skate.air import _optional

            _optional.load("pandas", "--output with a pickle").DataFrame(table).to_pickle(path)
    except OSError as error:
        raise click.ClickException(f"Cannot write {path}: {error.strerror}.") from error
    except ImportError as error:
        raise click.ClickException(str(error)) from error
