"""Answers to queries about the node, for the state API, the CLI and `why`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skate._base import ids
from skate._base.ids import CREATION
from skate._base.object_ref import ERROR, PENDING, SHARED
from skate._engine.common import failures
from skate._engine.common.resources import to_floats
from skate._engine.common.states import ALIVE, DEAD, QUEUED, RUNNING, WAITING
from skate._engine.local.state.exits import exit_detail, exit_type
from skate._engine.local.state.records import ACTOR, Actor, Peer, Task
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

EVENTS_TIMEOUT_S = 1.0  # seconds to wait for the events of a busy actor
MAX_DEPTH = 100  # the depth limit of an explanation
STORE = "object_store_memory"
MAX_CALLS_KEPT = 20_000  # actor calls that are kept for the timeline


class Views:
    """Reads the machine; changes only its own record of actor calls."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._questions: dict[m.Question, Callable[[int, m.Ask], Any]] = {
            m.Question.TOTAL: lambda *_: to_floats(machine.scheduler.pool.total),
            m.Question.AVAILABLE: lambda *_: self._available(),
            m.Question.ACTORS: lambda *_: [self._actor_row(actor) for actor in machine.actors.table.values()],
            m.Question.WORKERS: lambda *_: self._workers(),
            m.Question.OBJECTS: lambda *_: self._objects(),
            m.Question.GROUPS: lambda *_: self._groups(),
            m.Question.JOBS: lambda *_: self._jobs(),
            m.Question.NAMED_ACTORS: self._named,
            m.Question.ACTOR_BY_NAME: self._actor_by_name,
            m.Question.ACTOR_BY_ID: self._actor_by_id,
            m.Question.GROUP_BY_NAME: self._group_by_name,
            m.Question.WHY: lambda _, ask: self._why(ask.subject),
            m.Question.OBJECT_STORE: lambda *_: self._memory(),
            m.Question.RUNTIME_ENVS: lambda *_: self._environments(),
        }
        self._calls: deque[dict[str, Any]] = deque(maxlen=MAX_CALLS_KEPT)
        self._unfinished: list[dict[str, Any]] = []
        self._gathering: dict[int, tuple[int, m.Ask, set[int]]] = {}
        self._next = 0
        self._asked_at = 0.0

    def next_tick(self) -> float | None:
        """Return the seconds until `tick` should be called, None for never."""
        return EVENTS_TIMEOUT_S if self._gathering else None

    def tick(self) -> None:
        """Answer without the events of actors that are too busy to reply."""
        if self._gathering and self._machine.now - self._asked_at >= EVENTS_TIMEOUT_S:
            for request in list(self._gathering):
                self._gathering[request][2].clear()
                self._finish(request)

    def ask(self, source: int, ask: m.Ask) -> None:
        """Answer a question, or refuse it."""
        if ask.question == m.Question.TASKS:
            self._gather(source, ask)
            return
        view = self._questions.get(ask.question)
        try:
            if view is None:
                raise KeyError(f"the node does not know the question {ask.question!r}")
            self._machine.answer(source, ask.request, view(source, ask))
        except LookupError as error:
            self._machine.refuse(source, ask.request, failures.value_error(str(error.args[0])))

    # ------------------------------------------------------------ tasks and actor calls

    def _gather(self, source: int, ask: m.Ask) -> None:
        """Collect the latest calls of all actors, then answer."""
        self._next += 1
        asked = {p.number for p in self._machine.peers.values() if p.state is ACTOR}
        asked.discard(source)
        self._gathering[self._next] = (source, ask, asked)
        self._asked_at = self._machine.now
        for number in asked:
            self._machine.send(number, m.SendEvents(self._next))
        self._finish(self._next)

    def events(self, source: int, message: m.Events) -> None:
        """Record the calls of an actor's process."""
        peer = self._machine.peers.get(source)
        for task, name, kind, started, ended, state, error in message.rows:
            # Unfinished calls are reported again each time.
            (self._calls if ended else self._unfinished).append(
                {
                    "task_id": task,
                    "name": name,
                    "type": kind,
                    "started": started,
                    "ended": ended,
                    "state": state,
                    "error": error,
                    "worker": source,
                    "pid": peer.pid if peer is not None else 0,
                    "job": peer.job if peer is not None else b"",
                }
            )
        if message.request in self._gathering:
            self._gathering[message.request][2].discard(source)
            self._finish(message.request)

    def peer_gone(self, number: int) -> None:
        """Stop waiting for the events of an ended process."""
        for request in [r for r, (_, _, asked) in self._gathering.items() if number in asked]:
            self._gathering[request][2].discard(number)
            self._finish(request)

    def _finish(self, request: int) -> None:
        source, ask, asked = self._gathering[request]
        if asked:
            return
        del self._gathering[request]
        if source in self._machine.peers:
            self._machine.answer(source, ask.request, self._tasks())

    def _tasks(self) -> list[dict[str, Any]]:
        rows = []
        for past in self._machine.tasks.history:
            spec = past["template"]
            assert isinstance(spec, m.TaskTemplate)
            rows.append(
                {
                    **self._spec_facts(past["task_id"], spec, past["job"]),  # type: ignore[arg-type]
                    "state": past["state"],
                    "created": past["created"],
                    "started": past["started"],
                    "ended": past["started"] + past["seconds"],  # type: ignore[operator]
                    "worker_id": past["worker"],
                    "worker_pid": past["pid"],
                    "attempt_number": past["attempt"],
                    "error_type": past["error"] or None,
                    "parent_task_id": past["parent"],
                }
            )
        unfinished, self._unfinished = self._unfinished, []
        rows += [
            {
                **self._task_basics(call["task_id"], call["name"], call["type"], call["job"]),
                "state": call["state"],
                "created": call["started"],
                "started": call["started"],
                "ended": call["ended"],
                "worker_id": call["worker"],
                "worker_pid": call["pid"],
                "attempt_number": 0,
                "error_type": call["error"] or None,
                "parent_task_id": b"",
                "required_resources": {},
                "func_or_class_name": call["name"],
            }
            for call in [*self._calls, *unfinished]
        ]
        for task in self._machine.tasks.table.values():
            if task.actor is not None and task.actor.state in (ALIVE, DEAD):
                continue  # its constructor has run, and is part of the history
            rows.append(
                {
                    **self._spec_facts(task.id, task.template.spec, task.template.cls.job),
                    "state": task.state,
                    "created": task.created,
                    "started": task.started,
                    "ended": 0.0,
                    "worker_id": task.worker.number if task.worker is not None else 0,
                    "worker_pid": task.worker.pid if task.worker is not None else 0,
                    "attempt_number": task.attempt,
                    "error_type": None,
                    "parent_task_id": task.parent,
                }
            )
        return rows

    @classmethod
    def _spec_facts(cls, id: bytes, spec: m.TaskTemplate, job: bytes) -> dict[str, Any]:
        creates = id.startswith(CREATION)
        kind = "ACTOR_CREATION_TASK" if creates else "NORMAL_TASK"
        name = f"{spec.name}.__init__" if creates else spec.name
        return {
            **cls._task_basics(id, name, kind, job),
            "required_resources": spec.resources,
            "func_or_class_name": name if creates else spec.qualname or spec.name,
            "placement_group_id": spec.group,
            "label_selector": spec.labels,
            "runtime_env": spec.environment,
        }

    @staticmethod
    def _task_basics(id: bytes, name: str, kind: str, job: bytes) -> dict[str, Any]:
        return {"task_id": id, "name": name, "type": kind, "job_id": job, "actor_id": ids.actor_of(id) or b""}

    # ------------------------------------------------------------ tables

    def _available(self) -> dict[str, float]:
        free = to_floats(self._machine.scheduler.pool.available)
        if STORE in free:
            free[STORE] = float(self._machine.store.available)
        return {k: v for k, v in free.items() if v > 0}

    def _actor_row(self, actor: Actor) -> dict[str, Any]:
        spec = actor.template.spec if actor.template is not None else None
        impossible = actor.template.impossible if actor.template is not None else ""
        return {
            "actor_id": actor.id,
            "class_name": actor.class_name,
            "state": actor.state,
            "name": actor.options.name,
            "namespace": actor.options.namespace,
            "job_id": actor.job,
            "pid": actor.worker.pid
            if actor.worker is not None
            else (actor.pid if actor.state is DEAD else 0),
            "worker_id": actor.worker.number if actor.worker is not None else 0,
            "num_restarts": actor.restarts,
            "is_detached": actor.options.detached,
            "placement_group_id": spec.group if spec is not None else b"",
            "required_resources": spec.resources if spec is not None else {},
            "label_selector": spec.labels if spec is not None else {},
            "runtime_env": spec.environment if spec is not None else "",
            "death_cause": actor.reason + (f": {impossible}" if impossible else ""),
            "address": actor.worker.address if actor.worker is not None else "",
            "start_time": actor.created,
            "end_time": actor.ended,
        }

    def _workers(self) -> list[dict[str, Any]]:
        rows = [self._worker_row(peer, alive=True) for peer in self._machine.peers.values()]
        rows += [self._worker_row(peer, alive=False) for peer in self._machine.gone]
        # Observers, such as commands, are not shown: they would change the result.
        hidden = {job for job, info in self._machine.job_info.items() if info.get("hidden")}
        return [row for row in rows if row["job_id"] not in hidden]

    @staticmethod
    def _worker_row(peer: Peer, *, alive: bool) -> dict[str, Any]:
        return {
            "worker_id": peer.number,
            "is_alive": alive,
            "worker_type": "DRIVER" if peer.is_driver else "WORKER",
            "pid": peer.pid,
            "state": peer.state,
            "job_id": peer.job,
            "blocked": peer.blocked > 0,
            "exit_type": None if alive else exit_type(peer),
            "exit_detail": "" if alive else exit_detail(peer),
            "exit_code": peer.exit_code,
            "start_time": peer.started,
            "end_time": peer.ended,
        }

    def _objects(self) -> list[dict[str, Any]]:
        rows = []
        for obj in self._machine.directory.objects.values():
            if self._machine.actors.is_handle(obj.id):
                continue
            rows.append(
                {
                    "object_id": obj.id,
                    "object_size": obj.size,
                    "state": obj.state,
                    "shared": obj.state == SHARED,
                    "spilled": obj.spilled,
                    "pinned": obj.pinned,
                    "owner": obj.owner,
                    "holders": sorted(obj.holders),
                    "held_by_tasks": obj.internal,
                }
            )
        return rows

    def _groups(self) -> list[dict[str, Any]]:
        return [
            {
                "placement_group_id": group.id,
                "name": group.name,
                "namespace": group.namespace,
                "bundles": group.bundles,
                "strategy": group.strategy,
                "state": group.state,
                "creator_job_id": group.creator_job,
                "is_detached": group.detached,
                "impossible": group.impossible,
            }
            for group in self._machine.groups.table.values()
        ]

    def _jobs(self) -> list[dict[str, Any]]:
        keys = ("pid", "started", "ended", "entrypoint", "namespace", "metadata", "runtime_env")
        return [
            {"job_id": job, **{key: info.get(key) for key in keys}}
            for job, info in self._machine.job_info.items()
            if not info.get("hidden")
        ]

    def _environments(self) -> list[dict[str, Any]]:
        counts: dict[str, int] = {}
        for peer in self._machine.peers.values():
            if peer.environment:
                counts[peer.environment] = counts.get(peer.environment, 0) + 1
        failed = self._machine.failed_environments
        return [
            *({"runtime_env": text, "ref_cnt": 0, "error": error} for text, error in failed.items()),
            *({"runtime_env": text, "ref_cnt": n} for text, n in counts.items() if text not in failed),
        ]

    def _memory(self) -> dict[str, Any]:
        store = self._machine.store
        return {
            "budget": store.budget,
            "used": store.used,
            "on_disk": store.disk_used,
            "spilled_bytes": store.spilled_bytes,
            "restored_bytes": store.restored_bytes,
            "objects": len(self._machine.directory.objects),
        }

    # ------------------------------------------------------------ names

    def _named(self, _: int, ask: m.Ask) -> list[dict[str, str]]:
        every = ask.text == "*"
        return [
            {"name": name, "namespace": namespace}
            for namespace, name in self._machine.actors.names
            if every or namespace == ask.text
        ]

    def _actor_by_name(self, _: int, ask: m.Ask) -> dict[str, object]:
        namespace, _separator, name = ask.text.partition("\n")
        actor = self._machine.actors.names.get((namespace, name))
        if actor is None:
            raise KeyError(failures.no_such_actor(name, namespace))
        return self._machine.actors.describe(actor)

    def _actor_by_id(self, _: int, ask: m.Ask) -> dict[str, object]:
        actor = self._machine.actors.table.get(ask.subject)
        if actor is None:
            raise KeyError(f"no actor has the id {ask.subject.hex()}")
        return self._machine.actors.describe(actor)

    def _group_by_name(self, _: int, ask: m.Ask) -> bytes:
        namespace, _separator, name = ask.text.partition("\n")
        group = self._machine.groups.find(name, namespace)
        if group is None:
            raise KeyError(f"Failed to look up placement group with name: {name}")
        return group.id

    # ------------------------------------------------------------ why

    def _why(self, id: bytes) -> list[str]:
        """Describe what an object waits for, one step per line, down to the cause."""
        lines: list[str] = []
        seen: dict[bytes, bool] = {}  # explained objects, and whether the explanation is in progress
        self._explain(id, lines, seen, 0)
        return lines

    def _explain(self, id: bytes, lines: list[str], seen: dict[bytes, bool], level: int) -> None:
        def say(text: str) -> None:
            lines.append("  " * level + text)

        short = id.hex()[:16]
        if id in seen:
            say(f"object {short}… is waited for again: " + ("this is a cycle" if seen[id] else "see above"))
        elif level > MAX_DEPTH:
            say(f"object {short}… is waited for, and so on")
        else:
            seen[id] = True
            self._explain_new(id, short, say, lines, seen, level)
            seen[id] = False

    def _explain_new(
        self,
        id: bytes,
        short: str,
        say: Callable[[str], None],
        lines: list[str],
        seen: dict[bytes, bool],
        level: int,
    ) -> None:
        obj = self._machine.directory.objects.get(id)
        if obj is not None and obj.state != PENDING:
            say(f"object {short}… is there" + (" (an error)" if obj.state == ERROR else ""))
            return
        actor = self._machine.actors.table.get(ids.actor_of(id) or b"")
        if actor is not None:
            self._explain_actor(actor, say, lines, seen, level)
            return
        task = self._machine.tasks.table.get(ids.task_of(id))
        if task is None:
            say(f"object {short}… is not known to the node")
            return
        self._explain_task(task, say, lines, seen, level)

    def _explain_task(
        self, task: Task, say: Callable[[str], None], lines: list[str], seen: dict[bytes, bool], level: int
    ) -> None:
        name = task.template.spec.name
        if task.state is WAITING:
            say(f"task {name} waits for its arguments:")
            for _, dependency in task.dependencies:
                obj = self._machine.directory.objects.get(dependency)
                if obj is None or obj.state == PENDING:
                    self._explain(dependency, lines, seen, level + 1)
        elif task.state is QUEUED:
            asked = task.template.spec.resources
            free = self._available()
            there = {resource: free.get(resource, 0.0) for resource in asked}
            say(f"task {name} waits for a worker: it asks for {asked}, available are {there}")
            for peer in self._machine.peers.values():
                if peer.grant is not None and any(n in peer.grant.amounts for n in task.template.cls.request):
                    who = peer.actor.class_name if peer.actor is not None else self._running(peer)
                    say(f"  pid {peer.pid} holds {to_floats(peer.grant.amounts)} for {who}")
        elif task.state is RUNNING and task.worker is not None:
            say(f"task {name} runs on pid {task.worker.pid}")
            for waited in task.worker.waiting_on.get(task.id, []):
                self._explain(waited, lines, seen, level + 1)

    @staticmethod
    def _running(peer: Peer) -> str:
        return ", ".join(task.template.spec.name for task in peer.tasks.values()) or "nothing"

    def _explain_actor(
        self, actor: Actor, say: Callable[[str], None], lines: list[str], seen: dict[bytes, bool], level: int
    ) -> None:
        if actor.worker is None:
            say(f"actor {actor.class_name} is {actor.state}")
            if actor.creation is not None:
                self._explain_task(actor.creation, say, lines, seen, level + 1)
            return
        say(f"actor {actor.class_name} (pid {actor.worker.pid}) is {actor.state} and has not returned it yet")
        for waited in actor.worker.waiting_on.values():
            for id in waited:
                self._explain(id, lines, seen, level + 1)
