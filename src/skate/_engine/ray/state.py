"""The state API of a Ray cluster. Skate's tables have the same columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skate._base import ids
from skate._base.alias import real_ray

LIMIT = 10_000  # the most rows that Ray returns


class RayState:
    """Implements the `NativeState` of the engine interface."""

    def rows(self, resource: str) -> list[dict[str, Any]]:
        """Return the rows of a table, with details."""
        list_rows = getattr(real_ray("ray.util.state"), f"list_{resource}")
        rows = list_rows(address=_cluster(), limit=LIMIT, detail=True, raise_on_missing_output=False)
        return [dict(row) if isinstance(row, dict) else _columns(row) for row in rows]

    def timeline(self) -> list[dict[str, Any]]:
        """Return the tasks that ran, as events of Chrome's trace format."""
        events: list[dict[str, Any]] = real_ray().timeline()
        return events

    def list_logs(
        self, *, node_id: str | None, node_ip: str | None, glob_filter: str | None, timeout: float
    ) -> dict[str, list[str]]:
        """Return the names of the logs on a node, by kind; by default on the node of this process."""
        if node_id is None and node_ip is None:
            node_id = real_ray().get_runtime_context().get_node_id()
        names: dict[str, list[str]] = real_ray("ray.util.state").list_logs(
            address=_cluster(), node_id=node_id, node_ip=node_ip, glob_filter=glob_filter, timeout=timeout
        )
        return names

    def get_log(self, **query: Any) -> Iterator[str]:
        """Yield the text of a log."""
        lines: Iterator[str] = real_ray("ray.util.state").get_log(address=_cluster(), **query)
        return lines


def _cluster() -> str:
    """Return the address of this session's cluster: by default, Ray uses the cluster started last."""
    address: str = real_ray().get_runtime_context().gcs_address
    return address


def _columns(row: Any) -> dict[str, Any]:
    """Return a row's columns; rows of jobs are pydantic models, the others dataclasses."""
    found: dict[str, Any] = row.model_dump() if hasattr(row, "model_dump") else row.asdict()
    return found


def why(reference: Any, task_id: str) -> list[str]:
    """Explain what a reference waits for. Ray does not report which arguments a task waits for."""
    ready, _ = real_ray().wait([reference], timeout=0, fetch_local=False)
    if ready:
        return [f"object {reference.hex()} is there"]
    return why_task(task_id) or [f"object {reference.hex()}: Ray has not heard of its task yet, or no more"]


def task_of(object_id: bytes) -> bytes:
    """Return Ray's id of the task that makes an object; that of an actor's creation begins with zeros in Skate."""
    task = ids.task_of(object_id)
    rest = task.removeprefix(bytes(ids.TASK_SIZE - ids.ACTOR_SIZE))
    return task if rest == task else rest.rjust(ids.TASK_SIZE, b"\xff")


def why_task(task_id: str) -> list[str]:
    """Explain what a task waits for, one line per attempt; nothing if Ray does not know it."""
    found = real_ray("ray.util.state").get_task(task_id, address=_cluster())
    rows = found if isinstance(found, list) else [] if found is None else [found]
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
