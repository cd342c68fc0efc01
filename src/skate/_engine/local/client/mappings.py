"""The shared objects that a process reads: each is mapped once, however many threads want it."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from skate._base.object_ref import ObjectRef
from skate._engine.local.session.shared_memory import SegmentFiles, SegmentMapping
from skate._engine.local.wire import messages as m
from skate._engine.local.wire.interrupts import critical

if TYPE_CHECKING:
    from skate._engine.local.client.references import References

MAX_IDLE_PINS = 64  # objects that stay pinned although nothing lies on them any more


class Mappings:
    """Asks the node where shared objects lie, and maps them.

    What the node tells us of is pinned in memory for this process until we say otherwise. It also tells us
    of the arguments of a task, before the task comes. What is not mapped any more stays pinned, because it is
    often wanted again: as long as the process has a reference to it, and the node does not ask for it.
    """

    def __init__(self, references: References, files: SegmentFiles) -> None:
        self._references = references
        self._files = files
        self._lock = threading.Lock()  # never held while waiting
        # No WeakValueDictionary: an interrupt in its callback would be printed and forgotten.
        self._mapped: dict[bytes, weakref.ref[SegmentMapping]] = {}
        self._located: dict[bytes, m.Located] = {}  # pinned for us, not mapped yet
        self._idle: dict[bytes, m.Located] = {}  # pinned for us, not mapped any more, the oldest first
        self._unmapped: deque[m.Located] = (
            deque()
        )  # on the way to those; the garbage collector may take no lock
        self._asked: dict[bytes, int] = {}  # object -> threads that wait for the answer
        references.handlers[m.Located] = self._arrived

    def take(self, reference: ObjectRef[Any]) -> SegmentMapping | bytes | None:
        """Return the mapping of an object, the error if it has none, None if it must be located first."""
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
        """Have the node bring shared objects to memory, unless it told us of them already."""
        client = self._references
        wanted = self._ask(references)
        if not wanted:
            return
        asked = self._asked
        try:
            client.hub.attend(lambda: bool(client.closed) or not any(id in asked for id in wanted))
        finally:
            self._stop_waiting(wanted)
        if client.closed:
            raise client.closed_error()

    def _ask(self, references: Iterable[ObjectRef[Any]]) -> list[bytes]:
        """Ask about objects that nobody has asked about; return those that have to be waited for."""
        with self._lock:
            self._collect_unmapped()
            unknown = dict.fromkeys(r._id for r in references if not self._has(r._id))
            new = [id for id in unknown if id not in self._asked]
            for id in unknown:
                self._asked[id] = self._asked.get(id, 0) + 1
        if new:
            self._references.send(m.Pin(new))
        return list(unknown)

    def _has(self, id: bytes) -> bool:
        return id in self._located or id in self._idle or self._mapping(id) is not None

    def _stop_waiting(self, wanted: list[bytes]) -> None:
        """Wait no more: the answer is there, or the wait was interrupted."""
        with self._lock:
            for id in wanted:
                if id in self._asked:
                    self._asked[id] -= 1

    def _arrived(self, message: m.Located) -> None:
        """The node says where an object lies, or why it cannot be read."""
        id = message.id
        with self._lock:
            waiting = self._asked.pop(id, None)
            known = self._located.get(id)
            if id in self._idle:
                self._release(self._idle.pop(id))  # pinned twice: once is enough
            if waiting == 0 or self._mapping(id) is not None or (known is not None and not known.error):
                self._release(message)  # nobody waits any more, or it is pinned twice: once is enough
            else:
                self._located[id] = message

    def _collect_unmapped(self) -> None:
        """Remember what the garbage collector has unmapped."""
        while self._unmapped:
            located = self._unmapped.popleft()
            mapping = self._mapping(located.id)
            if mapping is None:
                self._mapped.pop(located.id, None)
            elif mapping.located is located:
                continue  # another thread took it in the moment of its end, and it goes on living
            if self._has(located.id):
                self._release(located)  # pinned twice: once is enough
            else:
                self._idle[located.id] = located
                if len(self._idle) > MAX_IDLE_PINS:
                    self._release(self._idle.pop(next(iter(self._idle))))

    def release_dropped(self) -> None:
        """Let go of idle objects to which this process has no reference any more."""
        if self._idle or self._unmapped:
            with self._lock:
                self._collect_unmapped()
                for id in [id for id in self._idle if not self._references.has(id)]:
                    self._release(self._idle.pop(id))

    def release_idle(self) -> None:
        """Let go of all that is not mapped any more: memory is short, or the values are not wanted."""
        if self._idle or self._unmapped:
            with self._lock:
                self._collect_unmapped()
                while self._idle:
                    self._release(self._idle.popitem()[1])

    def tidy(self) -> None:
        """Let go of what was pinned for tasks that were not run here after all, and of what is idle."""
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
