"""Decide which actor of a pool gets which chunk, and when.

Chunks are assigned to slots, one per actor, so that short work is distributed evenly. An idle actor takes chunks from
the queue of one that is stuck with a long chunk, so that long work is balanced too. This module only decides: it makes
no calls and has no clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Any

from skate.util.multiprocessing._job import Chunk, Pace
from skate.util.multiprocessing._worker import MAX_FUNCTIONS

# Seconds an actor must be busy with one chunk before others take from its queue. With a shorter time, an actor that the
# system merely scheduled later than the others would lose its share.
STUCK_AFTER_S = 0.1
# The same for the first chunk of an actor, during which it imports the modules of the function.
FIRST_STUCK_AFTER_S = 0.5


class Slot:
    """The slot of one actor, which can be replaced.

    Attributes:
        actor: The actor, or None if it must be created before the slot is used.
        queue: Chunks that are assigned to the slot and not sent yet.
        outstanding: Number of calls that the actor has not finished.
        chunks_taken: Number of chunks that the current actor has received.
        known: Numbers of the latest jobs whose function the current actor has.
    """

    def __init__(self) -> None:
        self.actor: Any = None
        self.queue: deque[Chunk] = deque()
        self.outstanding = 0
        self.chunks_taken = 0
        self.known: deque[int] = deque(maxlen=MAX_FUNCTIONS)
        self.busy_since = 0.0
        self.last_pace: Pace | None = None  # of the last finished call
        self.last_dealt = 0

    @property
    def is_idle(self) -> bool:
        """Whether the slot has nothing to do."""
        return not (self.outstanding or self.queue)

    @property
    def stuck_at(self) -> float:
        """The time from which the actor counts as stuck with its chunk."""
        return self.busy_since + (STUCK_AFTER_S if self.last_pace else FIRST_STUCK_AFTER_S)


class Slots:
    """All slots of a pool.

    Args:
        size: Number of slots.
        max_chunks: Maximum number of chunks per actor; None for any number.
    """

    def __init__(self, size: int, max_chunks: int | None) -> None:
        self._slots = [Slot() for _ in range(size)]
        self._max_chunks = max_chunks
        self._deals = 0

    def __len__(self) -> int:
        return len(self._slots)

    def assign(self, chunks: Iterable[Chunk]) -> None:
        """Assign the chunks to the least loaded slots, in round-robin order."""
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
        """Return the next chunks to send in one call, and their slot, if any can be sent now."""
        for slot in self._slots:
            if slot.queue and self._has_room(slot):
                return slot, self._send(slot, slot.queue, now)
        for slot in self._slots:
            if slot.is_idle and (stuck := self._stuck_queues(now)):
                return slot, self._send(slot, max(stuck, key=len), now)
        return None

    def seconds_to_next(self, now: float) -> float | None:
        """Return the seconds after which to call `next` again even without new events."""
        if not any(slot.is_idle for slot in self._slots):
            return None
        times = [slot.stuck_at for slot in self._slots if slot.queue]
        return max(0.0, min(times) - now) if times else None

    def finish_call(self, slot: Slot, pace: Pace, now: float) -> Any:
        """Record that a call has finished; return the actor if it must be stopped."""
        slot.outstanding -= 1
        slot.busy_since = now
        slot.last_pace = pace
        if slot.outstanding or slot.chunks_taken != self._max_chunks:
            return None
        actor, slot.actor = slot.actor, None
        return actor

    def take_chunks(self) -> list[Chunk]:
        """Remove and return all chunks that have not been sent."""
        chunks = [chunk for slot in self._slots for chunk in slot.queue]
        for slot in self._slots:
            slot.queue.clear()
        return chunks

    def take_actors(self) -> list[Any]:
        """Remove and return all actors."""
        actors = [slot.actor for slot in self._slots if slot.actor is not None]
        for slot in self._slots:
            slot.actor = None
        return actors

    def fill(self, actors: Iterable[Any]) -> None:
        """Set the first actor of every slot."""
        for slot, actor in zip(self._slots, actors, strict=True):
            slot.actor = actor

    def _has_room(self, slot: Slot) -> bool:
        if slot.outstanding == 0:
            return True
        if slot.actor is None or slot.chunks_taken == self._max_chunks:
            return False
        return slot.outstanding < slot.queue[0].job.pace.calls_per_actor and self._has_run_same_function(slot)

    def _has_run_same_function(self, slot: Slot) -> bool:
        """Return whether the actor has just run the same function; otherwise it may be stuck with it."""
        return slot.last_pace is slot.queue[0].job.pace

    def _stuck_queues(self, now: float) -> list[deque[Chunk]]:
        """Return the queues of slots whose actor has been busy with one chunk for a long time."""
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
