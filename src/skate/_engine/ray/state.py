"""The state API on a Ray cluster: Ray's own tables, which have the columns that Skate's follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skate._base.alias import real_ray

LIMIT = 10_000  # rows that Ray returns at most


def table(kind: str) -> list[dict[str, Any]]:
    """Return the rows of a table, with details, as dictionaries."""
    theirs = real_ray("ray.util.state")
    ask = getattr(theirs, f"list_{kind}")
    rows = ask(address=_cluster(), limit=LIMIT, detail=True, raise_on_missing_output=False)
    return [dict(row) if isinstance(row, dict) else _columns(row) for row in rows]


def _cluster() -> str:
    """Return the address of the cluster of this session: left to itself, Ray asks the one that was started last."""
    address: str = real_ray().get_runtime_context().gcs_address
    return address


def logs(**question: Any) -> dict[str, list[str]]:
    """Return the names of logs on a node; on that of this process if none is named."""
    if question["node_id"] is None and question["node_ip"] is None:
        question["node_id"] = real_ray().get_runtime_context().get_node_id()
    names: dict[str, list[str]] = real_ray("ray.util.state").list_logs(address=_cluster(), **question)
    return names


def log(**question: Any) -> Iterator[str]:
    """Yield the text of a log."""
    lines: Iterator[str] = real_ray("ray.util.state").get_log(address=_cluster(), **question)
    return lines


def _columns(row: Any) -> dict[str, Any]:
    """Return a row's columns; the rows of jobs are models of pydantic, the others dataclasses."""
    found: dict[str, Any] = row.model_dump() if hasattr(row, "model_dump") else row.asdict()
    return found


def why(reference: Any, task_id: str) -> list[str]:
    """Say what a reference waits for, as far as Ray tells: which of its arguments a task waits for it does not."""
    ready, _ = real_ray().wait([reference], timeout=0, fetch_local=False)
    if ready:
        return [f"object {reference.hex()} is there"]
    found = real_ray("ray.util.state").get_task(task_id, address=_cluster())
    rows = found if isinstance(found, list) else [] if found is None else [found]
    if not rows:
        return [f"object {reference.hex()}: Ray has not heard of its task yet, or no more"]
    return [f"{row.name or row.func_or_class_name} {_words(row)} ({row.state})" for row in rows]


def _words(row: Any) -> str:
    if row.state == "PENDING_NODE_ASSIGNMENT":
        return f"waits for a node with {row.required_resources} to spare"
    return _WORDS.get(row.state, "is on its way")


_WORDS = {
    "PENDING_ARGS_AVAIL": "waits for its arguments",
    "PENDING_ARGS_FETCH": "waits for its arguments to be brought to its node",
    "PENDING_OBJ_STORE_MEM_AVAIL": "waits for memory in the object store of its node",
    "SUBMITTED_TO_WORKER": "runs, or is about to",
    "RUNNING": "runs",
    "RUNNING_IN_RAY_GET": "runs, and waits for an object",
    "RUNNING_IN_RAY_WAIT": "runs, and waits for objects",
    "FINISHED": "has ended",
    "FAILED": "has failed",
}
