"""The tables of the state API, and explanations of what a reference waits for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate._base import ids
from skate._base.ids import CREATION
from skate._base.object_ref import ERROR, PENDING, ObjectRef
from skate._engine.abc import Table
from skate._engine.common.resources import to_floats
from skate._engine.common.states import ALIVE, DEAD, RUNNING
from skate._engine.inline.actors import Actor
from skate._engine.inline.calls import WORKER, Invocation
from skate._engine.inline.context import environment_text
from skate._engine.inline.methods import MethodCall

if TYPE_CHECKING:
    from skate._engine.inline.engine import InlineEngine


class Views:
    """Reads the engine without changing it."""

    def __init__(self, engine: InlineEngine) -> None:
        self._engine = engine
        self._began = time.time()
        self._tables: dict[Table, Callable[[], list[dict[str, Any]]]] = {
            Table.ACTORS: self._actors,
            Table.RUNTIME_ENVS: self._environments,
            Table.GROUPS: lambda: engine.scheduler.groups.rows(engine.job),
            Table.JOBS: self._jobs,
            Table.OBJECTS: self._objects,
            Table.TASKS: self._tasks,
            Table.WORKERS: self._workers,
        }

    def table(self, table: Table) -> list[dict[str, Any]]:
        """Return the rows of a table.

        Raises:
            ValueError: The table does not exist.
        """
        if table not in self._tables:
            raise ValueError(f"There is no table {table!r}; there are {', '.join(self._tables)}.")
        return self._tables[table]()

    def _actors(self) -> list[dict[str, Any]]:
        return [actor.row() for actor in list(self._engine.actors.table.values())]

    def _tasks(self) -> list[dict[str, Any]]:
        waiting: list[Invocation] = list(self._engine.tasks.table.values())
        for actor in list(self._engine.actors.table.values()):
            if actor.state not in (ALIVE, DEAD) and actor.creation is not None:
                waiting.append(actor.creation)
            waiting += actor.calls.values()
        return [*self._engine.tasks.history, *(call.row() for call in waiting if call.recorded)]

    def _workers(self) -> list[dict[str, Any]]:
        return [
            {
                "worker_id": WORKER,
                "is_alive": True,
                "worker_type": "DRIVER",
                "pid": os.getpid(),
                "state": "IDLE",
                "job_id": self._engine.job,
                "blocked": False,
                "exit_type": None,
                "exit_detail": "",
                "exit_code": None,
                "end_time": 0.0,
                "start_time": self._began,
            }
        ]

    def _objects(self) -> list[dict[str, Any]]:
        objects = self._engine.objects
        return [
            {
                "object_id": id,
                "object_size": objects.size_of(reference),
                "state": reference._state,
                "shared": False,
                "spilled": False,
                "pinned": id in objects.pinned,
                "owner": WORKER,
                "holders": [WORKER],
                "held_by_tasks": 0,
            }
            for id, reference in list(objects.table.items())
            if not id.startswith(CREATION)
        ]

    def _jobs(self) -> list[dict[str, Any]]:
        return [
            {
                "job_id": self._engine.job,
                "pid": os.getpid(),
                "started": self._began,
                "ended": 0.0,
                "entrypoint": " ".join(sys.argv),
                "namespace": self._engine.namespace,
                "metadata": self._engine.metadata,
                "runtime_env": self._engine.environments.job,
            }
        ]

    def _environments(self) -> list[dict[str, Any]]:
        actors = [actor for actor in self._engine.actors.table.values() if actor.state == ALIVE]
        texts = [environment_text(actor.spec.environment) for actor in actors if actor.spec.environment]
        return [{"runtime_env": text, "ref_cnt": texts.count(text)} for text in dict.fromkeys(texts)]

    def memory(self) -> dict[str, int]:
        """Return the size and the usage of the object store."""
        rows = self._objects()
        return {
            "budget": int(self._engine.scheduler.total.get("object_store_memory", 0)),
            "used": sum(row["object_size"] for row in rows),
            "spilled_bytes": 0,
            "restored_bytes": 0,
            "objects": len(rows),
        }

    # ------------------------------------------------------------ why

    def why(self, references: list[ObjectRef[Any]]) -> list[str]:
        """Describe what references wait for, one step per line, down to the cause."""
        lines: list[str] = []
        seen: set[bytes] = set()
        for reference in references:
            self._explain(reference, lines, seen, 0)
        return lines

    def _explain(self, reference: ObjectRef[Any], lines: list[str], seen: set[bytes], level: int) -> None:
        indent = "  " * level
        short = f"object {reference._id.hex()[:16]}…"
        if reference._state != PENDING:
            lines.append(f"{indent}{short} is there" + (" (an error)" if reference._state == ERROR else ""))
            return
        if reference._id in seen:
            lines.append(f"{indent}{short} is waited for again: this is a cycle")
            return
        seen.add(reference._id)
        task = ids.task_of(reference._id)
        actor = self._engine.actors.table.get(ids.actor_of(task) or b"")
        call: Invocation | None = (
            self._engine.tasks.table.get(task) if actor is None else actor.calls.get(task)
        )
        if call is None:
            lines += self._explain_group(reference, indent)
        elif isinstance(call, MethodCall) and actor is not None:
            self._explain_method(actor, call, lines, seen, level)
        else:
            self._explain_task(call, lines, seen, level)

    def _explain_group(self, reference: ObjectRef[Any], indent: str) -> list[str]:
        """Describe what a reference without a task waits for: a placement group, or nothing."""
        groups = list(self._engine.scheduler.groups.table.values())
        waiting = next((group for group in groups if reference._id in group.waiting), None)
        if waiting is None:
            return [f"{indent}object {reference._id.hex()[:16]}… is not made by any running task"]
        lines = [f"{indent}placement group {waiting.id.hex()[:16]}… waits for {waiting.bundles}"]
        held = [group for group in groups if group.state == "CREATED"]
        return lines + [f"{indent}  placement group {g.id.hex()[:16]}… holds {g.bundles}" for g in held]

    def explain_call(self, call: Invocation) -> list[str]:
        """Describe what a task or call waits for."""
        lines: list[str] = []
        actor = self._engine.actors.table.get(ids.actor_of(call.id) or b"")
        if isinstance(call, MethodCall) and actor is not None:
            self._explain_method(actor, call, lines, set(), 0)
        else:
            self._explain_task(call, lines, set(), 0)
        return lines

    def _explain_task(self, call: Invocation, lines: list[str], seen: set[bytes], level: int) -> None:
        indent = "  " * level
        missing = call.arguments.missing() if call.arguments is not None else []
        if missing:
            lines.append(f"{indent}task {call.name} waits for its arguments:")
            for reference in missing:
                self._explain(reference, lines, seen, level + 1)
        elif call.id in self._engine.scheduler.waiting:
            lines.append(f"{indent}task {call.name} waits for resources: {self._resources(call)}")
            lines += [f"{indent}  {line}" for line in self._holders(call.spec.resources)]
        elif call.stream is not None:
            lines.append(
                f"{indent}the generator {call.name} has made {call.stream.made} items, and is not done"
            )
        else:
            lines.append(f"{indent}task {call.name} is running, and is part of this wait")

    def _resources(self, call: Invocation) -> str:
        where = " in its placement group" if call.spec.group else ""
        return f"it asks for {call.spec.resources}{where}, available are {self._engine.scheduler.available}"

    def _holders(self, asked: dict[str, float]) -> list[str]:
        return [
            f"{to_floats(actor.grant.amounts)} is held by actor {actor.class_name} {actor.name}".rstrip()
            for actor in self._engine.actors.table.values()
            if actor.grant is not None and any(name in actor.grant.amounts for name in asked)
        ]

    def _explain_method(
        self, actor: Actor, call: MethodCall, lines: list[str], seen: set[bytes], level: int
    ) -> None:
        indent = "  " * level
        missing = call.arguments.missing() if call.arguments is not None else []
        if missing and not call.claimed:
            lines.append(f"{indent}call {call.name} waits for its arguments:")
            for reference in missing:
                self._explain(reference, lines, seen, level + 1)
        elif actor.creation is not None and actor.state != ALIVE:
            lines.append(f"{indent}actor {actor.class_name} is {actor.state}")
            if call.spec is not None and actor.id in self._engine.scheduler.waiting:
                lines.append(f"{indent}  it waits for resources: {self._resources(actor.creation)}")
                lines += [f"{indent}  {line}" for line in self._holders(actor.spec.resources)]
            elif actor.creation.arguments is not None:
                for reference in actor.creation.arguments.missing():
                    self._explain(reference, lines, seen, level + 1)
        elif not call.claimed:
            busy = [other.name for other in actor.calls.values() if other.claimed] or ["earlier calls"]
            lines.append(f"{indent}call {call.name} waits until the actor is done with {', '.join(busy)}")
        elif call.coroutine is not None:
            lines.append(f"{indent}coroutine {call.name} waits{_where(call.coroutine)}")
        elif call.state == RUNNING:
            lines.append(f"{indent}call {call.name} is running, and is part of this wait")


def _where(coroutine: Any) -> str:
    """Return the line of the user's code at which a coroutine waits."""
    inner = coroutine.get_coro()
    line = ""
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
        if frame is not None and "skate/_engine" not in frame.f_code.co_filename:
            line = f" at {frame.f_code.co_filename}:{frame.f_lineno}"
            break
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    return line
