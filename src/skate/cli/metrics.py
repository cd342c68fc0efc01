"""`skate metrics`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

import click

from skate._api import nodes
from skate._api.observer import Observer
from skate.cli.output import JSON, TABLE, address_option, say, write_json, write_table
from skate.util import _session_metrics
from skate.util._metrics_export import export_name, exposition, quantiles
from skate.util._metrics_store import Series
from skate.util.metrics import PREFIX

TEXT = "text"


@click.command()
@click.option(
    "-f",
    "--filter",
    "filters",
    metavar="NAME",
    multiple=True,
    help="Only metrics whose names contain NAME, or match it if it has a `*`. Repeatable.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice([TEXT, JSON, TABLE]),
    default=TEXT,
    show_default=True,
    help="The output format; `text` is the format of Prometheus.",
)
@click.option("--grafana", is_flag=True, help="Write a dashboard for Grafana instead, which needs no node.")
@address_option
def metrics(filters: tuple[str, ...], format_: str, grafana: bool, address: str) -> None:
    """Write the metrics of the node, of all libraries and of your programs.

    The dashboard serves the same for Prometheus, at /metrics.
    """
    if grafana:
        click.echo(files("skate.dashboard").joinpath("grafana.json").read_text("utf-8"), nl=False)
        return
    with nodes.observe(address) as engine:
        found = _session_metrics.read_all(Observer(engine, lambda: None))
    if filters:
        found = [each for each in found if any(_matches(_name(each), text) for text in filters)]
    if format_ == JSON:
        write_json([_describe(each) for each in _sorted(found)])
    elif not found:
        say("No metric has such a name. See `skate metrics --format table`.")
    elif format_ == TABLE:
        write_table(["name", "kind", "tags", "value"], [_row(each) for each in _sorted(found)])
    else:
        click.echo(exposition(found, PREFIX), nl=False)


def _name(series: Series) -> str:
    return export_name(series.family, PREFIX)


def _matches(name: str, text: str) -> bool:
    """Return whether a filter selects a name, with or without the prefix.

    >>> [_matches("skate_serve_requests_total", text) for text in ("requests", "serve_*", "tasks", "requests*")]
    [True, True, False, False]
    """
    if "*" not in text:
        return text in name
    return fnmatchcase(name, text) or fnmatchcase(name.removeprefix(PREFIX), text)


def _sorted(found: list[Series]) -> list[Series]:
    return sorted(found, key=lambda each: (each.family.name, each.tags))


def _describe(series: Series) -> dict[str, Any]:
    family = series.family
    about = {
        "name": _name(series),
        "kind": family.kind,
        "description": family.description,
        "tags": dict(series.tags),
    }
    if family.kind != "histogram":
        return {**about, "value": series.values[0]}
    *counts, total = series.values
    return {
        **about,
        "boundaries": list(family.boundaries),
        "counts": counts,
        "count": sum(counts),
        "sum": total,
        **quantiles(list(family.boundaries), counts),
    }


def _row(series: Series) -> tuple[str, str, str, str]:
    tags = ", ".join(f"{name}={value}" for name, value in series.tags)
    return _name(series), series.family.kind, tags, _value(series)


def _value(series: Series) -> str:
    if series.family.kind != "histogram":
        return f"{series.values[0]:.15g}"
    *counts, _ = series.values
    found = quantiles(list(series.family.boundaries), counts)
    parts = (f"{name} {value:.3g}" for name, value in found.items() if value is not None)
    return ", ".join((f"{sum(counts):g} values", *parts))
