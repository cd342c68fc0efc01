"""A Grafana dashboard with a panel for every metric that Skate declares.

`python -m skate.dashboard._grafana` writes `grafana.json`, which `skate metrics --grafana` prints. Writing needs the
packages of Serve, printing does not. `make docs` writes it, and a test checks that it is up to date.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from skate.util._metrics_export import export_name
from skate.util._metrics_store import Family
from skate.util.metrics import PREFIX, Metric

__all__ = ["FILE", "Group", "dashboard", "declared_groups", "families_in", "write"]

FILE: Final = Path(__file__).parent / "grafana.json"

_WIDTH, _HEIGHT, _PER_ROW = 8, 8, 3  # Grafana's grid has 24 columns
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_INTERVAL: Final = "$__rate_interval"
_QUANTILES: Final = (0.5, 0.9, 0.99)
_UNITS: Final = (
    ("_ms", "ms"),
    ("_s", "s"),
    ("_backpressure_time", "s"),
    ("_bytes", "bytes"),
    ("_memory", "bytes"),
    ("_mem_used", "bytes"),
    ("_mem_total", "bytes"),
    ("_percent", "percent"),
)


@dataclass(frozen=True, slots=True)
class Group:
    """A row of the dashboard.

    Attributes:
        title: The title of the row.
        families: The metrics, one panel each.
        labels: The labels by which values are summed, if a metric has them.
    """

    title: str
    families: tuple[Family, ...]
    labels: tuple[str, ...]


def families_in(*holders: object) -> tuple[Family, ...]:
    """Return the metrics that modules or objects have as attributes, in the order of their declaration."""
    found: dict[Family, None] = {}
    for holder in holders:
        for value in vars(holder).values():
            if isinstance(value, Family):
                found[value] = None
            elif isinstance(value, Metric):
                found[value._family] = None
    return tuple(found)


def declared_groups() -> list[Group]:
    """Return all metrics that Skate declares."""
    from skate.serve._batching.metrics import BatchMetrics
    from skate.serve._controller import metrics as controller
    from skate.serve._multiplex.metrics import ModelMetrics
    from skate.serve._observability import metrics as requests
    from skate.serve._observability import observers
    from skate.serve.llm._server.metrics import ServerMetrics
    from skate.util import _run_metrics, _session_metrics

    def no_requests() -> int:
        return 0

    deployment = ("application", "deployment")
    proxies = (requests.ProxyMetrics(protocol, no_requests) for protocol in ("http", "grpc"))
    # Declaring a metric records nothing, so these objects leave no values.
    return [
        Group("Node", _session_metrics.NODE_FAMILIES, ("Name", "State")),
        Group("Datasets", _run_metrics.DATA_FAMILIES, ("dataset", "operator")),
        Group("Training", _run_metrics.TRAIN_FAMILIES, ("ray_train_run_name", "State")),
        Group("Experiments", _run_metrics.TUNE_FAMILIES, ("experiment", "State")),
        Group("Serve: requests", families_in(*proxies), ("application", "route")),
        Group("Serve: deployments", families_in(observers, requests), deployment),
        Group("Serve: controller", families_in(controller), (*deployment, "node_id")),
        Group("Serve: batches", families_in(BatchMetrics("")), (*deployment, "function_name")),
        Group("Serve: multiplexed models", families_in(ModelMetrics()), deployment),
        Group("Language models", families_in(ServerMetrics("", is_enabled=True)), ("model",)),
    ]


def dashboard(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON model."""
    return {
        "uid": "skate",
        "title": "Skate",
        "tags": ["skate"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_rows(groups)),
    }


def _rows(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    id, top = 1, 0
    for number, group in enumerate(groups):
        panels = [
            _panel(
                family, group.labels, id + 1 + place, place % _PER_ROW, top + 1 + place // _PER_ROW * _HEIGHT
            )
            for place, family in enumerate(group.families)
        ]
        is_collapsed = number > 0  # Grafana queries the panels of an open row only
        yield {
            "id": id,
            "type": "row",
            "title": group.title,
            "collapsed": is_collapsed,
            "gridPos": {"x": 0, "y": top, "w": _WIDTH * _PER_ROW, "h": 1},
            "panels": panels if is_collapsed else [],
        }
        if not is_collapsed:
            yield from panels
        id += 1 + len(panels)
        top += 1 + -(-len(panels) // _PER_ROW) * _HEIGHT


def _panel(family: Family, labels: tuple[str, ...], id: int, column: int, top: int) -> dict[str, Any]:
    unit = next((unit for suffix, unit in _UNITS if family.name.endswith(suffix)), "short")
    return {
        "id": id,
        "type": "timeseries",
        "title": family.name,
        "description": family.description,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": top, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": "cps" if family.kind == "counter" else unit, "min": 0},
            "overrides": [],
        },
        "targets": list(_targets(family, labels)),
    }


def _targets(family: Family, labels: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    name = export_name(family, PREFIX)
    legend = "__auto"  # the labels that a series has
    if family.kind == "histogram":
        rate = f"sum by (le, {', '.join(labels)}) (rate({name}_bucket[{_INTERVAL}]))"
        queries = [
            (
                f"histogram_quantile({share}, {rate})",
                " ".join((f"p{share * 100:g}", *(f"{{{{{label}}}}}" for label in labels))),
            )
            for share in _QUANTILES
        ]
    elif family.kind == "counter":
        queries = [(f"sum by ({', '.join(labels)}) (rate({name}[{_INTERVAL}]))", legend)]
    else:
        queries = [(f"sum by ({', '.join(labels)}) ({name})", legend)]
    for letter, (expression, text) in zip("ABC", queries, strict=False):
        yield {"refId": letter, "datasource": _SOURCE, "expr": expression, "legendFormat": text}


def write(path: Path = FILE) -> None:
    """Write the dashboard to a file."""
    path.write_text(json.dumps(dashboard(declared_groups()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
