"""The object directory: who holds which object, and who is told when it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base import ids
from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED
from skate._engine.common import failures
from skate._engine.local.state.records import Object, Task
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine


class Directory:
    """Holds the table of objects.

    An object lives while a process holds a reference to it (`holders`), or while a task's arguments
    or another object contain it (`internal`). A worker's death drops its holds but never an object.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._send = machine.send
        self.objects: dict[bytes, Object] = {}
        self._settled: list[Object] = []  # whose dependents have yet to be told
        self._telling = False

    # ------------------------------------------------------------ making and finding

    def declare(self, id: bytes, owner: int) -> Object:
        """Make the entry of an object that a task of `owner` will produce."""
        obj = self.objects.get(id)
        if obj is None:
            obj = self.objects[id] = Object(id, owner)
        else:  # somebody spoke of it before its maker did
            obj.made = True
            obj.owner = owner
        obj.holders.add(owner)
        obj.waiters.append(owner)
        peer = self._machine.peers.get(owner)
        if peer is not None:
            peer.holds.add(id)
        return obj

    def find(self, id: bytes) -> Object:
        """Return the entry of `id`; one that its maker has yet to tell us of is asked for."""
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
        """Take over an object that only `source` knew so far."""
        obj = self.objects.get(message.id)
        is_new = obj is None or not obj.made
        if obj is None:
            obj = self.objects[message.id] = Object(message.id, source)
        obj.made = True
        if message.pinned:
            obj.internal += 1  # pickled outside of Skate: nobody can tell when it is done with
        self._machine.peers[source].holds.add(message.id)
        obj.holders.add(source)
        if obj.state != PENDING:  # made by an earlier attempt of its task, for example
            self.discard(message.segment, source)
            return
        if message.state != PENDING:
            result = m.Result(message.state, message.data, message.segment, message.size, message.contains)
            self.fulfil(obj, result, source)
        elif is_new and self._cannot_come(message.id):
            self.fail(obj, failures.lost(message.id))

    def _cannot_come(self, id: bytes) -> bool:
        """Tell whether a pending object would be made by a task that is over."""
        if ids.actor_of(id) is not None or not ids.index_of(id):
            return False  # the caller of an actor, or the reader of a generator, tells us its value
        return ids.task_of(id) not in self._machine.tasks.table

    # ------------------------------------------------------------ values

    def fulfil(self, obj: Object, result: m.Result, source: int) -> None:
        """Give an object its value and tell everyone who waits for it."""
        if obj.state != PENDING:  # a late duplicate, for example of a task that was retried
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
            obj.waiters = []
        if obj.wanting:  # asked for before it was there
            wanting, obj.wanting = obj.wanting, []
            for number in wanting:
                if number in self._machine.peers:
                    self._machine.store.pin(number, [obj.id])
            obj.internal -= len(wanting)
            self.maybe_free(obj)
        if obj.dependents:
            self._settled.append(obj)
            if not self._telling:
                self._tell_dependents()

    def _tell_dependents(self) -> None:
        """Tell the tasks that wait for settled objects, which may settle more objects."""
        self._telling = True
        settled = self._settled
        while settled:  # not recursion: an error may run through a long chain of tasks
            obj = settled.pop()
            dependents, obj.dependents = obj.dependents, []
            for task in dependents:
                self._machine.tasks.dependency_ready(task, obj)
        self._telling = False

    def fail(self, obj: Object, error: bytes) -> None:
        """Give a pending object an error for a value."""
        if obj.state == PENDING:
            self._settle(obj, ERROR, error)

    def discard(self, segment: str, source: int) -> None:
        """Give back the shared memory of a value that nobody wants."""
        if segment:
            self._machine.store.abandon(segment, source)

    # ------------------------------------------------------------ holds

    def hold(self, source: int, wanted: list[bytes]) -> None:
        """Process `source` now refers to these objects."""
        holds = self._machine.peers[source].holds
        for id in wanted:
            self.find(id).holders.add(source)
            holds.add(id)

    def release(self, source: int, dropped: list[bytes]) -> None:
        """Process `source` refers to these objects no more."""
        peer = self._machine.peers.get(source)
        for id in dropped:
            if peer is not None:
                if peer.pins and id in peer.pins:
                    continue  # pinned for a task meanwhile: the process releases it again after that
                peer.holds.discard(id)
            obj = self.objects.get(id)
            if obj is not None:
                obj.holders.discard(source)
                if not obj.holders:
                    self.maybe_free(obj)
                elif len(obj.holders) == 1:
                    self._machine.actors.handle_dropped(obj)

    def hold_inside(self, wanted: list[bytes]) -> None:
        """A task's arguments contain these objects."""
        for id in wanted:
            self.find(id).internal += 1

    def release_inside(self, dropped: list[bytes]) -> None:
        """A task's arguments that contained these objects are gone."""
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
        """Forget the object, and let go of what it contains."""
        stack = [obj]
        while stack:  # not recursion: a chain of objects may be long
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

    def free_now(self, doomed: list[bytes]) -> None:
        """Drop the values of these objects whoever refers to them; a later get says so."""
        for id in doomed:
            obj = self.objects.get(id)
            if obj is not None and obj.state in (INLINE, SHARED):
                self._machine.store.free_value(obj)
                obj.state = ERROR
                obj.data = failures.freed(id)
                self._machine.tasks.argument_freed(obj)

    # ------------------------------------------------------------ waiting

    def subscribe(self, source: int, wanted: list[bytes]) -> None:
        """Tell `source` when these objects are ready."""
        for id in wanted:
            obj = self.find(id)
            if obj.state == PENDING:
                obj.waiters.append(source)
            else:
                self._send(source, m.Ready(id, obj.state, obj.data))

    def watch(self, task: Task, id: bytes) -> bool:
        """Let `task` depend on an object; return whether the object is still pending."""
        obj = self.find(id)
        obj.internal += 1
        if obj.state == PENDING:
            obj.dependents.append(task)
            return True
        return False

    # ------------------------------------------------------------ the end of a process

    def process_gone(self, number: int, held: set[bytes]) -> None:
        """Drop the holds of a process that ended, and fail what only it could have made."""
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
        """The supposed maker of `id` knows nothing of it."""
        obj = self.objects.get(id)
        if obj is not None and not obj.made:
            obj.made = True
            self.fail(obj, failures.lost(id))
            self.maybe_free(obj)
