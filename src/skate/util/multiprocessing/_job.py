"""The work of one call of a pool's method, cut into chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

from skate.util.multiprocessing._worker import Outcome

# Behind a chunk that takes longer than this, no other one is sent to the same actor.
LONG_CHUNK_SECONDS = 0.25
# Of shorter chunks, so many go into one call: a call costs about as much as a very short chunk.
CALL_SECONDS = 0.001
MOST_CHUNKS_PER_CALL = 16


class Pace:
    """How long the chunks of one function take, and so how many to send to an actor at a time.

    Attributes:
        chunks_per_call: How many chunks to send in one call.
        calls_per_actor: How many calls to have at one actor: the one that runs and those behind it.
    """

    def __init__(self) -> None:
        self.chunks_per_call = 1
        self.calls_per_actor = 1
        self._seconds: float | None = None

    def record(self, seconds: float) -> None:
        """Take note of how long a chunk took; the latest counts most."""
        self._seconds = seconds if self._seconds is None else (self._seconds + seconds) / 2
        self.calls_per_actor = 1 if self._seconds > LONG_CHUNK_SECONDS else 2
        fitting = int(CALL_SECONDS / max(self._seconds, 1e-9))
        self.chunks_per_call = min(max(1, fitting), MOST_CHUNKS_PER_CALL)


new_number = itertools.count(1).__next__


class Job(Protocol):
    """One call of a pool's method."""

    number: int
    pace: Pace
    function: Callable[..., Any]
    manner: int

    def deliver(self, index: int, result: Outcome | Exception) -> Callable[[], object] | None:
        """Take in what became of chunk `index`; return the user's callback if it is due now.

        Called with the dispatcher's lock held.
        """

    def finish(self) -> None:
        """Note that the callback has run. Called with the dispatcher's lock held."""


class Chunk:
    """Some of a job's items, on their way to an actor and back.

    Args:
        job: What it belongs to.
        index: Which of the job's chunks it is.
        items: The items.

    Attributes:
        is_alone: Whether it has to have a call of its own.
    """

    __slots__ = ("index", "is_alone", "items", "job")

    def __init__(self, job: Job, index: int, items: Any) -> None:
        self.job = job
        self.index = index
        self.items = items
        self.is_alone = False
