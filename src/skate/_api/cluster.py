"""Nodes, resources, accelerators and the timeline."""

from __future__ import annotations

import json
import os
from typing import Any

import skate._engine as engines
from skate._engine.abc import Table


def nodes() -> list[dict[str, Any]]:
    """Return the nodes of the cluster, in the shape of Ray's table; one on a single machine."""
    return engines.current().nodes()


def cluster_resources() -> dict[str, float]:
    """Return all resources of the cluster, by name."""
    return engines.current().resources()


def available_resources() -> dict[str, float]:
    """Return the resources that are not in use, by name."""
    return engines.current().available()


def get_gpu_ids() -> list[Any]:
    """Return the ids of the GPUs that this worker may use; [] on the driver."""
    from skate.runtime_context import get_runtime_context

    found = get_runtime_context().get_accelerator_ids().get("GPU", [])
    return [int(device) if device.isdigit() else device for device in found]


def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """Return the tasks that ran, as events of Chrome's trace format, or write them to a file.

    Args:
        filename: The JSON file to write, for chrome://tracing or Perfetto; None returns a list.

    Raises:
        TypeError: `filename` is not a path. A number would be the descriptor of an open file.
    """
    if not isinstance(filename, str | os.PathLike | None):
        raise TypeError(
            f"'filename' must be the path of a file or None, got {filename!r} ({type(filename).__name__})."
        )
    engine = engines.current()
    native = engine.native_state
    events = _task_events(engine.state(Table.TASKS)) if native is None else native.timeline()
    if filename is None:
        return events
    with open(filename, "w") as file:
        json.dump(events, file)
    return None


def _task_events(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    events = []
    for row in rows:
        if not row["started"]:
            continue
        end = row["ended"] or row["started"]
        events.append(
            {
                "cat": f"task::{row['func_or_class_name']}",
                "name": row["name"],
                "ph": "X",
                "ts": row["started"] * 1e6,
                "dur": max(0.0, end - row["started"]) * 1e6,
                "pid": "127.0.0.1",
                "tid": f"worker:{row['worker_pid']}",
                "args": {"task_id": row["task_id"].hex(), "state": row["state"], "type": row["type"]},
            }
        )
    return events
