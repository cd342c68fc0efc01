"""Replaces `ray._private.internal_api`: the table of objects as text."""

from __future__ import annotations

from typing import Any

from skate._api.cluster import available_resources, cluster_resources
from skate._api.objects import free
from skate.util.state import api

__all__ = ["free", "global_gc", "memory_summary"]

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_COLUMNS = ("object_id", "object_size", "reference_type", "type", "pid", "call_site")


def memory_summary(
    address: str | None = None,
    group_by: str = "NODE_ADDRESS",
    sort_by: str = "OBJECT_SIZE",
    units: str = "B",
    line_wrap: bool = True,
    stats_only: bool = False,
    num_entries: int | None = None,
) -> str:
    """Return the objects, the references that keep them, and the usage of the object store, as text.

    Args:
        address: The address of the node; by default that of this session.
        group_by: As in Ray; one machine is one group.
        sort_by: "OBJECT_SIZE", "PID" or "REFERENCE_TYPE".
        units: "B", "KB", "MB" or "GB".
        line_wrap: As in Ray; lines are never wrapped.
        stats_only: Leave out the objects.
        num_entries: The most objects to show.

    Raises:
        ValueError: If `units` or `sort_by` has another value.
    """
    if units not in _UNITS:
        raise ValueError(f"units must be one of {', '.join(_UNITS)}; got {units!r}.")
    keys = {"OBJECT_SIZE": "object_size", "PID": "pid", "REFERENCE_TYPE": "reference_type"}
    if sort_by not in keys:
        raise ValueError(f"sort_by must be one of {', '.join(keys)}; got {sort_by!r}.")
    lines = []
    if not stats_only:
        key = keys[sort_by]
        rows = [vars(row) for row in api.list_objects(address, detail=True, limit=10_000)]
        rows.sort(key=lambda row: row[key], reverse=sort_by == "OBJECT_SIZE")
        lines.append("--- Object references ---")
        lines += _table(rows[:num_entries], _UNITS[units])
    size = cluster_resources().get("object_store_memory", 0)
    used = size - available_resources().get("object_store_memory", size)
    lines.append("--- Object store ---")
    lines.append(f"{used / _UNITS[units]:g} of {size / _UNITS[units]:g} {units} in use")
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]], unit: int) -> list[str]:
    shown = [
        [f"{row[name] / unit:g}" if name == "object_size" else str(row[name]) for name in _COLUMNS]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *shown, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (_COLUMNS, *shown)
    ]


def global_gc() -> None:
    """Collect garbage in this process; workers collect theirs themselves."""
    import gc

    gc.collect()
