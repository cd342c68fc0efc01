"""Private results of tasks: the node forwards them to their owner, and registers those that others may need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.object_ref import INLINE, SHARED
from skate._engine.local.state.records import Task
from skate._engine.local.state.tasks_ahead import update_mean
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine


class PrivateResults:
    """Sends the results of tasks with `private` set to the processes that submitted them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def done_many(self, source: int, message: m.DoneMany) -> None:
        """Handle tasks that returned a small value each."""
        machine = self._machine
        peer = machine.peers.get(source)
        if peer is None:
            return
        tasks, running, objects = machine.tasks, peer.tasks, machine.directory.objects
        task = values = None
        owner = 0
        finished: list[tuple[Task, float]] = []
        # The hot path of the node: it calls a function only for what the tasks of a burst do not have in common.
        for id, value, started, seconds in zip(
            message.tasks, message.values, message.started, message.seconds, strict=True
        ):
            done = running.pop(id, None)
            if done is None:
                continue
            task = done
            task.started = started
            if task.private and id + ids.FIRST_INDEX not in objects and not tasks.memory_retries:
                if values is None or task.owner != owner:
                    owner = task.owner
                    values = self._values_for(owner)
                values.tasks.append(id)
                values.values.append(value)
                del tasks.table[id]
            else:
                values = None  # another message may follow it
                tasks.complete(task, [m.Result(INLINE, value)], source)
            finished.append((task, seconds))
            update_mean(task.template, seconds)
        tasks.record_finished(finished, peer)
        if task is not None:
            machine.scheduler.tasks_over(peer, task.template.cls)

    def _values_for(self, owner: int) -> m.Values:
        """Return the message that takes small values to their owner."""
        values = self._machine.last_sent(owner, m.Values)
        if values is None:
            values = m.Values([], [])
            if owner in self._machine.peers:
                self._machine.send(owner, values)
        return values

    def complete(self, task: Task, result: m.Result, source: int) -> None:
        """Send a result to the owner; first register it if the owner alone cannot keep it, or has shared it."""
        machine = self._machine
        owner = task.owner
        is_owned = owner in machine.peers
        obj = machine.directory.objects.get(task.id + ids.FIRST_INDEX)
        if is_owned and (result.state == SHARED or result.contains):
            obj = machine.directory.declare(task.id + ids.FIRST_INDEX, owner)
            obj.waiters = [number for number in obj.waiters or () if number != owner]
        if obj is not None:
            obj.made = True
            machine.directory.fulfil(obj, result, source)
        else:
            machine.directory.discard(result.segment, source)
        if is_owned:
            machine.send(owner, m.PrivateResult(task.id, result, obj is not None))
