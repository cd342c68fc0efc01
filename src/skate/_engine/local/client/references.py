"""The references of a process: creation, unpickling, release, and their registration with the node."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from skate._base import ids
from skate._base.ids import CREATION
from skate._base.object_ref import ERROR, INLINE, PENDING, SHARED, Awaiter, CallbackOwner, ObjectRef
from skate._base.serialization import context
from skate._engine.common import failures
from skate._engine.local.client.hold_reports import HoldReports
from skate._engine.local.client.request_channel import RequestChannel
from skate._engine.local.client.task_context import current_task
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.interrupts import critical

MAX_DROPPED = 1000  # dropped references that may wait for the next message to the node

_new = ObjectRef.__new__
_weak = weakref.ref
_UNSUBSCRIBED = object()  # data of a pending reference without a subscription


class References:
    """The references of this process; what the process knows of an object is kept on its reference.

    Args:
        owner: The object that references call back into.
        channel: Messages to and from the node.
        reports: Holds and releases that travel with the messages.
    """

    def __init__(self, owner: CallbackOwner, channel: RequestChannel, reports: HoldReports) -> None:
        self._owner = owner
        self._channel = channel
        self._reports = reports
        channel.handlers[m.Ready] = self._ready
        channel.handlers[m.Values] = self._values_arrived
        channel.handlers[m.PrivateResult] = self._private_result
        channel.handlers[m.SendObjects] = self._send_objects
        channel.handlers[m.Inquire] = self._inquired
        self.streams: dict[bytes, Any] = {}
        self._refs: dict[bytes, weakref.ref[ObjectRef[Any]]] = {}
        # Private results of submitted tasks, by task; the node sends them to this process alone.
        self._expected: dict[bytes, ObjectRef[Any]] = {}
        # Have callbacks: must not be dropped before they are ready.
        self._awaited: dict[bytes, ObjectRef[Any]] = {}
        self.settled = 0  # number of references that became ready: a blocked `wait` compares it
        self.errors = 0  # number of errors that arrived: a blocked `get` compares it
        self.on_await: Callable[[], None] | None = None  # called when a pending reference is awaited

    def new_reference(self, id: bytes) -> ObjectRef[Any]:
        """Return a reference to an object that a message in flight registers with the node."""
        reference: ObjectRef[Any] = ObjectRef.__new__(ObjectRef)
        reference._id = id
        reference._state = PENDING
        reference._data = None
        reference._engine = self._owner
        reference._known = True
        reference._waiters = None
        self._refs[id] = weakref.ref(reference)
        return reference

    def renew(self, id: bytes) -> ObjectRef[Any]:
        """Return a new reference to an object that this process may have dropped before."""
        reference = self.new_reference(id)
        self._reports.dropped.pop(id, None)  # otherwise the node would release it
        return reference

    def own_reference(self, id: bytes) -> ObjectRef[Any]:
        """Return a reference to an object that only this process knows."""
        reference: ObjectRef[Any] = ObjectRef.__new__(ObjectRef)
        reference._id = id
        reference._state = PENDING
        reference._data = None
        reference._engine = self._owner
        reference._known = False
        reference._waiters = None
        return reference

    def expect_result(self, task: bytes) -> ObjectRef[Any]:
        """Return a reference to the private result of a task that is about to be submitted."""
        reference = self._expected[task] = self.own_reference(task + ids.FIRST_INDEX)
        return reference

    def adopt(self, reference: ObjectRef[Any]) -> None:
        """Mark an own reference as registered: the node counts this process as a holder."""
        reference._known = True
        self._refs[reference._id] = weakref.ref(reference)

    def decline(self, task: bytes, results: Sequence[m.Result], first: int = 1) -> None:
        """Release the results of a call that was given up; the node counts this process as a holder of some."""
        for index, result in enumerate(results, first):
            id = ids.object_id(task, index)
            if (result.state == SHARED or result.contains) and id not in self._refs:
                self._reports.dropped[id] = None

    def forget(self, reference: ObjectRef[Any]) -> None:
        """Undo `adopt`, for an object that the node did not register."""
        self._refs.pop(reference._id, None)
        reference._known = False

    def revive(self, id: bytes) -> ObjectRef[Any]:
        """Return the reference with this id, which was unpickled."""
        reference = self.find(id)
        if reference is not None:
            return reference
        reference = self.own_reference(id)
        reference._data = _UNSUBSCRIBED
        with self._reports.lock:
            other = self.find(id)
            if other is not None:  # another thread has unpickled it at the same time
                return other
            # A drop that was not reported: the node still counts this process as a holder.
            if self._reports.dropped.pop(id, 0) is not None:
                self._reports.holds[id] = None
            self.adopt(reference)
        running = current_task.get()
        if running is not None:
            running.borrowed = True
        return reference

    def revive_many(self, wanted: list[bytes]) -> list[ObjectRef[Any]]:
        """Return the references with these ids at once, because a value may list thousands."""
        held = dict.fromkeys(wanted)
        if len(held) < len(wanted):
            return list(map(self.revive, wanted))
        made: list[ObjectRef[Any]] = []
        for id in wanted:  # like `own_reference`; calling it for each would take a third of the time
            reference: ObjectRef[Any] = _new(ObjectRef)
            reference._id = id
            reference._state = PENDING
            reference._data = _UNSUBSCRIBED
            reference._engine = self._owner
            reference._known = True
            reference._waiters = None
            made.append(reference)
        with self._reports.lock:
            met = not self._refs.keys().isdisjoint(wanted)
            if not met:
                if not self._reports.dropped.keys().isdisjoint(wanted):
                    held = {id: None for id in wanted if self._reports.dropped.pop(id, 0) is not None}
                self._reports.holds.update(held)
                self._refs.update(zip(wanted, map(_weak, made), strict=True))
        if met:  # some exist already
            for reference in made:
                reference._known = False
            return list(map(self.revive, wanted))
        running = current_task.get()
        if running is not None:
            running.borrowed = True
        return made

    def pickled(self, reference: ObjectRef[Any]) -> None:
        """Track a reference that Skate pickles; pin one that other code pickles."""
        if context.collected is not None:
            context.collected.append(reference)
        else:
            # Skate cannot track the bytes: keep the object for the rest of the session.
            self.promote(reference, pinned=True)

    def dropped(self, reference: ObjectRef[Any]) -> None:
        """Note that a reference is gone. The garbage collector calls this at any point."""
        # No lock, and no switch to another thread, until both tables agree.
        id = reference._id
        self._refs.pop(id, None)
        holds = self._reports.holds
        if holds and holds.pop(id, 0) is None:
            return  # the hold was never reported
        dropped = self._reports.dropped
        dropped[id] = None
        if reference._state == SHARED or len(dropped) == MAX_DROPPED or id[:8] == CREATION:
            self._channel.hub.wake()

    def find(self, id: bytes) -> ObjectRef[Any] | None:
        """Return this process' reference to an object."""
        known = self._refs.get(id)
        return known() if known is not None else None

    def has(self, id: bytes) -> bool:
        """Return whether this process has a reference to an object."""
        return self.find(id) is not None

    def release_pin(self, id: bytes) -> None:
        """Release an object that the node has pinned for this process, and that it does not need."""
        with self._reports.lock:
            self._reports.unpinned.append(id)
            if id not in self._refs:
                self._reports.dropped[id] = None

    def promote(self, reference: ObjectRef[Any], *, pinned: bool = False) -> None:
        """Register an object with the node before its reference leaves this process."""
        if reference._engine is not self._owner:
            raise ValueError(failures.foreign_reference(reference))
        if reference._known and not pinned:
            return
        if not reference._known:
            reference._known = True
            self._refs[reference._id] = weakref.ref(reference)
        state = reference._state if reference._state in (INLINE, ERROR) else PENDING
        data = reference._data if state != PENDING else b""
        follows = state == PENDING and ids.task_of(reference._id) in self._expected
        self._channel.send(m.Register(reference._id, state, data, pinned=pinned, follows=follows))

    def _inquired(self, message: m.Inquire) -> None:
        reference = self.find(message.id)
        if reference is None:
            self._channel.send(message)  # sent back: unknown in this process
        else:
            reference._known = False
            self.promote(reference)

    # ------------------------------------------------------------ values arriving

    def _ready(self, message: m.Ready) -> None:
        held = self._refs.get(message.id)
        reference = held() if held is not None else None
        if reference is None or message.id[ids.TASK_SIZE :] == b"\0\0\0\0":
            stream = self.streams.get(message.id[: ids.TASK_SIZE])
            if stream is not None:
                stream.arrived(message)
            elif held is None:
                # No reference is left in this process, but the node may count it as a holder.
                self._reports.dropped[message.id] = None
            return
        self.settle(reference, message.state, message.data)

    def _values_arrived(self, message: m.Values) -> None:
        """Handle small private results."""
        expected = self._expected
        for task, data in zip(message.tasks, message.values, strict=True):
            reference = expected.pop(task, None)
            if reference is None or reference._state != PENDING:
                continue
            # Like `settle`; a call for each would take longer than all this.
            reference._data = data
            reference._state = INLINE
            self.settled += 1
            if reference._waiters:
                self._call_waiters(reference)
            if reference._known:  # it may have left this process before it was ready
                self._register(reference, INLINE, data)

    def _private_result(self, message: m.PrivateResult) -> None:
        """Handle a private result that is an error, or that the node has as well."""
        task, result = message.task, message.result
        reference = self._expected.pop(task, None)
        is_held = result.state == SHARED or bool(result.contains)  # the node counts this process as a holder
        if reference is None:
            if is_held:
                self._reports.dropped[task + ids.FIRST_INDEX] = None
            return
        if is_held:
            self.adopt(reference)
        self.settle(reference, result.state, result.data)
        if reference._known and not message.registered:
            self._register(reference, result.state, result.data)

    def _register(self, reference: ObjectRef[Any], state: int, data: bytes) -> None:
        if not self._channel.closed:
            self._channel.send(m.Register(reference._id, state, data))

    def _send_objects(self, message: m.SendObjects) -> None:
        """Report the objects that only this process knows: small values, and results that are pending."""
        import gc

        found: dict[bytes, tuple[bytes, int, int]] = {}
        # No table has their references, which would cost each of them more than this search costs now and then.
        for each in gc.get_objects():
            if type(each) is ObjectRef and not getattr(each, "_known", True) and each._engine is self._owner:
                size = len(each._data) if each._state in (INLINE, ERROR) else 0
                found[each._id] = (each._id, each._state, size)
        self._channel.send(m.PrivateObjects(message.request, list(found.values())))

    def hand_over(self) -> None:
        """Wait until the node has every private result that other processes may need, or will get it itself."""
        if any(reference._known for reference in list(self._expected.values())):
            # The node sent a result here if it did not know yet that others need it: that result precedes any answer.
            self._channel.ask(m.Question.OBJECT_STORE)

    def fail_expected(self, error: bytes) -> None:
        """Fail the private results that have not arrived, because the session has ended."""
        while self._expected:
            self.settle(self._expected.popitem()[1], ERROR, error)

    def settle(self, reference: ObjectRef[Any], state: int, data: Any) -> None:
        """Give a reference its value, and call its callbacks."""
        if reference._state != PENDING:
            return
        reference._data = data
        reference._state = state
        self.settled += 1
        if state == ERROR:
            self.errors += 1
        if reference._waiters:
            self._call_waiters(reference)

    def _call_waiters(self, reference: ObjectRef[Any]) -> None:
        waiters = reference._waiters
        self._awaited.pop(reference._id, None)
        while waiters:
            waiters.pop()(reference)

    def when_ready(self, reference: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], None]) -> None:
        """Call `callback` once the reference is ready; immediately if it is."""
        if reference._state == PENDING:
            if reference._waiters is None:
                reference._waiters = []
            waiters = reference._waiters
            waiters.append(callback)
            self._awaited[reference._id] = reference
            self.subscribe([reference])
            if self.on_await is not None:
                self.on_await()
            # The value may have arrived between the two checks; the thread that removes the callback calls it.
            if reference._state == PENDING:
                return
            self._awaited.pop(reference._id, None)
            try:
                waiters.remove(callback)
            except ValueError:
                return
        callback(reference)

    def find_awaited(self, id: bytes) -> ObjectRef[Any] | None:
        """Return the reference to a pending object, if a coroutine or a callback waits for it."""
        return self._awaited.get(id)

    def awaited(self) -> list[bytes]:
        """Return the pending objects that coroutines and callbacks wait for, without the arguments of unsent calls."""
        return [
            id
            for id, reference in list(self._awaited.items())
            if any(not hasattr(callback, "__self__") for callback in list(reference._waiters or ()))
        ]

    def awaiting_futures(self) -> set[Any]:
        """Return the asyncio futures that complete when a pending object becomes ready."""
        waiters = [w for ref in list(self._awaited.values()) for w in list(ref._waiters or ())]
        return {waiter.future for waiter in waiters if isinstance(waiter, Awaiter)}

    def subscribe(self, references: Sequence[ObjectRef[Any]]) -> None:
        """Subscribe to pending references from other processes."""
        wanted = []
        for reference in references:
            if reference._data is _UNSUBSCRIBED:
                reference._data = None
                wanted.append(reference._id)
        if wanted:
            self._channel.send(m.Subscribe(wanted))


# Python prints and drops exceptions of __del__, and so would it an interrupt.
critical(ObjectRef.__del__)
