"""Answers to queries about the node, for the state API, the CLI and `why`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from skate._base import ids
from skate._base.object_ref import ERROR, PENDING, SHARED
from skate._engine.common import failures
from skate._engine.common.resources import to_floats
from skate._engine.common.states import DEAD, QUEUED, RUNNING, WAITING
from skate._engine.local.state import task_rows
from skate._engine.local.state.activity import Activity, Call
from skate._engine.local.state.exits import exit_detail, exit_type
from skate._engine.local.state.records import ACTOR, IDLE, LEASED, Actor, Peer, Task
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

GATHERING_TIMEOUT_S = 1.0  # seconds to wait for the events or objects of a busy process
MAX_DEPTH = 100  # the depth limit of an explanation
STORE = "object_store_memory"
MAX_CALLS_KEPT = 20_000  # actor calls that are kept for the timeline


class _Gathering(NamedTuple):
    """A question that waits for what other processes know."""

    source: int
    ask: m.Ask
    asked: set[int]  # processes that have not answered
    unfinished: list[Call]  # calls of actors
    objects: list[dict[str, Any]]  # rows of objects that are private to a process


class Views:
    """Reads the machine; changes only its own record of actor calls."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._questions: dict[m.Question, Callable[[int, m.Ask], Any]] = {
            m.Question.TOTAL: lambda *_: to_floats(machine.scheduler.pool.total),
            m.Question.AVAILABLE: lambda *_: self._available(),
            m.Question.ACTORS: lambda *_: [self._actor_row(actor) for actor in machine.actors.table.values()],
            m.Question.WORKERS: lambda *_: self._workers(),
            m.Question.GROUPS: lambda *_: self._groups(),
            m.Question.JOBS: lambda *_: self._jobs(),
            m.Question.NAMED_ACTORS: self._named,
            m.Question.ACTOR_BY_NAME: self._actor_by_name,
            m.Question.ACTOR_BY_ID: self._actor_by_id,
            m.Question.GROUP_BY_NAME: self._group_by_name,
            m.Question.WHY: lambda _, ask: self._why(ask.subject),
            m.Question.OBJECT_STORE: lambda *_: self._memory(),
            m.Question.RUNTIME_ENVS: lambda *_: self._environments(),
            m.Question.SUMMARY: lambda *_: self._activity.summary(self._available(), self._memory()),
            m.Question.MEMORY_BY_PROCESS: lambda _, ask: self._activity.memory(int(ask.text)),
        }
        self.calls: deque[Call] = deque(maxlen=MAX_CALLS_KEPT)  # finished ones
        self.call_counts: dict[str, int] = {}  # finished calls by state, with those that are no longer kept
        self._activity = Activity(machine, self)
        self._gathering: dict[int, _Gathering] = {}
        self._next = 0
        self._asked_at = 0.0

    def next_tick(self) -> float | None:
        """Return the seconds until `tick` should be called, None for never."""
        return GATHERING_TIMEOUT_S if self._gathering else None

    def tick(self) -> None:
        """Answer without what processes know that are too busy to reply."""
        if self._gathering and self._machine.now - self._asked_at >= GATHERING_TIMEOUT_S:
            for request in list(self._gathering):
                self._gathering[request].asked.clear()
                self._finish(request)

    def ask(self, source: int, ask: m.Ask) -> None:
        """Answer a question, or refuse it."""
        peers = self._machine.peers.values()
        if ask.question in (m.Question.TASKS, m.Question.TASK_EVENTS):
            actors = {peer.number for peer in peers if peer.state is ACTOR}
            self._gather(source, ask, actors - {source}, m.SendEvents)
            return
        if ask.question == m.Question.OBJECTS:
            running = {
                peer.number
                for peer in peers
                if peer.state in (IDLE, LEASED, ACTOR) and not peer.killed and not peer.info.get("observer")
            }
            self._gather(source, ask, running, m.SendObjects)
            return
        view = self._questions.get(ask.question)
        try:
            if view is None:
                raise KeyError(f"the node does not know the question {ask.question!r}")
            self._machine.answer(source, ask.request, view(source, ask))
        except LookupError as error:
            self._machine.refuse(source, ask.request, failures.value_error(str(error.args[0])))

    # ------------------------------------------------------------ what only other processes know

    def _gather(
        self, source: int, ask: m.Ask, asked: set[int], request: Callable[[int], m.SendEvents | m.SendObjects]
    ) -> None:
        """Collect the latest calls of actors, or the private objects of processes, then answer."""
        self._next += 1
        self._gathering[self._next] = _Gathering(source, ask, asked, [], [])
        self._asked_at = self._machine.now
        for number in asked:
            self._machine.send(number, request(self._next))
        self._finish(self._next)

    def private_objects(self, source: int, message: m.PrivateObjects) -> None:
        """Take the objects that only a process knows."""
        gathering = self._gathering.get(message.request)
        if gathering is not None:
            gathering.objects.extend(_private_row(source, *row) for row in message.rows)
            gathering.asked.discard(source)
            self._finish(message.request)

    def events(self, source: int, message: m.Events) -> None:
        """Record the calls of an actor's process."""
        peer = self._machine.peers.get(source)
        gathering = self._gathering.get(message.request)
        for task, name, kind, started, ended, state, error in message.rows:
            call = {
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
            if ended:
                self.calls.append(call)
                self.call_counts[state] = self.call_counts.get(state, 0) + 1
            elif gathering is not None:  # unfinished calls are reported again each time
                gathering.unfinished.append(call)
        if gathering is not None:
            gathering.asked.discard(source)
            self._finish(message.request)

    def peer_gone(self, number: int) -> None:
        """Stop waiting for the events of an ended process."""
        for request in [r for r, gathering in self._gathering.items() if number in gathering.asked]:
            self._gathering[request].asked.discard(number)
            self._finish(request)

    def _finish(self, request: int) -> None:
        source, ask, asked, unfinished, objects = self._gathering[request]
        if asked:
            return
        del self._gathering[request]
        if source not in self._machine.peers:
            return
        if ask.question == m.Question.TASK_EVENTS:
            self._machine.answer(source, ask.request, self._activity.task_events(ask.text, unfinished))
        elif ask.question == m.Question.OBJECTS:
            self._machine.answer(source, ask.request, self._objects(objects))
        else:
            self._machine.answer(source, ask.request, self._tasks(unfinished))

    def _tasks(self, calls: list[Call]) -> list[task_rows.Row]:
        tasks = self._machine.tasks
        return [
            *map(task_rows.finished_row, tasks.history),
            *map(task_rows.call_row, [*self.calls, *calls]),
            *map(task_rows.unfinished_row, filter(task_rows.is_listed, tasks.table.values())),
        ]

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
            "repr_name": actor.repr,
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

    def _objects(self, private: list[dict[str, Any]]) -> list[dict[str, Any]]:
        known = self._machine.directory.objects
        rows = [row for row in private if row["object_id"] not in known]
        for obj in known.values():
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
            "used": max(
                0, store.budget - store.available
            ),  # without segments that writers keep for the next objects
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
            raise KeyError(f"no placement group has the name {name!r}")
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
            say(f"object {short}… is not known to the node: its task has not arrived yet, or has ended")
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


def _private_row(owner: int, id: bytes, state: int, size: int) -> dict[str, Any]:
    """Return the row of an object that only its owner knows."""
    return {
        "object_id": id,
        "object_size": size,
        "state": state,
        "shared": False,
        "spilled": False,
        "pinned": 0,
        "owner": owner,
        "holders": [owner],
        "held_by_tasks": 0,
    }
