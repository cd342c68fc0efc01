"""`skate metrics`."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

import skate
from skate._api import nodes
from skate.util.metrics import Counter, Histogram
from tests.plugins.command_line import Cli


@skate.remote
def record() -> None:
    Counter("cli_jobs", "Jobs.", tag_keys=("kind",)).inc(3, {"kind": "a"})
    Histogram("cli_time", "Time.", boundaries=[1.0, 2.0]).observe(1.5)


@pytest.fixture
def recorded(node: nodes.NodeRecord) -> None:
    skate.init(address="auto", log_to_driver=False)
    skate.get(record.remote())


def test_the_text_has_the_metrics_of_workers_and_of_the_node(cli: Cli, recorded: None) -> None:
    families = {each.name: each for each in text_string_to_metric_families(cli.process("metrics").out)}
    assert [sample.value for sample in families["skate_cli_jobs"].samples] == [3.0]
    tasks = {sample.labels["State"]: sample.value for sample in families["skate_tasks"].samples}
    assert tasks["FINISHED"] == 1
    cpus = [sample for sample in families["skate_resources"].samples if sample.labels.get("Name") == "CPU"]
    assert sum(sample.value for sample in cpus) == 2
    assert {sample.labels["State"] for sample in cpus} == {"USED", "AVAILABLE"}
    assert families["skate_object_store_available_memory"].samples[0].value > 0


def test_names_are_filtered(cli: Cli, recorded: None) -> None:
    text = cli("metrics", "--filter", "cli_jobs").out
    assert text == (
        "# HELP skate_cli_jobs_total Jobs.\n# TYPE skate_cli_jobs_total counter\n"
        'skate_cli_jobs_total{kind="a"} 3.0\n'
    )
    assert cli("metrics", "--filter", "cli_j*").out == text
    assert cli("metrics", "-f", "jobs_total", "-f", "skate_cli_jobs*").out == text
    nothing = cli("metrics", "--filter", "jobz")
    assert (nothing.out, "No metric has such a name" in nothing.err) == ("", True)


def test_programs_read_json(cli: Cli, recorded: None) -> None:
    counter, histogram = json.loads(cli("metrics", "--filter", "cli_", "--format", "json").out)
    assert (counter["name"], counter["tags"], counter["value"]) == (
        "skate_cli_jobs_total",
        {"kind": "a"},
        3.0,
    )
    assert (histogram["kind"], histogram["counts"], histogram["sum"]) == ("histogram", [0.0, 1.0, 0.0], 1.5)
    assert histogram["p50"] == 1.5
    assert json.loads(cli("metrics", "--filter", "jobz", "--format", "json").out) == []


def test_people_read_a_table(cli: Cli, recorded: None) -> None:
    lines = [
        line.split() for line in cli("metrics", "--filter", "cli_*", "--format", "table").out.splitlines()
    ]
    assert lines[0] == ["NAME", "KIND", "TAGS", "VALUE"]
    assert lines[1] == ["skate_cli_jobs_total", "counter", "kind=a", "3"]
    assert lines[2][:5] == ["skate_cli_time", "histogram", "-", "1", "values,"]
