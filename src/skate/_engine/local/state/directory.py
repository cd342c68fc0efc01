"""The object directory: the holders of each object, and the processes that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.ids import CREATION
from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED
from skate._engine.common import failures
from skate._engine.local.state.records import Object, Task
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine


class Directory:
    """The table of objects.

    An object lives while a process holds a reference to it (`holders`), or while a task's arguments or another object
    contain it (`internal`). A worker's death drops its holds, but never an object.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._send = machine.send
        self.objects: dict[bytes, Object] = {}
        self._settled: list[Object] = []  # objects whose dependents are not notified yet
        self._notifying = False

    # ------------------------------------------------------------ making and finding

    def declare(self, id: bytes, owner: int) -> Object:
        """Create the entry of an object that a task of `owner` will produce."""
        obj = self.objects.get(id)
        if obj is None:
            obj = self.objects[id] = Object(id, owner)
            obj.waiters = [owner]
        else:  # another process mentioned it before its owner
            obj.made = True
            obj.owner = owner
            _add_waiter(obj, owner)
        obj.holders.add(owner)
        peer = self._machine.peers.get(owner)
        if peer is not None:
            peer.holds.add(id)
        return obj

    def find(self, id: bytes) -> Object:
        """Return the entry of `id`; request the registration of an unknown object from its owner."""
        obj = self.objects.get(id)
        if obj is None:
            owner = ids.process_of(id)
            obj = self.objects[id] = Object(id, owner)
            obj.made = False
            if owner in self._machine.peers:
                self._send(owner, m.Inquire(id))
            else:
                self._settle(obj, ERROR, failures.owner_died(id))
        return obj

    def register(self, source: int, message: m.Register) -> None:
        """Register an object that only `source` knew."""
        obj = self.objects.get(message.id)
        is_new = obj is None or not obj.made
        if obj is None:
            obj = self.objects[message.id] = Object(message.id, source)
        obj.made = True
        if message.pinned:
            obj.internal += 1  # pickled outside of Skate: its end cannot be detected
        self._machine.peers[source].holds.add(message.id)
        obj.holders.add(source)
        if obj.state != PENDING:  # for example, an earlier attempt of its task made it
            self.discard(message.segment, source)
            return
        if message.state != PENDING:
            result = m.Result(message.state, message.data, message.segment, message.size, message.contains)
            self.fulfil(obj, result, source)
        elif is_new and not message.follows and self._cannot_come(message.id):
            self.fail(obj, failures.object_lost(message.id))

    def _cannot_come(self, id: bytes) -> bool:
        """Return whether a pending object belongs to a task that has ended."""
        if ids.actor_of(id) is not None or not ids.index_of(id):
            return False  # the caller of the actor, or the reader of the generator, registers the value
        return ids.task_of(id) not in self._machine.tasks.table

    # ------------------------------------------------------------ values

    def fulfil(self, obj: Object, result: m.Result, source: int) -> None:
        """Give an object its value and notify all processes and tasks that wait for it."""
        if obj.state != PENDING:  # a duplicate, for example of a retried task
            self.discard(result.segment, source)
            return
        for inner in result.contains:
            self.find(inner).internal += 1
        obj.contains = result.contains
        if result.state == SHARED:
            obj.segment = result.segment
            obj.size = result.size
            self._machine.store.adopt(obj, source)
        else:
            obj.size = len(result.data)
        self._settle(obj, result.state, result.data)
        if not obj.holders and not obj.internal:
            self.free(obj)

    def _settle(self, obj: Object, state: int, data: bytes) -> None:
        obj.state = state
        obj.data = data
        waiters = obj.waiters
        if waiters:
            ready = m.Ready(obj.id, state, data)
            peers = self._machine.peers
            for number in waiters:
                if number in peers:
                    self._send(number, ready)
            obj.waiters = None
        if obj.wanting:  # requested before it was ready
            wanting, obj.wanting = obj.wanting, ()
            for number in wanting:
                if number in self._machine.peers:
                    self._machine.store.pin(number, [obj.id])
            obj.internal -= len(wanting)
            self.maybe_free(obj)
        if obj.dependents:
            self._settled.append(obj)
            if not self._notifying:
                self._notify_dependents()

    def _notify_dependents(self) -> None:
        """Notify the tasks that wait for settled objects, which may settle more objects."""
        self._notifying = True
        settled = self._settled
        while settled:  # not recursive, because an error may pass through a long chain of tasks
            obj = settled.pop()
            dependents, obj.dependents = obj.dependents, None
            for task in dependents or ():
                self._machine.tasks.dependency_ready(task, obj)
        self._notifying = False

    def fail(self, obj: Object, error: bytes) -> None:
        """Give a pending object an error in place of a value."""
        if obj.state == PENDING:
            self._settle(obj, ERROR, error)

    def discard(self, segment: str, source: int) -> None:
        """Release the shared memory of an unneeded value."""
        if segment:
            self._machine.store.abandon(segment, source)

    # ------------------------------------------------------------ holds

    def hold(self, source: int, wanted: list[bytes]) -> None:
        """Add `source` to the holders of these objects."""
        holds = self._machine.peers[source].holds
        for id in wanted:
            self.find(id).holders.add(source)
            holds.add(id)

    def release(self, source: int, dropped: list[bytes]) -> None:
        """Remove `source` from the holders of these objects."""
        peer = self._machine.peers.get(source)
        for id in dropped:
            if peer is not None:
                if peer.pins and id in peer.pins:
                    continue  # pinned for a task meanwhile: the process will release it again
                peer.holds.discard(id)
            obj = self.objects.get(id)
            if obj is not None:
                holders = obj.holders
                holders.discard(source)
                if not holders:
                    if obj.internal <= 0 and not obj.dependents:
                        self.free(obj)
                elif len(holders) == 1:
                    self._machine.actors.handle_dropped(obj)

    def hold_inside(self, wanted: list[bytes]) -> None:
        """Count a hold of a task's arguments on these objects."""
        for id in wanted:
            self.find(id).internal += 1

    def release_inside(self, dropped: Sequence[bytes]) -> None:
        """Remove a hold of a task's arguments on these objects."""
        for id in dropped:
            obj = self.objects.get(id)
            if obj is not None:
                obj.internal -= 1
                if not obj.holders:
                    self.maybe_free(obj)
                elif len(obj.holders) == 1:
                    self._machine.actors.handle_dropped(obj)

    def maybe_free(self, obj: Object) -> None:
        """Free the object if nothing refers to it."""
        if not obj.holders and obj.internal <= 0 and not obj.dependents:
            self.free(obj)

    def free(self, obj: Object) -> None:
        """Remove the object, and release the objects that it contains."""
        if not (obj.contains or obj.segment or obj.state == SHARED or obj.id.startswith(CREATION)):
            self.objects.pop(obj.id, None)  # most objects are small values
            return
        stack = [obj]
        while stack:  # not recursive, because a chain of objects may be long
            gone = stack.pop()
            if self.objects.pop(gone.id, None) is None:
                continue
            if self._machine.actors.handle_gone(gone):
                continue
            self._machine.store.forget(gone)
            for id in gone.contains:
                inner = self.objects.get(id)
                if inner is not None:
                    inner.internal -= 1
                    if not inner.holders and inner.internal <= 0 and not inner.dependents:
                        stack.append(inner)
                    elif len(inner.holders) == 1:
                        self._machine.actors.handle_dropped(inner)

    def free_now(self, unwanted: list[bytes]) -> None:
        """Drop the values of these objects even if references exist; a later `get` raises an error."""
        for id in unwanted:
            obj = self.objects.get(id)
            if obj is not None and obj.state in (INLINE, SHARED):
                self._machine.store.free_value(obj)
                obj.state = ERROR
                obj.data = failures.object_freed(id)
                self._machine.tasks.argument_freed(obj)

    # ------------------------------------------------------------ waiting

    def subscribe(self, source: int, wanted: list[bytes]) -> None:
        """Notify `source` when these objects are ready."""
        for id in wanted:
            obj = self.find(id)
            if obj.state == PENDING:
                _add_waiter(obj, source)
            else:
                self._send(source, m.Ready(id, obj.state, obj.data))

    def watch(self, task: Task, id: bytes) -> bool:
        """Make `task` depend on an object; return whether the object is still pending."""
        obj = self.find(id)
        obj.internal += 1
        if obj.state == PENDING:
            if obj.dependents is None:
                obj.dependents = []
            obj.dependents.append(task)
            return True
        return False

    # ------------------------------------------------------------ ended processes

    def process_gone(self, number: int, held: set[bytes]) -> None:
        """Drop the holds of an ended process, and fail objects that only it could have made."""
        for id in held:
            obj = self.objects.get(id)
            if obj is None:
                continue
            if (
                obj.state == PENDING
                and obj.owner == number
                and ids.task_of(id) not in self._machine.tasks.table
            ):
                self._fail_lost(obj)
            obj.holders.discard(number)
            if not obj.holders:
                self.maybe_free(obj)
            elif len(obj.holders) == 1:
                self._machine.actors.handle_dropped(obj)
        for obj in [o for o in self.objects.values() if not o.made and o.owner == number]:
            self._fail_lost(obj)
            self.maybe_free(obj)

    def _fail_lost(self, obj: Object) -> None:
        if not self._machine.actors.is_handle(obj.id):
            obj.made = True
            self.fail(obj, failures.owner_died(obj.id))

    def unknown(self, id: bytes) -> None:
        """Fail an object that its supposed owner does not know."""
        obj = self.objects.get(id)
        if obj is not None and not obj.made:
            obj.made = True
            self.fail(obj, failures.object_lost(id))
            self.maybe_free(obj)


def _add_waiter(obj: Object, number: int) -> None:
    if obj.waiters is None:
        obj.waiters = [number]
    else:
        obj.waiters.append(number)
