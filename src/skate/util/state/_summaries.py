"""Counting rows by what they are instances of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from skate.util.state.common import StateResource, SummaryResource

MEBIBYTE = 1 << 20


def summary(resource: SummaryResource, rows: list[Any]) -> dict[str, Any]:
    """Return a summary in Ray's shape: everything under the key "cluster"."""
    return {"cluster": _SUMMARIES[resource](rows)}


def table_of(resource: SummaryResource) -> StateResource:
    """Return the table that a summary counts."""
    return StateResource(resource.value)


def _tasks(rows: list[Any]) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for row in rows:
        name = row.name or row.func_or_class_name
        group = groups.setdefault(
            name, {"func_or_class_name": row.func_or_class_name, "type": row.type, "state_counts": Counter()}
        )
        group["state_counts"][row.state] += 1
    kinds = Counter(row.type for row in rows)
    return {
        "summary": _plain(groups),
        "total_tasks": kinds["NORMAL_TASK"],
        "total_actor_tasks": kinds["ACTOR_TASK"],
        "total_actor_scheduled": kinds["ACTOR_CREATION_TASK"],
        "summary_by": "func_name",
    }


def _actors(rows: list[Any]) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for row in rows:
        group = groups.setdefault(row.class_name, {"class_name": row.class_name, "state_counts": Counter()})
        group["state_counts"][row.state] += 1
    return {"summary": _plain(groups), "total_actors": len(rows), "summary_by": "class"}


def _objects(rows: list[Any]) -> dict[str, Any]:
    by_site: dict[str, list[Any]] = {}
    for row in rows:
        by_site.setdefault(row.call_site, []).append(row)
    return {
        "summary": {site: _one_site(found) for site, found in by_site.items()},
        "total_objects": len(rows),
        "total_size_mb": _size_mb(rows),
        "callsite_enabled": False,
        "summary_by": "callsite",
    }


def _one_site(rows: list[Any]) -> dict[str, Any]:
    return {
        "total_objects": len(rows),
        "total_size_mb": _size_mb(rows),
        "total_num_workers": len({row.pid for row in rows}),
        "total_num_nodes": len({row.ip for row in rows}),
        "task_state_counts": dict(Counter(row.task_status for row in rows)),
        "task_attempt_number_counts": dict(Counter(str(row.attempt_number + 1) for row in rows)),
        "ref_type_counts": dict(Counter(row.reference_type for row in rows)),
    }


def _size_mb(rows: list[Any]) -> float:
    return float(sum(max(0, row.object_size) for row in rows) / MEBIBYTE)


def _plain(groups: dict[str, Any]) -> dict[str, Any]:
    return {name: {**group, "state_counts": dict(group["state_counts"])} for name, group in groups.items()}


_SUMMARIES: dict[SummaryResource, Callable[[list[Any]], dict[str, Any]]] = {
    SummaryResource.TASKS: _tasks,
    SummaryResource.ACTORS: _actors,
    SummaryResource.OBJECTS: _objects,
}
