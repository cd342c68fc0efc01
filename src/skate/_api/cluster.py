"""What there is: nodes, resources, accelerators, the timeline."""

from __future__ import annotations

import json
import os
from typing import Any

import skate._engine as engines


def nodes() -> list[dict[str, Any]]:
    """Return the nodes of the cluster, in the shape of Ray's table; one on a single machine."""
    found: list[dict[str, Any]] = engines.current().nodes()
    return found


def cluster_resources() -> dict[str, float]:
    """Return all resources that exist, by name."""
    found: dict[str, float] = engines.current().resources()
    return found


def available_resources() -> dict[str, float]:
    """Return the resources that nobody uses now, by name."""
    found: dict[str, float] = engines.current().available()
    return found


def get_gpu_ids() -> list[Any]:
    """Return the ids of the GPUs that this worker may use; on the driver, none."""
    from skate.runtime_context import get_runtime_context

    found = get_runtime_context().get_accelerator_ids().get("GPU", [])
    return [int(device) if device.isdigit() else device for device in found]


def timeline(filename: str | os.PathLike[str] | None = None) -> list[dict[str, Any]] | None:
    """Return what ran when, as events of Chrome's trace format, or write them to a file.

    Args:
        filename: Where to write JSON that chrome://tracing and Perfetto open; None returns a list.

    Raises:
        TypeError: `filename` is not a path: a number would name a file that is open already.
    """
    if not isinstance(filename, str | os.PathLike | None):
        raise TypeError(
            f"'filename' must be the path of a file or None, got {filename!r} ({type(filename).__name__})."
        )
    engine = engines.current()
    native = getattr(engine, "timeline", None)
    events = _task_events(engine) if native is None else native()
    if filename is None:
        return events
    with open(filename, "w") as file:
        json.dump(events, file)
    return None


def _task_events(engine: Any) -> list[dict[str, Any]]:
    events = []
    for row in engine.state("tasks"):
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
