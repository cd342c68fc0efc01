"""References and their serialized values.

A reference holds its value, and a value holds the references inside it, so that Python's reference counting frees an
object with its last reference. References that stand for the handles of an actor are stored here too.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from skate._base import errors as exceptions
from skate._base import ids, object_ref
from skate._base.ids import CREATION
from skate._base.object_ref import ERROR, INLINE, PENDING, CallbackOwner, ObjectRef
from skate._base.serialization import Buffer, Serialized, context, dumps, loads, serialize
from skate._engine.common import failures
from skate._engine.common.outcomes import as_raised
from skate._engine.common.values import INLINE_LIMIT

if TYPE_CHECKING:
    from skate._engine.inline.progress import Progress


class Value:
    """A serialized value or exception, and the references inside it."""

    __slots__ = ("data", "is_error", "references")

    def __init__(self, data: Buffer, references: Sequence[Any] = (), *, is_error: bool = False) -> None:
        self.data = data
        self.references = references
        self.is_error = is_error

    @classmethod
    def error(cls, error: BaseException) -> Value:
        """Store an exception in place of a value."""
        payload = serialize(error)
        return cls(payload.to_bytes(), payload.references, is_error=True)

    @classmethod
    def failure(cls, data: bytes) -> Value:
        """Store an exception that is already serialized."""
        return cls(data, is_error=True)


class WeakHold:
    """The hold of an actor's handle to itself, which does not keep the actor alive."""

    def __init__(self, objects: Objects, actor: bytes) -> None:
        self._objects = objects
        self._actor = actor

    def __reduce__(self) -> tuple[Any, ...]:
        # Outside of the actor, the handle is a normal one.
        return self._objects.hold(self._actor).__reduce__()


