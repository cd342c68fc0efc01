"""Metrics of a session: those that its processes record, of its runs, and the counts of its node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from skate._api.observer import MemoryUsage, Observer, memory_usage
from skate.util._metrics_store import Family, Series, collect
from skate.util._run_metrics import run_series

__all__ = ["NODE_FAMILIES", "node_series", "read_all", "read_recorded"]

# Ray has the same names and labels.
_TASKS: Final = Family("gauge", "tasks", "Tasks and actor calls by state, including those that ended.")
_ACTORS: Final = Family("gauge", "actors", "Actors by state.")
_RESOURCES: Final = Family("gauge", "resources", "Resources of the node, in use and available.")
_WORKERS: Final = Family("gauge", "node_workers", "Worker processes.")
_STORE_USED: Final = Family("gauge", "object_store_used_memory", "Bytes of objects in shared memory.")
_STORE_FREE: Final = Family("gauge", "object_store_available_memory", "Bytes that further objects may use.")
_STORE_OBJECTS: Final = Family("gauge", "object_store_num_local_objects", "Objects, of any size.")
_STORE_SPILLED: Final = Family("gauge", "object_store_spilled_bytes", "Bytes written to disk so far.")
_STORE_RESTORED: Final = Family("gauge", "object_store_restored_bytes", "Bytes read back from disk so far.")
_STORE_DISK: Final = Family(
    "gauge", "object_store_fallback_memory", "Bytes of objects on disk because shared memory had no room."
)
_MEMORY_USED: Final = Family("gauge", "node_mem_used", "Bytes of the machine's memory in use.")
_MEMORY_TOTAL: Final = Family("gauge", "node_mem_total", "Bytes of the machine's memory.")

NODE_FAMILIES: Final = (
    _TASKS,
    _ACTORS,
    _RESOURCES,
    _WORKERS,
    _STORE_USED,
    _STORE_FREE,
    _STORE_OBJECTS,
    _STORE_SPILLED,
    _STORE_RESTORED,
    _STORE_DISK,
    _MEMORY_USED,
    _MEMORY_TOTAL,
)


def read_all(observer: Observer) -> list[Series]:
    """Return the metrics of a session: `/metrics` of the dashboard and `skate metrics` show these."""
    node = node_series(observer.counts(), memory_usage())
    if not observer.is_local:
        return node
    return [*node, *run_series(observer.session), *read_recorded(observer.session)]


def read_recorded(session: str) -> list[Series]:
    """Return the metrics that the processes of a session have recorded.

    Args:
        session: The folder of the session.
    """
    try:
        return collect(Path(session) / "metrics")
    except FileNotFoundError:
        return []  # nothing was recorded


def node_series(counts: Mapping[str, Any], machine: MemoryUsage | None) -> list[Series]:
    """Return the series of a node.

    Args:
        counts: The result of `Observer.counts`.
        machine: The usage of the machine's memory; None if it is unknown.
    """
    return list(_node_series(counts, machine))


def _node_series(counts: Mapping[str, Any], machine: MemoryUsage | None) -> Iterator[Series]:
    for family, states in ((_TASKS, counts["tasks"]), (_ACTORS, counts["actors"])):
        for state, number in states.items():
            yield Series(family, (("State", state),), [number])
    available = counts["available"]
    for name, total in counts["total"].items():
        free = available.get(name, 0.0)
        yield Series(_RESOURCES, (("Name", name), ("State", "AVAILABLE")), [free])
        yield Series(_RESOURCES, (("Name", name), ("State", "USED")), [max(0.0, total - free)])
    yield Series(_WORKERS, (), [counts["workers"]])
    if store := counts.get("store"):
        yield Series(_STORE_USED, (), [store["used"]])
        yield Series(_STORE_FREE, (), [max(0, store["budget"] - store["used"])])
        yield Series(_STORE_OBJECTS, (), [store["objects"]])
        yield Series(_STORE_SPILLED, (), [store["spilled_bytes"]])
        yield Series(_STORE_RESTORED, (), [store["restored_bytes"]])
        yield Series(_STORE_DISK, (), [store["on_disk"]])
    if machine is not None:
        yield Series(_MEMORY_USED, (), [machine.used])
        yield Series(_MEMORY_TOTAL, (), [machine.total])
