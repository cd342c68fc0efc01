"""The work of one call of a pool's method, divided into chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

from skate.util.multiprocessing._worker import Outcome

# After a chunk that takes longer than this, no other one is queued at the same actor.
LONG_CHUNK_S = 0.25
# Target duration of a call, into which short chunks are batched: a call costs about as much as a very short chunk.
CALL_DURATION_S = 0.001
MAX_CHUNKS_PER_CALL = 16


class Pace:
    """The duration of the chunks of one function, from which the number of chunks to send is derived.

    Attributes:
        chunks_per_call: Number of chunks per call.
        calls_per_actor: Number of calls at one actor: the running one and those queued behind it.
    """

    def __init__(self) -> None:
        self.chunks_per_call = 1
        self.calls_per_actor = 1
        self._seconds: float | None = None

    def record(self, seconds: float) -> None:
        """Record the duration of a chunk; recent chunks have more weight."""
        self._seconds = seconds if self._seconds is None else (self._seconds + seconds) / 2
        self.calls_per_actor = 1 if self._seconds > LONG_CHUNK_S else 2
        fitting = int(CALL_DURATION_S / max(self._seconds, 1e-9))
        self.chunks_per_call = min(max(1, fitting), MAX_CHUNKS_PER_CALL)


new_number = itertools.count(1).__next__


class Job(Protocol):
    """One call of a pool's method."""

    number: int
    pace: Pace
    function: Callable[..., Any]
    manner: int

    def deliver(self, index: int, result: Outcome | Exception) -> Callable[[], object] | None:
        """Store the result of chunk `index`; return the user's callback if it is due.

        Called with the lock of the dispatcher held.
        """

    def finish(self) -> None:
        """Record that the callback has run. Called with the lock of the dispatcher held."""


class Chunk:
    """Some of the items of a job.

    Args:
        job: The job.
        index: Index of the chunk within the job.
        items: The items.

    Attributes:
        is_alone: Whether it must be sent in a separate call.
    """

    __slots__ = ("index", "is_alone", "items", "job")

    def __init__(self, job: Job, index: int, items: Any) -> None:
        self.job = job
        self.index = index
        self.items = items
        self.is_alone = False