class Objects(CallbackOwner):
    """All objects of the session; the owner of its references."""

    def __init__(
        self,
        progress: Progress,
        factory: ids.IdFactory,
        *,
        get: Callable[[list[ObjectRef[Any]], float | None], list[Any]],
        on_awaited: Callable[[ObjectRef[Any]], None],
        on_handles_gone: Callable[[bytes], None],
    ) -> None:
        self._progress = progress
        self._ids = factory
        self.table: WeakValueDictionary[bytes, ObjectRef[Any]] = WeakValueDictionary()
        self.pinned: dict[bytes, ObjectRef[Any]] = {}
        self.closed = ""  # why the session is over, once it is
        self._on_handles_gone = on_handles_gone  # called with the id of the actor
        self._on_awaited = on_awaited  # called when a coroutine or callback waits for a pending reference
        self._get = get

    # ------------------------------------------------------------ making

    def new(self, id: bytes, *, counted: bool = False) -> ObjectRef[Any]:
        """Return a reference to an object that does not exist yet."""
        reference: ObjectRef[Any] = ObjectRef(id)
        reference._engine = self
        reference._known = counted
        self.table[id] = reference
        return reference

    def put(self, payload: Serialized, id: bytes | None = None) -> ObjectRef[Any]:
        """Return a reference to a value."""
        value = self.store(payload)
        reference = self.new(id or ids.object_id(self._ids.task(), 1))
        self.settle(reference, value)
        return reference

    def store(self, payload: Serialized) -> Value:
        """Store a serialized value."""
        if payload.size <= INLINE_LIMIT:
            return Value(payload.to_bytes(), payload.references)
        # Aligned, and read in place: arrays refer to this memory.
        memory = memoryview(mmap.mmap(-1, payload.size))
        payload.write_into(memory)
        return Value(memory.toreadonly(), payload.references)

    def settle(self, reference: ObjectRef[Any], value: Value) -> None:
        """Give a reference its value, and call its callbacks."""
        if reference._state != PENDING:
            return
        reference._data = value
        reference._state = ERROR if value.is_error else INLINE
        waiters = reference._waiters
        while waiters:
            waiters.pop(0)(reference)
        self._progress.changed()

    def free(self, reference: ObjectRef[Any]) -> None:
        """Drop a value, even if references to it exist."""
        reference._data = Value.failure(failures.object_freed(reference._id))
        reference._state = ERROR

    # ------------------------------------------------------------ pickling

    def revive(self, id: bytes) -> ObjectRef[Any]:
        """Return the reference with this id, which was unpickled."""
        reference = self.table.get(id)
        if reference is None:
            reference = self.new(id)
            self.settle(reference, Value.failure(failures.object_lost(id)))
        return reference

    def reference_pickled(self, reference: ObjectRef[Any]) -> None:
        """Track a reference that Skate pickles; pin one that other code pickles."""
        if context.collected is not None:
            context.collected.append(reference)
        else:
            # Skate cannot track the bytes: keep the object for the rest of the session.
            self.pinned[reference._id] = reference

    def promote(self, reference: ObjectRef[Any]) -> None:
        """Do nothing: no other process has to know an object."""

    # ------------------------------------------------------------ handles of actors

    def hold(self, actor: bytes) -> ObjectRef[Any]:
        """Return the reference that keeps an actor alive."""
        id = ids.handle_id(actor)
        held = self.table.get(id)
        return self.new(id, counted=True) if held is None else held

    def reference_dropped(self, reference: ObjectRef[Any]) -> None:
        """Handle the end of all handles of an actor. The garbage collector calls this at any point."""
        actor = reference._id[len(CREATION) : len(CREATION) + ids.ACTOR_SIZE]
        if not self.closed:
            self._progress.soon(lambda: self._on_handles_gone(actor))

    # ------------------------------------------------------------ waiting

    def watch(self, reference: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], None]) -> None:
        """Call `callback` once the reference is ready; immediately if it is."""
        if reference._state == PENDING:
            if reference._waiters is None:
                reference._waiters = []
            waiters = reference._waiters
            waiters.append(callback)
            # Another thread may have settled it between the two checks; the thread that removes the callback calls it.
            if reference._state == PENDING:
                return
            try:
                waiters.remove(callback)
            except ValueError:
                return
        callback(reference)

    def when_ready(self, reference: ObjectRef[Any], callback: Callable[[ObjectRef[Any]], None]) -> None:
        """Call `callback` once the reference is ready, and run the engine until then."""

        def call_back(ready: ObjectRef[Any]) -> None:
            try:
                callback(ready)
            except Exception:  # it must not stop the code that made the value
                logging.getLogger("skate").exception("A callback for %r failed", ready)

        self.watch(reference, call_back)
        if reference._state == PENDING:
            self._on_awaited(reference)

    def call_in_loop(self, loop: Any, callback: Callable[[], None]) -> None:
        """Run `callback` in an event loop; directly if this is its thread."""
        if getattr(loop, "_thread_id", None) == threading.get_ident():
            callback()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(callback)
            self._progress.awaken(loop)

    # ------------------------------------------------------------ values

    def check(self, references: Sequence[ObjectRef[Any]], *, several: bool = False) -> None:
        """Raise if a reference belongs to another session, or the session is over."""
        for reference in references:
            if reference._engine is not self:
                reference._need_engine()
                raise ValueError(failures.foreign_reference(reference, several=several))
        self.check_open()

    def check_open(self) -> None:
        """Raise if the session is over."""
        if self.closed:
            raise exceptions.RaySystemError(
                f"This session is over ({self.closed}). Call init() to start a new one; references of the old "
                "one are lost."
            )

    def value_of(self, reference: ObjectRef[Any]) -> Any:
        """Return the value of a reference, or raise its exception."""
        if reference._state == INLINE:
            return loads(reference._data.data)
        if reference._state == ERROR:
            raise as_raised(loads(reference._data.data))
        return self._get([reference], None)[0]

    def size_of(self, reference: ObjectRef[Any]) -> int:
        """Return the size of the value in bytes."""
        return 0 if reference._state == PENDING else len(reference._data.data)

    def used(self) -> int:
        """Return the bytes of all large values, which other engines would keep in shared memory."""
        sizes = [self.size_of(reference) for reference in list(self.table.values())]
        return sum(size for size in sizes if size > INLINE_LIMIT)

    # ------------------------------------------------------------ the session

    def install(self) -> None:
        """Make unpickled references belong to this session."""
        object_ref.reviver = self.revive

    def close(self, reason: str) -> None:
        """End the session; pending references get an error."""
        self.closed = reason
        # Bound methods are equal, not identical.
        if object_ref.reviver == self.revive:
            object_ref.reviver = None
        lost = dumps(exceptions.RaySystemError(f"The session is over: {reason}."))
        for reference in list(self.table.values()):
            self.settle(reference, Value.failure(lost))
        self.pinned.clear()
