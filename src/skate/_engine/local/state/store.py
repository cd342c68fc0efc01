"""The object store in the node: its budget, reuse of segments, spilling, restoring, and overflow to disk."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from skate._base.object_ref import ERROR, PENDING, SHARED
from skate._engine.common import failures
from skate._engine.local.session import segments
from skate._engine.local.state.records import HOST, Object, Peer
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

PAGE = 4096
TIDY_INTERVAL_S = 0.1  # interval of requests to report unmapped objects
COLLECT_THRESHOLD = 0.7  # share of the budget above which processes are asked to collect garbage
COLLECT_INTERVAL_S = 10.0  # interval of these requests
MAX_NAMED_PROCESSES = 3  # mapping processes that an error names
OVERFLOW_TIMEOUT_S = (
    0.5  # seconds to wait for mapped objects to be released before an object is written to disk
)


class Store:
    """Decides on the location of large objects.

    New shared pages cost the kernel many times more than a copy. So a freed segment goes to the spare list of its
    writer, where it is still mapped, and serves the next object of about that size.

    When shared memory is short, the least recently used objects that no process maps are spilled. If that is not
    enough, because the others are mapped or other programs use the same file system, an object is written to a file
    on disk, and a spilled one is mapped from disk. So only a full disk refuses an object.
    """

    def __init__(self, machine: Machine, budget: int) -> None:
        self._machine = machine
        self._send = machine.send
        self.budget = budget
        self.used = 0
        self._sizes: dict[str, int] = {}
        self._writer: dict[str, int] = {}
        self._spare: dict[int, dict[str, int]] = {}  # writer -> segment -> size
        self._spare_bytes = 0
        self._next = 0
        self._resident: dict[bytes, Object] = {}  # in memory, least recently used first
        self._spilling = 0
        self._collected = -COLLECT_INTERVAL_S  # when processes were last asked to collect garbage
        self._stuck_since = 0.0  # when the waiting requests last made progress
        self._is_stuck = False  # requests went to disk, and nothing was released since
        self._disk_failed = False  # of the last spill; drivers were warned
        self._waiting: deque[tuple[int, int, int]] = deque()  # source, request, size
        self._orphans: dict[bytes, str] = {}  # freed while being spilled
        self._restoring: dict[int, bytes] = {}  # request number -> object waiting for space
        self.disk_used = 0  # bytes of segments on disk, without spilled objects
        self.spilled_bytes = 0
        self.restored_bytes = 0

    @property
    def available(self) -> int:
        """The bytes of the budget that no object uses."""
        return max(0, self.budget - self.used + self._spare_bytes)

    # ------------------------------------------------------------ writers

    def allocate(self, source: int, message: m.Allocate) -> None:
        """Answer a request for memory, now or when enough is free."""
        request, size = message.request, message.size
        need = -(-size // PAGE) * PAGE
        if message.instead_of:
            self.abandon(message.instead_of, source, is_whole=False)
            self._drop_spares(self._spare_bytes)
            self._grant_on_disk(source, request, need, failures.shared_memory_full(size))
            self._progress()
            return
        if need > self.budget:
            self._grant_on_disk(source, request, need, failures.too_large(size, self.budget))
            return
        # Memory that is being freed for one request must not go to another.
        if (self._waiting and self._spilling) or not self._try(source, request, need):
            self._wait(source, request, need)

    def _wait(self, source: int, request: int, need: int) -> None:
        if not self._waiting:
            self._stuck_since = self._machine.now
            self._ask_to_tidy()
        self._waiting.append((source, request, need))
        self._serve_waiting()
        if self._is_stuck and self._waiting and not self._spilling:
            self._overflow()

    def _try(self, source: int, request: int, need: int) -> bool:
        spare = self._spare.get(source)
        if spare:
            # A segment up to a quarter too large fits: reused pages are worth more.
            for segment, size in spare.items():
                if need <= size <= need + need // 4 + PAGE:
                    del spare[segment]
                    self._spare_bytes -= size
                    self._grant(source, request, segment, size, reused=True)
                    return True
        if self.used + need > self.budget:
            self._drop_spares(self.used + need - self.budget)
        if self.used + need > self.budget:
            return False
        segment = self._new_segment(source, need)
        if self.used - self._spare_bytes > COLLECT_THRESHOLD * self.budget:
            self._ask_to_collect()
        self._grant(source, request, segment, need)
        return True

    def _new_segment(self, writer: int, size: int, *, on_disk: bool = False) -> str:
        self._next += 1
        name = f"{writer}-{self._next}"
        segment = segments.on_disk(name) if on_disk else name
        self._sizes[segment] = size
        self._writer[segment] = writer
        if on_disk:
            self.disk_used += size
        else:
            self.used += size
        return segment

    def _grant(
        self, source: int, request: int, segment: str, size: int, *, reused: bool = False, reason: str = ""
    ) -> None:
        self._machine.peers[source].segments.add(segment)
        self._send(source, m.Allocated(request, segment, size, reused, reason))

    def _grant_on_disk(self, source: int, request: int, size: int, reason: str) -> None:
        self._grant(source, request, self._new_segment(source, size, on_disk=True), size, reason=reason)

    def adopt(self, obj: Object, source: int) -> None:
        """Turn a written segment into an object."""
        peer = self._machine.peers.get(source)
        if peer is not None:
            peer.segments.discard(obj.segment)
        if segments.is_on_disk(obj.segment):
            return
        self._resident[obj.id] = obj
        if self._waiting:
            self._progress()  # it can be spilled now

    def abandon(self, segment: str, source: int, *, is_whole: bool = True) -> None:
        """Release an allocated segment that will not become an object; `is_whole` says whether it has all pages."""
        peer = self._machine.peers.get(source)
        if peer is not None:
            peer.segments.discard(segment)
        if is_whole:
            self._recycle(segment)
        elif segment in self._sizes:
            self._delete(segment)

    def forget(self, obj: Object) -> None:
        """Release the segment and the copy on disk of an object that is gone."""
        if obj.state != SHARED and not obj.segment:
            return
        self._resident.pop(obj.id, None)
        segment, obj.segment = obj.segment, ""
        loading, obj.loading = obj.loading, False
        if obj.spilled:
            obj.spilled = False
            self._send(HOST, m.DeleteSpilled(obj.id))
        if obj.wanting:
            self._refuse_readers(obj, failures.object_freed(obj.id))
        if segment and loading:
            self._orphans[obj.id] = segment
        elif segment and obj.pinned:  # processes that map it keep its pages, so they must not be reused
            self._delete(segment)
            self._progress()
        elif segment:
            self._recycle(segment)

    def free_value(self, obj: Object) -> None:
        """Release the value of an object; processes that have pinned it may still map it."""
        if not obj.pinned:
            self.forget(obj)
            return
        self._resident.pop(obj.id, None)
        if obj.loading:  # being restored for readers that have not pinned it yet
            obj.loading = False
            self._refuse_readers(obj, failures.object_freed(obj.id))
        for peer in self._machine.peers.values():
            if obj.id in peer.pins:
                self._send(peer.number, m.Tidy())

    def _unpinned(self, obj: Object) -> None:
        """Release an object that no process maps any more."""
        if obj.state != ERROR:
            return
        if obj.spilled:  # freed meanwhile
            obj.spilled = False
            self._send(HOST, m.DeleteSpilled(obj.id))
        if obj.segment:
            segment, obj.segment = obj.segment, ""
            self._recycle(segment)

    def _recycle(self, segment: str) -> None:
        size = self._sizes.get(segment)
        if size is None:
            return
        writer = self._writer[segment]
        if self._waiting or writer not in self._machine.peers or segments.is_on_disk(segment):
            self._delete(segment)
            self._progress()
            return
        self._spare.setdefault(writer, {})[segment] = size
        self._spare_bytes += size
        # Keep spare segments for the working set, but at most half the budget.
        if self._spare_bytes > self.budget // 2:
            self._drop_spares(self._spare_bytes - self.budget // 2)

    def _drop_spares(self, amount: int) -> None:
        for spare in self._spare.values():
            while spare and amount > 0:
                segment, size = next(iter(spare.items()))
                del spare[segment]
                self._spare_bytes -= size
                amount -= size
                self._delete(segment)

    def _delete(self, segment: str) -> None:
        size = self._sizes.pop(segment)
        writer = self._writer.pop(segment)
        self._send(HOST, m.DeleteSegment(segment))
        if segments.is_on_disk(segment):
            self.disk_used -= size
            return
        self.used -= size
        if writer in self._machine.peers:
            self._send(writer, m.DropSegments([segment]))

    # ------------------------------------------------------------ readers

    def pin(self, source: int, wanted: list[bytes]) -> None:
        """Send `source` the location of these objects once they are in memory, and keep them there."""
        directory = self._machine.directory
        for id in wanted:
            obj = directory.find(id)
            if obj.state == PENDING:
                # A caller of an actor may know an object before the node does.
                obj.wanting = [*obj.wanting, source]
                obj.internal += 1
            elif obj.state != SHARED:
                error = obj.data if obj.state == ERROR else failures.object_lost(id)
                self._send(source, m.Located(id, error=error))
                directory.maybe_free(obj)
            elif obj.segment and not obj.loading:
                self._locate(source, obj)
            else:
                obj.wanting = [*obj.wanting, source]
                if not obj.loading:
                    self._restore(obj)

    def _locate(self, source: int, obj: Object, segment: str = "") -> None:
        """Send a reader the location of an object: its segment, or another one."""
        peer = self._machine.peers.get(source)
        if peer is None:
            return
        obj.pinned += 1
        peer.pins[obj.id] = peer.pins.get(obj.id, 0) + 1
        peer.holds.add(obj.id)
        obj.holders.add(source)
        if self._resident.pop(obj.id, None) is not None:
            self._resident[obj.id] = obj  # most recently used now
        self._send(source, m.Located(obj.id, segment or obj.segment, obj.size))

    def _locate_on_disk(self, obj: Object) -> None:
        """Let the readers of a spilled object map its copy on disk, because shared memory is full."""
        obj.loading = False
        wanting, obj.wanting = obj.wanting, ()
        for source in wanting:
            self._locate(source, obj, segments.on_disk(obj.id.hex()))

    def unpin(self, source: int, dropped: list[bytes]) -> None:
        """Handle the report that `source` has unmapped these objects."""
        peer = self._machine.peers.get(source)
        for id in dropped:
            count = peer.pins.get(id, 0) if peer is not None else 0
            if peer is None or not count:
                continue
            if count > 1:
                peer.pins[id] = count - 1
            else:
                del peer.pins[id]
            obj = self._machine.directory.objects.get(id)
            if obj is not None and obj.pinned:
                obj.pinned -= 1
                if not obj.pinned:
                    self._unpinned(obj)
        self._progress()

    # ------------------------------------------------------------ disk

    def _make_room(self, need: int) -> None:
        """Spill the least recently used objects that no process maps."""
        short = need + self.used - self.budget - self._spilling
        for obj in list(self._resident.values()):
            if short <= 0:
                return
            if obj.pinned or obj.loading or not obj.segment:
                continue
            size = self._sizes[obj.segment]
            short -= size
            if obj.spilled:  # its copy is still on disk: objects are immutable
                segment, obj.segment = obj.segment, ""
                del self._resident[obj.id]
                self._delete(segment)
                continue
            self._spilling += size
            obj.loading = True
            self._send(HOST, m.Spill(obj.id, obj.segment, obj.size))

    def _progress(self) -> None:
        """Serve waiting requests, because memory was released, or an object can be spilled now."""
        self._is_stuck = False
        if self._waiting:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve the waiting requests, and free memory for the rest."""
        before = len(self._waiting)
        left = before + 1
        while 0 < len(self._waiting) < left:  # each served request may unblock the next
            left = len(self._waiting)
            self._serve()
            if self._waiting:
                self._make_room(self._waiting[0][2])
                self._serve()
            if self._waiting and not self._spilling:
                self._map_waiting_on_disk()
        if len(self._waiting) < before:
            self._stuck_since = self._machine.now

    def _map_waiting_on_disk(self) -> None:
        """Let readers map spilled objects on disk, because memory is full and no spill is running."""
        for waiting in [waiting for waiting in self._waiting if waiting[1] < 0]:
            self._waiting.remove(waiting)
            obj = self._machine.directory.objects.get(self._restoring.pop(-waiting[1]))
            if obj is not None and obj.loading:
                self._locate_on_disk(obj)

    def next_tick(self) -> float | None:
        """Return the seconds until `tick` should be called, None for never."""
        return TIDY_INTERVAL_S if self._waiting else None

    def tick(self) -> None:
        """Move requests to disk that have waited long enough: all memory is mapped."""
        if not self._waiting:
            return
        if not self._spilling and self._machine.now - self._stuck_since >= OVERFLOW_TIMEOUT_S:
            self._overflow()
        else:
            self._ask_to_tidy()

    def _ask_to_tidy(self) -> None:
        """Ask processes to report unmapped objects, which they delay to save messages."""
        for peer in self._machine.peers.values():
            if peer.pins:
                self._send(peer.number, m.Tidy())

    def _ask_to_collect(self) -> None:
        """Ask processes to collect garbage, because cycles of Python objects may hold shared objects."""
        if self._machine.now - self._collected < COLLECT_INTERVAL_S:
            return
        self._collected = self._machine.now
        for peer in self._machine.peers.values():
            if peer.holds:
                self._send(peer.number, m.Tidy(collect=True))

    def _overflow(self, disk: str = "") -> None:
        """Move the waiting requests that do not fit to disk; `disk` is the error of a failed spill."""
        while self._waiting:
            self._serve()
            self._map_waiting_on_disk()
            if not self._waiting:
                return
            source, request, need = self._waiting.popleft()
            mapped = [failures.is_mapped(peer.describe(), size) for peer, size in self._find_mappers()]
            reason = failures.store_full(need, self.used, self.budget, mapped, disk)
            self._grant_on_disk(source, request, need, reason)
            self._is_stuck = not disk

    def _find_mappers(self) -> list[tuple[Peer, int]]:
        """Return the processes that map the most shared memory, and the bytes."""
        found = []
        for peer in self._machine.peers.values():
            mapped = [self._resident[id] for id in peer.pins if id in self._resident]
            if mapped:
                found.append((peer, sum(obj.size for obj in mapped)))
        return sorted(found, key=lambda row: -row[1])[:MAX_NAMED_PROCESSES]

    def _refuse_readers(self, obj: Object, error: bytes) -> None:
        wanting, obj.wanting = obj.wanting, ()
        for number in wanting:
            if number in self._machine.peers:
                self._send(number, m.Located(obj.id, error=error))

    def spilled(self, id: bytes, error: str) -> None:
        """Handle the end of a spill."""
        segment = self._orphans.pop(id, "")
        obj = None if segment else self._machine.directory.objects[id]
        if obj is not None:
            segment = obj.segment
        size = self._sizes.get(segment, 0)
        self._spilling -= size
        if obj is None:
            self._delete(segment)
            self._send(HOST, m.DeleteSpilled(id))
        else:
            obj.loading = False
            if error:
                if not self._disk_failed:
                    self._machine.warn(f"An object could not be spilled to disk: {error}")
            elif obj.wanting:  # needed again: keep it in memory
                self._send(HOST, m.DeleteSpilled(id))
            else:
                obj.spilled = True
                obj.segment = ""
                self._resident.pop(id, None)
                self.spilled_bytes += size
                self._delete(segment)
            wanting, obj.wanting = obj.wanting, ()
            for source in wanting:
                self._locate(source, obj)
        self._disk_failed = bool(error)
        if error and self._waiting and not self._spilling:
            self._overflow(error)  # retrying does not help with a full disk
        self._progress()

    def _restore(self, obj: Object) -> None:
        obj.loading = True
        self._next += 1
        self._restoring[self._next] = obj.id
        self._wait(HOST, -self._next, -(-obj.size // PAGE) * PAGE)

    def restored(self, message: m.Restored) -> None:
        """Handle the end of a restore."""
        id, segment, error = message.id, message.segment, message.error
        obj = self._machine.directory.objects.get(id)
        if obj is None or not obj.loading or error:
            self._delete(segment)
            if message.no_room:
                self._drop_spares(self._spare_bytes)
            if obj is not None and obj.loading and message.no_room:
                self._locate_on_disk(obj)
            elif obj is not None and obj.loading:
                obj.loading = False
                self._refuse_readers(obj, failures.as_error(f"A spilled object is lost: {error}"))
        else:
            obj.loading = False
            obj.segment = segment
            self.restored_bytes += self._sizes[segment]
            self._resident[id] = obj
            wanting, obj.wanting = obj.wanting, ()
            for source in wanting:
                self._locate(source, obj)
        self._progress()

    def _serve(self) -> None:
        """Grant the waiting requests that fit now, in order."""
        waiting = self._waiting
        while waiting:
            source, request, need = waiting[0]
            if request < 0:
                if self.used + need > self.budget:
                    self._drop_spares(self.used + need - self.budget)
                if self.used + need > self.budget:
                    return
                waiting.popleft()
                id = self._restoring.pop(-request)
                obj = self._machine.directory.objects.get(id)
                if obj is None or not obj.loading:
                    continue  # freed meanwhile
                self._send(HOST, m.Restore(id, self._new_segment(HOST, need), obj.size))
                continue
            if source not in self._machine.peers:
                waiting.popleft()
                continue
            if not self._try(source, request, need):
                return
            waiting.popleft()

    def process_gone(self, number: int, segments: set[str], pins: dict[bytes, int]) -> None:
        """Release the segments and pins of an ended process."""
        for segment in segments:
            if segment in self._sizes:
                self._delete(segment)
        for segment, size in self._spare.pop(number, {}).items():
            self._spare_bytes -= size
            self._delete(segment)
        for id, count in pins.items():
            obj = self._machine.directory.objects.get(id)
            if obj is not None:
                obj.pinned = max(0, obj.pinned - count)
                if not obj.pinned:
                    self._unpinned(obj)
        self._progress()
