"""The shared objects that a process reads. Each is mapped once, for all threads."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

from skate._base.object_ref import ObjectRef
from skate._engine.local.client.references import References
from skate._engine.local.client.request_channel import RequestChannel
from skate._engine.local.session.shared_memory import SegmentFiles, SegmentMapping
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.interrupts import critical

MAX_IDLE_PINS = 64  # pinned objects that are kept although they are no longer mapped


class Mappings:
    """Locates shared objects through the node, and maps them.

    The node pins each object that it locates for this process, until the process unpins it. The node also locates the
    arguments of a task before it sends the task. An object that is no longer mapped stays pinned, because it is often
    needed again: as long as the process has a reference to it, and the node does not ask for memory.
    """

    def __init__(self, channel: RequestChannel, references: References, files: SegmentFiles) -> None:
        self._channel = channel
        self._references = references
        self._files = files
        self._lock = threading.Lock()  # never held during a wait
        # Not a WeakValueDictionary: Python would print and drop an interrupt in its callback.
        self._mapped: dict[bytes, weakref.ref[SegmentMapping]] = {}
        self._located: dict[bytes, m.Located] = {}  # pinned, not mapped yet
        self._idle: dict[bytes, m.Located] = {}  # pinned, no longer mapped; the oldest first
        # On their way to `_idle`; the garbage collector must not take a lock.
        self._unmapped: deque[m.Located] = deque()
        self._asked: dict[bytes, int] = {}  # object -> number of threads that wait for the answer
        channel.handlers[m.Located] = self._arrived

    def take(self, reference: ObjectRef[Any]) -> SegmentMapping | bytes | None:
        """Return the mapping of an object, its error, or None if it must be located first."""
        id = reference._id
        with self._lock:
            mapping = self._mapping(id)
            if mapping is not None:
                return mapping
            self._collect_unmapped()
            located = self._located.pop(id, None) or self._idle.pop(id, None)
            if located is None:
                return None
            if located.error:
                return located.error
            try:
                mapping = self._files.map(located.segment, located.size)
            except OSError:
                self._located[id] = located
                raise
            mapping.size_used = located.size
            mapping.located = located
            mapping.reference = reference
            mapping.on_gone = self._unmapped.append
            self._mapped[id] = weakref.ref(mapping)
            return mapping

    def _mapping(self, id: bytes) -> SegmentMapping | None:
        held = self._mapped.get(id)
        return None if held is None else held()

    def locate(self, references: Iterable[ObjectRef[Any]]) -> None:
        """Have the node load shared objects into memory, unless they are located already."""
        channel = self._channel
        wanted = self._ask(references)
        if not wanted:
            return
        asked = self._asked
        try:
            channel.hub.attend(lambda: bool(channel.closed) or not any(id in asked for id in wanted))
        finally:
            self._stop_waiting(wanted)
        if channel.closed:
            raise channel.closed_error()

    def _ask(self, references: Iterable[ObjectRef[Any]]) -> list[bytes]:
        """Request objects that are not requested yet; return those to wait for."""
        with self._lock:
            self._collect_unmapped()
            unknown = dict.fromkeys(r._id for r in references if not self._has(r._id))
            new = [id for id in unknown if id not in self._asked]
            for id in unknown:
                self._asked[id] = self._asked.get(id, 0) + 1
        if new:
            self._channel.send(m.Pin(new))
        return list(unknown)

    def _has(self, id: bytes) -> bool:
        return id in self._located or id in self._idle or self._mapping(id) is not None

    def _stop_waiting(self, wanted: list[bytes]) -> None:
        """End the wait of this thread, with or without an answer."""
        with self._lock:
            for id in wanted:
                if id in self._asked:
                    self._asked[id] -= 1

    def _arrived(self, message: m.Located) -> None:
        """Handle the location of an object, or the reason why it cannot be read."""
        id = message.id
        with self._lock:
            waiting = self._asked.pop(id, None)
            known = self._located.get(id)
            if id in self._idle:
                self._release(self._idle.pop(id))  # pinned twice: once is enough
            if waiting == 0 or self._mapping(id) is not None or (known is not None and not known.error):
                self._release(message)  # no thread waits any more, or it is pinned twice
            else:
                self._located[id] = message

    def _collect_unmapped(self) -> None:
        """Move the objects that the garbage collector has unmapped to the idle ones."""
        while self._unmapped:
            located = self._unmapped.popleft()
            mapping = self._mapping(located.id)
            if mapping is None:
                self._mapped.pop(located.id, None)
            elif mapping.located is located:
                continue  # another thread revived it during its finalization
            if self._has(located.id):
                self._release(located)  # pinned twice: once is enough
            else:
                self._idle[located.id] = located
                if len(self._idle) > MAX_IDLE_PINS:
                    self._release(self._idle.pop(next(iter(self._idle))))

    def release_dropped(self) -> None:
        """Unpin idle objects that this process no longer refers to."""
        if self._idle or self._unmapped:
            with self._lock:
                self._collect_unmapped()
                for id in [id for id in self._idle if not self._references.has(id)]:
                    self._release(self._idle.pop(id))

    def release_idle(self) -> None:
        """Unpin all objects that are no longer mapped."""
        if self._idle or self._unmapped:
            with self._lock:
                self._collect_unmapped()
                while self._idle:
                    self._release(self._idle.popitem()[1])

    def tidy(self) -> None:
        """Unpin idle objects, and arguments of tasks that ran elsewhere."""
        self.release_idle()
        if self._located:
            with self._lock:
                for located in list(self._located.values()):
                    del self._located[located.id]
                    self._release(located)

    def _release(self, located: m.Located) -> None:
        if not located.error:
            self._references.release_pin(located.id)


critical(Mappings.release_dropped, Mappings.release_idle)
critical(Mappings.take, Mappings._ask, Mappings._stop_waiting, Mappings._arrived, Mappings.tidy)
