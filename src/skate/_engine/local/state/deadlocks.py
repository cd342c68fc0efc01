"""Finding wait cycles: a get that can never return, because what it waits for waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.object_ref import PENDING
from skate._engine.common import failures
from skate._engine.local import messages as m
from skate._engine.local.state.records import RUNNING, WAITING, Peer

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine


DOUBT = 0.1  # seconds that a wait cycle must last to be one


class Deadlocks:
    """Tells processes that wait in a cycle, once that is sure.

    Actors answer each other without the node, so that what looks like a cycle may be over already.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._suspects: list[tuple[float, int, m.Blocked]] = []

    def suspect(self, source: int, message: m.Blocked) -> None:
        """Look at a process that begins to wait without a limit of time."""
        if find_cycle(self._machine, self._machine.peers[source], message.objects):
            self._suspects.append((self._machine.now, source, message))

    def next_tick(self) -> float | None:
        """Return after how many seconds `tick` should be called, None for not at all."""
        return DOUBT if self._suspects else None

    def tick(self) -> None:
        """Tell who still waits in a cycle."""
        suspects, self._suspects = self._suspects, []
        for since, source, message in suspects:
            peer = self._machine.peers.get(source)
            if peer is None or peer.waiting_on.get(message.task) is not message.objects:
                continue
            if self._machine.now - since < DOUBT:
                self._suspects.append((since, source, message))
                continue
            cycle = find_cycle(self._machine, peer, message.objects)
            if cycle:
                self._machine.send(source, m.Deadlock(message.task, failures.wait_cycle(cycle)))


def find_cycle(machine: Machine, start: Peer, objects: list[bytes]) -> list[str]:
    """Return who waits for whom when `start` waits for itself in the end; empty when it does not.

    Only plain tasks and actors that run one call at a time are followed: they do nothing else while
    they wait, so that a cycle through them cannot resolve itself.
    """
    seen: set[bytes] = set()
    path: list[str] = []
    stack = [(0, id) for id in reversed(objects)]
    while stack:  # not recursion: a chain of tasks may be long
        depth, id = stack.pop()
        del path[depth:]
        obj = machine.directory.objects.get(id)
        if id in seen or (obj is not None and obj.state != PENDING):
            continue
        seen.add(id)
        holder, name, next_objects = _maker(machine, id)
        path.append(name)
        if holder is start:
            return path
        stack += [(depth + 1, next_object) for next_object in reversed(next_objects)]
    return []


def _maker(machine: Machine, id: bytes) -> tuple[Peer | None, str, list[bytes]]:
    """Return the blocked process that would make an object, its name, and what it waits for."""
    actor = machine.actors.table.get(ids.actor_of(id) or b"")
    if actor is not None:
        worker = actor.worker
        options = actor.options
        if worker is None or options.is_async or options.max_concurrency > 1 or options.groups:
            return None, "", []
        waits = [
            waited
            for call, objects in worker.waiting_on.items()
            if call not in worker.timed
            for waited in objects
        ]
        return (worker if waits else None), f"actor {actor.class_name} (pid {worker.pid})", waits
    task = machine.tasks.table.get(ids.task_of(id))
    if task is None:
        return None, "", []
    name = f"task {task.template.spec.name}"
    if task.state is WAITING:
        return None, f"{name} (its arguments)", [dependency for _, dependency in task.dependencies]
    if task.state is RUNNING and task.worker is not None:
        waits = [] if task.id in task.worker.timed else task.worker.waiting_on.get(task.id, [])
        return (task.worker if waits else None), f"{name} (pid {task.worker.pid})", waits
    return None, "", []
