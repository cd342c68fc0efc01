"""The dashboard for Grafana: each panel shows a metric that exists, and each metric has a panel."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import skate
from skate.cli import main
from skate.dashboard import _grafana
from skate.dashboard._grafana import Group, dashboard, declared_groups
from skate.util._metrics_export import exposition
from skate.util._metrics_store import Family, Series

PACKAGE = Path(skate.__file__).parent
FUNCTIONS = ("Counter", "Gauge", "Histogram", "Family", "counter", "gauge", "histogram")
NAME = re.compile(r"skate_\w+")


def panels(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in found["panels"]:
        yield from [panel] if panel["type"] != "row" else panel["panels"]


def declared() -> list[Family]:
    return [family for group in declared_groups() for family in group.families]


def names_in_sources() -> set[str]:
    """Return the names that modules pass to functions which declare metrics, as far as they are literals."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        is_of_serve = path.is_relative_to(PACKAGE / "serve")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = (
                node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            )
            if function not in FUNCTIONS:
                continue
            texts = [
                arg.value for arg in node.args if isinstance(arg, ast.Constant) and type(arg.value) is str
            ]
            if len(texts) >= 2:  # a name and a description: not a collections.Counter
                name = texts[-2]
                found.add(f"serve_{name}" if is_of_serve and function.islower() else name)
    return found


def test_each_expression_names_a_metric_that_is_exported() -> None:
    series = [Series(family, (), [1.0] * family.cells) for family in declared()]
    exported = {
        sample.name
        for family in text_string_to_metric_families(exposition(series, "skate_"))
        for sample in family.samples
    }
    expressions = [
        target["expr"] for panel in panels(dashboard(declared_groups())) for target in panel["targets"]
    ]
    named = [NAME.findall(expression) for expression in expressions]
    assert all(len(names) == 1 for names in named)
    assert {names[0] for names in named} - exported == set()


def test_each_metric_that_the_libraries_declare_has_a_panel() -> None:
    found = names_in_sources()
    assert {"tasks", "serve_deployment_request_counter", "serve_batches_processed", "llm_requests"} <= found
    titles = [panel["title"] for panel in panels(dashboard(declared_groups()))]
    assert found - set(titles) == set()
    assert len(set(titles)) == len(titles)


def test_the_file_is_up_to_date(tmp_path: Path) -> None:
    _grafana.write(tmp_path / "grafana.json")
    assert _grafana.FILE.read_text() == (tmp_path / "grafana.json").read_text(), "run `make docs`"


def test_the_command_writes_the_file() -> None:
    done = CliRunner().invoke(main, ["metrics", "--grafana"])
    assert json.loads(done.stdout)["title"] == "Skate"
    assert done.stdout == _grafana.FILE.read_text()


@pytest.mark.parametrize(
    ("family", "expressions"),
    [
        (Family("gauge", "x", ""), ["sum by (a, b) (skate_x)"]),
        (Family("counter", "x", ""), ["sum by (a, b) (rate(skate_x_total[$__rate_interval]))"]),
        (
            Family("histogram", "x_ms", "", (1.0,)),
            [
                f"histogram_quantile({share}, sum by (le, a, b) (rate(skate_x_ms_bucket[$__rate_interval])))"
                for share in (0.5, 0.9, 0.99)
            ],
        ),
    ],
)
def test_each_kind_has_its_expression(family: Family, expressions: list[str]) -> None:
    (panel,) = panels(dashboard([Group("one", (family,), ("a", "b"))]))
    assert [target["expr"] for target in panel["targets"]] == expressions


def test_panels_do_not_overlap() -> None:
    places = [
        (panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels(dashboard(declared_groups()))
    ]
    assert len(set(places)) == len(places)
    ids = [panel["id"] for panel in dashboard(declared_groups())["panels"]]
    assert len(set(ids)) == len(ids)
