"""Decide which of a pool's actors gets which chunk, and when.

Every chunk is dealt to a slot, the place of one actor, so that short work spreads evenly. An actor that
has nothing left takes chunks from the queue of one that is stuck with a long chunk, so that long work
spreads well too. This module only decides; it calls nobody and has no clock of its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Any

from skate.util.multiprocessing._job import Chunk, Pace
from skate.util.multiprocessing._worker import MOST_FUNCTIONS

# How long an actor has to be busy with one chunk before others take from its queue. Shorter, and an actor
# that the system merely scheduled later than the others would lose its share.
STUCK_SECONDS = 0.1
# The same for an actor's first chunk, with which it imports what the function needs.
FIRST_STUCK_SECONDS = 0.5


class Slot:
    """The place of one actor; the actor itself can be replaced.

    Attributes:
        actor: The actor, or None if the next one to use the slot has to make it.
        queue: Chunks that were dealt to the slot and not sent yet.
        outstanding: How many calls the actor has to finish.
        chunks_taken: How many chunks the present actor has had.
        known: Numbers of the latest jobs whose function the present actor has.
    """

    def __init__(self) -> None:
        self.actor: Any = None
        self.queue: deque[Chunk] = deque()
        self.outstanding = 0
        self.chunks_taken = 0
        self.known: deque[int] = deque(maxlen=MOST_FUNCTIONS)
        self.busy_since = 0.0
        self.last_pace: Pace | None = None  # of the call that came back last
        self.last_dealt = 0

    @property
    def is_idle(self) -> bool:
        """Whether the slot has nothing to do."""
        return not (self.outstanding or self.queue)

    @property
    def stuck_at(self) -> float:
        """From when on the actor counts as stuck with the chunk that it has."""
        return self.busy_since + (STUCK_SECONDS if self.last_pace else FIRST_STUCK_SECONDS)


class Slots:
    """All slots of a pool.

    Args:
        size: How many there are.
        max_chunks: How many chunks an actor may have in its life; None for any number.
    """

    def __init__(self, size: int, max_chunks: int | None) -> None:
        self._slots = [Slot() for _ in range(size)]
        self._max_chunks = max_chunks
        self._deals = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def has_waiting(self) -> bool:
        """Whether any chunk has not been sent."""
        return any(slot.queue for slot in self._slots)

    def deal(self, chunks: Iterable[Chunk]) -> None:
        """Deal the chunks to the slots with the least to do, in turns."""
        heap = [
            (len(slot.queue) + slot.outstanding, slot.last_dealt, index)
            for index, slot in enumerate(self._slots)
        ]
        heapq.heapify(heap)
        for chunk in chunks:
            load, _, index = heap[0]
            self._deals += 1
            self._slots[index].queue.append(chunk)
            self._slots[index].last_dealt = self._deals
            heapq.heapreplace(heap, (load + 1, self._deals, index))

    def next(self, now: float) -> tuple[Slot, list[Chunk]] | None:
        """Return the next chunks to send in one call, and their slot, if any can go now."""
        for slot in self._slots:
            if slot.queue and self._has_room(slot):
                return slot, self._send(slot, slot.queue, now)
        for slot in self._slots:
            if slot.is_idle and (stuck := self._stuck(now)):
                return slot, self._send(slot, max(stuck, key=len), now)
        return None

    def seconds_to_next(self, now: float) -> float | None:
        """Return after how many seconds to ask for `next` again even if nothing happens until then."""
        if not any(slot.is_idle for slot in self._slots):
            return None
        times = [slot.stuck_at for slot in self._slots if slot.queue]
        return max(0.0, min(times) - now) if times else None

    def landed(self, slot: Slot, pace: Pace, now: float) -> Any:
        """Note that a call has come back; return the actor if this was its last, to be stopped."""
        slot.outstanding -= 1
        slot.busy_since = now
        slot.last_pace = pace
        if slot.outstanding or slot.chunks_taken != self._max_chunks:
            return None
        actor, slot.actor = slot.actor, None
        return actor

    def take_chunks(self) -> list[Chunk]:
        """Remove all chunks that have not been sent and return them."""
        chunks = [chunk for slot in self._slots for chunk in slot.queue]
        for slot in self._slots:
            slot.queue.clear()
        return chunks

    def take_actors(self) -> list[Any]:
        """Remove all actors and return them."""
        actors = [slot.actor for slot in self._slots if slot.actor is not None]
        for slot in self._slots:
            slot.actor = None
        return actors

    def fill(self, actors: Iterable[Any]) -> None:
        """Give every slot its first actor."""
        for slot, actor in zip(self._slots, actors, strict=True):
            slot.actor = actor

    def _has_room(self, slot: Slot) -> bool:
        if slot.outstanding == 0:
            return True
        if slot.actor is None or slot.chunks_taken == self._max_chunks:
            return False
        return slot.outstanding < slot.queue[0].job.pace.calls_per_actor and self._is_proven(slot)

    def _is_proven(self, slot: Slot) -> bool:
        """Return whether the actor has just run what it would get more of: else it may be stuck with it."""
        return slot.last_pace is slot.queue[0].job.pace

    def _stuck(self, now: float) -> list[deque[Chunk]]:
        """Return the queues of slots whose actor has been busy with one chunk for long."""
        return [slot.queue for slot in self._slots if slot.queue and now >= slot.stuck_at]

    def _send(self, slot: Slot, queue: deque[Chunk], now: float) -> list[Chunk]:
        if slot.outstanding == 0:
            slot.busy_since = now
        if slot.actor is None:
            slot.chunks_taken = 0
            slot.last_pace = None
        chunks = [queue.popleft()]
        pace = chunks[0].job.pace
        most = pace.chunks_per_call if slot.last_pace is pace and not chunks[0].is_alone else 1
        if self._max_chunks is not None:
            most = min(most, self._max_chunks - slot.chunks_taken)
        while len(chunks) < most and queue and queue[0].job.pace is pace and not queue[0].is_alone:
            chunks.append(queue.popleft())
        slot.outstanding += 1
        slot.chunks_taken += len(chunks)
        return chunks
