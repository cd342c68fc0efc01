"""Where code runs, in the words that the runtime context uses, from Ray's own runtime context."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from skate._base.alias import real_ray


@dataclass(frozen=True)
class Template:
    """What is known of the running task's function and what it may use."""

    resources: dict[str, float]
    capture_children: bool


@dataclass(frozen=True)
class Running:
    """The task or call that runs here."""

    task: bytes
    name: str
    function_name: str
    template: Template
    resources: dict[str, list[str]] = field(default_factory=dict)

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled it."""
        return bool(real_ray().get_runtime_context().is_canceled())


class Facts(dict[str, Any]):
    """What the runtime context shows; each fact is asked for when it is looked at."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self._engine = engine
        self._theirs = real_ray().get_runtime_context()

    def __missing__(self, fact: str) -> Any:
        value = self[fact] = _FACTS[fact](self._engine, self._theirs)
        return value


def _task(engine: Any, theirs: Any) -> Running | None:
    task = theirs.get_task_id() if engine.is_worker else None
    if task is None:
        return None
    return Running(
        bytes.fromhex(task),
        theirs.get_task_name() or "",
        theirs.get_task_function_name() or "",
        Template(theirs.get_assigned_resources(), bool(theirs.should_capture_child_tasks_in_placement_group)),
        theirs.get_accelerator_ids(),
    )


def _actor(engine: Any, theirs: Any) -> tuple[bytes, str] | None:
    actor = theirs.get_actor_id() if engine.is_worker else None
    if actor is None:
        return None
    return bytes.fromhex(actor), (engine.own_actor or {}).get("class_name", "")


def _labels(engine: Any, theirs: Any) -> dict[str, str]:
    node = theirs.get_node_id()
    return next((dict(row["Labels"]) for row in engine.nodes() if row["NodeID"] == node), {})


def _session(engine: Any, theirs: Any) -> str:
    if engine.over_client:
        return str(engine.address)  # the session's folder is on another machine
    return os.path.join(str(theirs.get_temp_dir()), str(theirs.get_session_name()))


_FACTS: dict[str, Callable[[Any, Any], Any]] = {
    "worker": lambda _, theirs: int(theirs.get_worker_id(), 16),
    "job": lambda _, theirs: bytes.fromhex(theirs.get_job_id()),
    "node": lambda _, theirs: bytes.fromhex(theirs.get_node_id()),
    "session": _session,
    "namespace": lambda _, theirs: theirs.namespace,
    "labels": _labels,
    "task": _task,
    "actor": _actor,
    "is_async_actor": lambda engine, _: engine.is_async_actor,
    "environment": lambda _, theirs: dict(theirs.runtime_env or {}),
}
