"""The wait-for graph of a session: what could still end each wait.

The graph joins the node's state with the reports of processes. Each condition is a superset of what can happen, so
that nodes which are stuck in the graph are stuck in the session:

- A process continues when it is active, or when any wait of its threads and coroutines ends. It is active if it has a
  thread outside of a recorded wait, a wait with a time-out, a timer, or a file that an event loop watches; if a
      message
  is on its way to it, or one of its tasks is cancelled; and if it has not reported, or is about to end.
- `get` ends when all its objects are ready, or one of them is an error; so one pending object that can still become
  ready is enough. `wait` needs as many as `num_returns`. The arguments of a task are like the objects of a `get`.
- An object becomes ready when its maker continues: the process that runs the task, the actor that has received the
  call, the caller that has yet to send it, or the request for resources that the task waits for.
- A request continues when it fits into the free resources and those that its holders could return. A task returns its
  resources when it ends; while it is blocked, its CPUs are free already. An actor that waits, or has calls to answer,
  returns them only if it continues. An idle actor may end at any time, for example when the garbage collector finds
      its
  last handle. A placement group may be removed by any process of its job, or by any process if it has a name: each of
  them must be stuck too, and so must every task that could still start.
- An actor that can run another call may also continue because of a process that has, or could get, a handle to it.

The graph ignores on purpose that a process outside of a deadlock may kill or cancel one of its members. That is the
remedy for a deadlock, not a way in which it ends by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skate._base import ids
from skate._base.object_ref import PENDING
from skate._engine.common.resources import Pool, Request
from skate._engine.common.states import ALIVE, DEAD, QUEUED, RUNNING, WAITING
from skate._engine.local.state.records import LEAVING, STARTING, Actor, Peer, SchedulingClass
from skate._engine.local.state.waits import Graph, Key
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

Reports = Mapping[int, m.WaitReport]

# Kinds of nodes; the key of a node is its kind and its identity.
PROCESS = "process"  # number
WAIT = "wait"  # number of the process, number of the wait
OBJECT = "object"  # id
TASK = "task"  # id
DEMAND = "demand"  # class, or id of a group: a request for resources
POOL = "pool"  # class, bundle: the request in one bundle of a placement group
ACTOR_RELEASE = "actor"  # id: the actor returns its resources
GROUP_RELEASE = "group"  # id: the placement group is removed
JOB = "job"  # id, b"" for all: any process of the job, and any task that has yet to run


class WaitGraph:
    """The graph of everything that the nodes in `starts` wait for, directly and indirectly.

    Args:
        machine: The node's state.
        reports: The waits of processes; a process without a report counts as active.
        starts: The nodes to start with.
        passive: Whether idle actors and placement groups could return their resources.
    """

    def __init__(
        self, machine: Machine, reports: Reports, starts: list[Key], *, passive: bool = True
    ) -> None:
        self._machine = machine
        self._reports = reports
        self._passive = passive
        self._held = {number: set(report.calls) for number, report in reports.items()}
        self._in_flight = self._find_receivers()
        # Objects that become ready with a group.
        self._watched = {id: group for group in machine.groups.table.values() for id, _ in group.watchers}
        self.graph = Graph()
        self._todo = list(starts)
        describe: dict[str, Any] = {
            PROCESS: self._process,
            OBJECT: self._object,
            TASK: self._task,
            DEMAND: self._demand,
            POOL: self._pool,
            ACTOR_RELEASE: self._actor_release,
            GROUP_RELEASE: self._group_release,
            JOB: self._job,
        }
        while self._todo:
            key: Any = self._todo.pop()
            if key not in self.graph:
                describe[key[0]](key, *key[1:])
        self.stuck = self.graph.reduce()

    def holders(self, demand: Key) -> list[Any]:
        """Return the holders of the resources that a request needs."""
        found: list[Any] = []
        todo: list[Any] = [demand]
        while todo:
            for key in self.graph.waited_for(todo.pop()):
                (todo if key[0] in (DEMAND, POOL) else found).append(key)  # type: ignore[index]
        return list(dict.fromkeys(found))

    def _wait(self, key: Key, on: list[Key], need: int = 1) -> None:
        self.graph.add_wait(key, on, need)
        self._todo += on

    # ------------------------------------------------------------ processes

    def _find_receivers(self) -> set[int]:
        """Return the processes that a message is on its way to: a call, its cancellation, or its reply."""
        found = set()
        for number, report in self._reports.items():
            for call in report.sent:
                actor = self._machine.actors.table.get(ids.actor_of(call) or b"")
                worker = actor.worker if actor is not None else None
                if worker is None or call not in self._held.get(worker.number, ()):
                    found |= {number} if worker is None else {number, worker.number}
            for call in report.cancelled:
                actor = self._machine.actors.table.get(ids.actor_of(call) or b"")
                if actor is not None and actor.worker is not None:
                    found.add(actor.worker.number)
        return found

    def _process(self, key: Key, number: int) -> None:
        peer = self._machine.peers.get(number)
        if peer is None or peer.info.get("observer"):  # it is gone, or an observer
            self._wait(key, [])
            return
        report = self._reports.get(number)
        if report is None or self._is_active(peer, report):
            self.graph.add_active(key)
            return
        on: list[Key] = []
        for wait, _, need, objects in report.waits:
            own = (WAIT, number, wait)
            if self._are_made(objects, need):
                self.graph.add_active(own)
            else:
                self._wait(own, [(OBJECT, id) for id in objects], need)
            on.append(own)
        if self._are_made(report.awaited, 1):
            self.graph.add_active(key)
            return
        on += [(OBJECT, id) for id in report.awaited]
        if peer.actor is not None and report.takes_calls:
            on += self._callers(peer.actor)
        elif peer.actor is None and not peer.is_driver and not peer.tasks:
            on.append((JOB, peer.job))  # it may get a task
        self._wait(key, on)

    def _is_active(self, peer: Peer, report: m.WaitReport) -> bool:
        return (
            report.active
            or peer.number in self._in_flight
            or bool(peer.killed)
            or peer.said_goodbye
            or peer.state in (STARTING, LEAVING)
            or (peer.actor is not None and peer.actor.state is DEAD)
            or any(task.cancelled for task in peer.tasks.values())
            # It got a task after its report.
            or (bool(peer.tasks) and not report.waits and not report.awaited)
        )

    def _callers(self, actor: Actor) -> list[Key]:
        """Return the processes that could call the actor, because they have or could get a handle."""
        handle = self._machine.directory.objects.get(actor.handle)
        if handle is None or handle.internal > 0 or actor.options.name:
            return [(JOB, b"")]
        own = actor.worker.number if actor.worker is not None else 0
        return [(PROCESS, number) for number in sorted(handle.holders) if number != own]

    def _job(self, key: Key, job: bytes) -> None:
        machine = self._machine
        on: list[Key] = [(PROCESS, p.number) for p in machine.peers.values() if not job or p.job == job]
        # Queued tasks are one node per class; tasks that wait for arguments are one node each.
        on += [(DEMAND, cls) for cls in machine.scheduler.waiting if not job or cls.job == job]
        on += [
            (TASK, task.id)
            for task in machine.tasks.table.values()
            if task.state is WAITING and (not job or task.template.cls.job == job)
        ]
        self._wait(key, on)

    # ------------------------------------------------------------ objects and tasks

    def _are_made(self, objects: Sequence[bytes], need: int) -> bool:
        """Return whether active processes run the tasks of at least `need` of these objects.

        A program may wait for a million objects. Usually the first ones are being made, so that the others need not be
        described.
        """
        made = set()
        for id in objects:
            if self._is_made(id):
                made.add(id)
                if len(made) >= need:
                    return True
        return False

    def _is_made(self, id: bytes) -> bool:
        if id in self._watched or ids.actor_of(id) is not None:
            return False
        task = self._machine.tasks.table.get(ids.task_of(id))
        if task is None or task.state is not RUNNING or task.worker is None:
            return False
        report = self._reports.get(task.worker.number)
        return report is None or self._is_active(task.worker, report)

    def _object(self, key: Key, id: bytes) -> None:
        obj = self._machine.directory.objects.get(id)
        if obj is not None and obj.state != PENDING:
            self.graph.add_active(key)
        elif id in self._watched:
            self._wait(key, [(DEMAND, self._watched[id].id)])
        elif ids.actor_of(id) is not None:
            self._call(key, id)
        elif ids.task_of(id) in self._machine.tasks.table:
            self._wait(key, [(TASK, ids.task_of(id))])
        else:
            self.graph.add_active(key)

    def _call(self, key: Key, id: bytes) -> None:
        """Describe the result of a call, depending on where the call is."""
        call = ids.task_of(id)
        actor = self._machine.actors.table.get(ids.actor_of(id) or b"")
        if actor is None or actor.state is DEAD:
            self.graph.add_active(key)
            return
        if actor.worker is not None and call in self._held.get(actor.worker.number, ()):
            self._wait(key, [(PROCESS, actor.worker.number)])
            return
        report = self._reports.get(ids.process_of(id))
        for target, calls, needed in report.unsent if report is not None else ():
            if target == actor.id and call in calls:
                on: list[Key] = [(OBJECT, other) for other in needed]
                if actor.state is not ALIVE and actor.creation is not None:
                    on.append((TASK, actor.creation.id))
                if on:
                    self._wait(key, on)
                    return
        self.graph.add_active(key)

    def _task(self, key: Key, id: bytes) -> None:
        task = self._machine.tasks.table.get(id)
        if task is None or task.cancelled or task.template.impossible:
            self.graph.add_active(key)
        elif task.state is WAITING:
            objects = self._machine.directory.objects
            pending = [o for _, o in task.dependencies if o in objects and objects[o].state == PENDING]
            self._wait(key, [(OBJECT, o) for o in pending]) if pending else self.graph.add_active(key)
        elif task.state is QUEUED:
            self._wait(key, [(DEMAND, task.template.cls)])
        elif task.state is RUNNING and task.worker is not None:
            self._wait(key, [(PROCESS, task.worker.number)])
        else:
            self.graph.add_active(key)

    # ------------------------------------------------------------ resources

    def _demand(self, key: Key, asking: SchedulingClass | bytes) -> None:
        groups = self._machine.groups.table
        main = self._machine.scheduler.pool
        if isinstance(asking, bytes):
            group = groups[asking]
            if group.state != "PENDING":
                self.graph.add_active(key)
            else:
                self._ask(key, group.total(), main)
        elif not asking.group:
            self._ask(key, asking.request, main)
        elif asking.group not in groups or groups[asking.group].state not in ("PENDING", "CREATED"):
            self.graph.add_active(key)
        elif groups[asking.group].state == "PENDING":
            self._wait(key, [(DEMAND, asking.group)])
        else:
            count = len(groups[asking.group].pools)
            bundles = range(count) if asking.bundle < 0 else [asking.bundle]
            self._wait(key, [(POOL, asking, bundle) for bundle in bundles])

    def _pool(self, key: Key, cls: SchedulingClass, bundle: int) -> None:
        self._ask(key, cls.request, self._machine.groups.table[cls.group].pools[bundle])

    def _ask(self, key: Key, request: Request, pool: Pool) -> None:
        """Describe a request to a pool, with all holders of its resources."""
        holders: list[tuple[Request, Key]] = []
        for peer in self._machine.peers.values():
            grant = peer.grant
            if grant is not None and grant.pool is pool:
                held = {n: a for n, a in grant.amounts.items() if not (n == "CPU" and grant.lent)}
                actor = peer.actor
                holders.append((held, (PROCESS, peer.number) if actor is None else (ACTOR_RELEASE, actor.id)))
        for group in self._machine.groups.table.values():
            holders += [
                (grant.amounts, (GROUP_RELEASE, group.id)) for grant in group.grants if grant.pool is pool
            ]
        self.graph.add_demand(key, request, pool.available, holders)
        self._todo += [holder for _, holder in holders]

    def _actor_release(self, key: Key, id: bytes) -> None:
        actor = self._machine.actors.table[id]
        worker = actor.worker
        if worker is None or actor.state is DEAD:
            self.graph.add_active(key)
            return
        if not is_idle(self._reports.get(worker.number)):
            self._wait(key, [(PROCESS, worker.number)])
        elif self._passive:
            self.graph.add_active(key)
        else:
            self._wait(key, [])

    def _group_release(self, key: Key, id: bytes) -> None:
        group = self._machine.groups.table[id]
        if not self._passive:
            self._wait(key, [])
        else:
            self._wait(key, [(JOB, b"" if group.detached or group.name else group.creator_job)])


def is_idle(report: m.WaitReport | None) -> bool:
    """Return whether a process has reported that it is idle."""
    return report is not None and not (report.active or report.waits or report.awaited or report.calls)
