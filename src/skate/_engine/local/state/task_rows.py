"""Rows of the table of tasks: finished tasks, actor calls, and unfinished tasks."""

from __future__ import annotations

from typing import Any

from skate._base import ids
from skate._base.ids import CREATION
from skate._engine.common.states import ALIVE, DEAD
from skate._engine.local.state.records import FinishedTask, Task
from skate._engine.local.wire import messages as m

Row = dict[str, Any]


def finished_row(past: FinishedTask) -> Row:
    """Return the row of a finished task from its record in the history."""
    id, spec, job, state, created, started, seconds, worker, pid, attempt, error, parent = past
    return {
        **_spec_facts(id, spec, job),
        "state": state,
        "created": created,
        "started": started,
        "ended": started + seconds,
        "worker_id": worker,
        "worker_pid": pid,
        "attempt_number": attempt,
        **_error_facts(error),
        "parent_task_id": parent,
    }


def call_row(call: dict[str, Any]) -> Row:
    """Return the row of a call that an actor has reported."""
    return {
        **_basics(call["task_id"], call["name"], call["type"], call["job"]),
        "state": call["state"],
        "created": call["started"],
        "started": call["started"],
        "ended": call["ended"],
        "worker_id": call["worker"],
        "worker_pid": call["pid"],
        "attempt_number": 0,
        **_error_facts(call["error"]),
        "parent_task_id": b"",
        "required_resources": {},
        "func_or_class_name": call["name"],
    }


def unfinished_row(task: Task) -> Row:
    """Return the row of a task in the table of unfinished tasks."""
    worker = task.worker
    # A worker tells when a task started at its end. It runs the first of its tasks.
    is_running = worker is not None and next(iter(worker.tasks), None) == task.id
    return {
        **_spec_facts(task.id, task.template.spec, task.template.cls.job),
        "state": task.state,
        "created": task.created,
        "started": worker.head_since if worker is not None and is_running else task.started,
        "ended": 0.0,
        "worker_id": worker.number if worker is not None else 0,
        "worker_pid": worker.pid if worker is not None else 0,
        "attempt_number": task.attempt,
        "error_type": None,
        "parent_task_id": task.parent,
    }


def is_unfinished(task: Task) -> bool:
    """Return whether a task of the table has not run; the constructor of a living actor has."""
    return task.actor is None or task.actor.state not in (ALIVE, DEAD)


def is_listed(task: Task) -> bool:
    """Return whether a task of the table has a row: it has not run, and its options do not disable it."""
    return task.template.spec.events and is_unfinished(task)


def _spec_facts(id: bytes, spec: m.TaskTemplate, job: bytes) -> Row:
    creates = id.startswith(CREATION)
    kind = "ACTOR_CREATION_TASK" if creates else "NORMAL_TASK"
    name = f"{spec.name}.__init__" if creates else spec.name
    return {
        **_basics(id, name, kind, job),
        "required_resources": spec.resources,
        "func_or_class_name": name if creates else spec.qualname or spec.name,
        "placement_group_id": spec.group,
        "label_selector": spec.labels,
        "runtime_env": spec.environment,
    }


def _error_facts(failed: str) -> Row:
    kind, _, message = failed.partition("\n")
    return {"error_type": kind or None, "error_message": message or None}


def _basics(id: bytes, name: str, kind: str, job: bytes) -> Row:
    return {"task_id": id, "name": name, "type": kind, "job_id": job, "actor_id": ids.actor_of(id) or b""}
