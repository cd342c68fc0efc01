"""Requests of workers to the controller: barriers, broadcasts, and the list of checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from skate.train._reports.messages import BEGIN, CHECKPOINTS, Request
from skate.train._run.run_state import RunState

# Seconds for which a request for checkpoints waits for workers that are behind. After that, such a worker is not waited
# for until it reports again.
_LAGGARD_TIMEOUT_S = 10.0


class Barrier:
    """Collects a collective request until every worker has made it.

    Args:
        world_size: The number of workers.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._arrived: dict[str, dict[int, tuple[int, Any]]] = {}

    def arrive(self, rank: int, number: int, kind: str, value: Any) -> list[tuple[int, int, Any]]:
        """Add a worker's request.

        Returns:
            The replies, once all workers have arrived: rank, number of the request, and the value of rank 0.
        """
        arrived = self._arrived.setdefault(kind, {})
        arrived[rank] = (number, value)
        if len(arrived) < self._world_size:
            return []
        del self._arrived[kind]
        return [(each, request, arrived[0][1]) for each, (request, _) in arrived.items()]


@dataclass(frozen=True)
class _CheckpointRequest:
    """A worker waits for the list of checkpoints.

    Attributes:
        rank: The worker.
        number: The number of its request.
        reports: How many reports must be complete.
        validated: Whether their validations must be complete too.
        deadline: When to reply with the checkpoints that exist, on the monotonic clock.
        laggard_deadline: When to stop waiting for workers that are behind, on the same clock; None afterwards.
    """

    rank: int
    number: int
    reports: int
    validated: bool
    deadline: float | None
    laggard_deadline: float | None


class Requests:
    """Replies to requests of the workers; an event source.

    Args:
        run_state: Provides the checkpoints.
        world_size: The number of workers.
        reply: Takes the rank, the number of the request, and the reply.
        validates: Whether pending checkpoints get validated.
    """

    refs: tuple[Any, ...] = ()

    def __init__(
        self, run_state: RunState, world_size: int, reply: Callable[[int, int, Any], Any], *, validates: bool
    ) -> None:
        self._run_state = run_state
        self._reply = reply
        self._barrier = Barrier(world_size)
        self._validates = validates
        self._open: list[_CheckpointRequest] = []
        self._skipped: dict[int, int] = {}  # rank -> the report that it had yet to make when it was given up

    def received(self, rank: int, request: Request) -> None:
        """Handle a request of a worker."""
        if request.kind == BEGIN:
            self._reply(rank, request.number, None)
            return
        if request.kind != CHECKPOINTS:
            for each, number, value in self._barrier.arrive(
                rank, request.number, request.kind, request.value
            ):
                self._reply(each, number, value)
            return
        validated, timeout = request.value
        now = time.monotonic()
        self._open.append(
            _CheckpointRequest(
                rank,
                request.number,
                self._run_state.ledger.index_of(rank),
                validated and self._validates,
                None if timeout is None else now + timeout,
                now + _LAGGARD_TIMEOUT_S,
            )
        )
        self.poll()

    @property
    def wake_at(self) -> float | None:
        """The earliest deadline of an open request, on the monotonic clock."""
        times = [at for each in self._open for at in (each.deadline, each.laggard_deadline) if at is not None]
        return min(times, default=None)

    def on_ready(self, ref: Any) -> None:
        """Do nothing: requests wait for no references."""

    def poll(self) -> None:
        """Reply to the requests that can be answered."""
        waiting, now = [], time.monotonic()
        for each in self._open:
            if each.laggard_deadline is not None and now >= each.laggard_deadline:
                ledger = self._run_state.ledger
                self._skipped.update((rank, ledger.index_of(rank)) for rank in ledger.behind(each.reports))
                each = replace(each, laggard_deadline=None)
            if self._can_reply(each, now):
                self._reply(each.rank, each.number, self._run_state.checkpoints())
            else:
                waiting.append(each)
        self._open = waiting

    @property
    def is_open(self) -> bool:
        """Whether a worker waits for checkpoints."""
        return bool(self._open)

    @property
    def waiting_for_validations(self) -> list[int]:
        """The ranks that are blocked until validations are complete."""
        return sorted({each.rank for each in self._open if each.validated})

    def _can_reply(self, each: _CheckpointRequest, now: float) -> bool:
        if each.deadline is not None and now >= each.deadline:
            return True
        # A worker that is behind may be slow, or may never report. The caller wants late checkpoints too.
        ledger = self._run_state.ledger
        awaited = [
            rank for rank in ledger.behind(each.reports) if self._skipped.get(rank) != ledger.index_of(rank)
        ]
        if (awaited and each.laggard_deadline is not None) or not ledger.is_complete(each.reports):
            return False
        return not each.validated or all(kept.index >= each.reports for kept in self._run_state.pending)
