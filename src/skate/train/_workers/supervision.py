"""Probes silent workers, and reports which of them hangs and where."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence, Set
from typing import Any

import skate
from skate._api import variables
from skate.exceptions import RayError
from skate.train._failures.causes import Failure
from skate.train._failures.errors import HungWorkerError
from skate.train._workers.group import Member, WorkerGroup
from skate.train._workers.liveness import LivenessTracker
from skate.train._workers.stacks import WorkerProgress

log = logging.getLogger(__name__)

_PROBE_AFTER_S = 60.0  # of silence
# A long call in native code may hold the GIL. TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S overrides it.
HEALTH_CHECK_TIMEOUT_S = 600.0
_RECHECK_AFTER_S = 10.0  # of silence, once a worker has returned
_BLOCKED_AFTER_S = 60.0  # in one call, after which waiting for a worker that has returned is in vain
_IDLE_CPU_SHARE = 0.1  # of one processor, below which a thread does not compute
PROBE_ALL_TIMEOUT_S = 10.0  # to answer a probe once the run is known to hang


class Supervisor:
    """Probes workers that are silent for too long; an event source.

    Args:
        group: The workers.
        hang_timeout: Seconds without a message from any worker after which the run hangs; None for no limit.

    Attributes:
        hung: The workers that hang.
    """

    def __init__(self, group: WorkerGroup, hang_timeout: float | None) -> None:
        self._group = group
        self._tracker = LivenessTracker(
            range(len(group)),
            time.monotonic(),
            hang_timeout=hang_timeout,
            probe_after=_PROBE_AFTER_S,
            probe_timeout=variables.number(
                "TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", HEALTH_CHECK_TIMEOUT_S, at_least=0
            ),
            recheck_after=_RECHECK_AFTER_S,
        )
        self._alive = set(range(len(group)))
        self._probes: dict[Any, int] = {}
        self._progress: dict[int, WorkerProgress | None] = {}
        self._waits_since: dict[int, tuple[float, WorkerProgress]] = {}  # when a waiting call was first seen
        self._returned: set[int] = set()
        self._probe_all_deadline: float | None = None
        self._warned = False
        self._all_hang = False
        self.hung: dict[int, Failure] = {}

    # ------------------------------------------------------------ events of workers

    def received(self, rank: int) -> None:
        """Record a message of a worker's training function."""
        self._tracker.received(rank, time.monotonic())
        self._warned = False
        self._progress.pop(rank, None)
        self._waits_since.pop(rank, None)
        if self._all_hang:  # the run was slow, and does not hang
            self._all_hang, self._probe_all_deadline = False, None

    def worker_ended(self, rank: int) -> None:
        """Handle the end or the failure of a worker."""
        self._tracker.ended(rank, time.monotonic())
        self._alive.discard(rank)

    def worker_returned(self, rank: int) -> None:
        """Handle the return of a worker's training function: an error if others wait for it in a collective."""
        self.worker_ended(rank)
        self._tracker.returned(rank, time.monotonic())
        self._returned.add(rank)
        self._waits_since.clear()  # the time of waiting counts from here

    # ------------------------------------------------------------ event source

    @property
    def refs(self) -> list[Any]:
        """The open probes."""
        return list(self._probes)

    @property
    def wake_at(self) -> float | None:
        """When to poll next, on the monotonic clock."""
        return self._probe_all_deadline if self._probe_all_deadline is not None else self._tracker.due()

    def on_ready(self, ref: Any) -> None:
        """Handle the answer to a probe."""
        rank = self._probes.pop(ref)
        try:
            progress: WorkerProgress | None = skate.get(ref)
        except RayError:  # the worker's stream reports its end
            return
        now = time.monotonic()
        self._progress[rank] = progress
        self._tracker.answered(rank, now)
        _, before = self._waits_since.get(rank, (now, None))
        if progress is None or not progress.is_waiting:
            self._waits_since.pop(rank, None)
        elif before is None or before.call != progress.call:
            self._waits_since[rank] = now, progress
        if self._probe_all_deadline is not None:
            self.poll()
        elif blocked := self._blocked_by_returned(now):
            self.hung = {each: self._failure(each, now) for each in blocked}

    def poll(self) -> None:
        """Check whether a worker hangs, and send the probes that are due."""
        now = time.monotonic()
        due = self.wake_at
        if due is None or (now < due and self._probe_all_deadline is None):
            return
        if self._probe_all_deadline is not None:
            if now >= self._probe_all_deadline or not self._has_open_probes:
                self._conclude(now)
        elif self._tracker.hangs(now):
            self._all_hang = True
            self.probe_all()
        elif unresponsive := self._tracker.unresponsive(now):
            self.hung = {rank: self._failure(rank, now) for rank in unresponsive}
        else:
            for rank in self._tracker.to_probe(now):
                self._probe(rank, now)
            self._warn(now)

    # ------------------------------------------------------------ workers that have returned

    def _blocked_by_returned(self, now: float) -> list[int]:
        """Return the ranks that wait for one that has returned, if no other rank can release them.

        While one rank computes, the others may wait for it: a rank that has sent its part of a `gather` may return.
        Only if all ranks have been in the same call for a while is the run stuck.
        """
        if not self._returned or not all(self._is_blocked(rank, now) for rank in self._alive):
            return []
        return [rank for rank in sorted(self._alive) if self._group_of(rank) & self._returned]

    def _is_blocked(self, rank: int, now: float) -> bool:
        since, before = self._waits_since.get(rank, (now, None))
        progress = self._progress.get(rank)
        if (
            before is None
            or progress is None
            or progress.call != before.call
            or now - since < _BLOCKED_AFTER_S
        ):
            return False
        # A backward pass may compute: without known ranks, only an idle thread proves that it waits.
        return progress.group is not None or progress.cpu - before.cpu < _IDLE_CPU_SHARE * (now - since)

    def _group_of(self, rank: int) -> Set[int]:
        progress = self._progress.get(rank)
        return progress.group if progress is not None and progress.group is not None else self._returned

    # ------------------------------------------------------------ probes

    def probe_all(self) -> None:
        """Probe all living workers, because the run is known to be stuck."""
        now = time.monotonic()
        self._probe_all_deadline = now + PROBE_ALL_TIMEOUT_S
        self._probes.clear()
        self._progress.clear()
        for rank in self._alive:
            self._probe(rank, now)

    @property
    def _has_open_probes(self) -> bool:
        waiting = [rank for rank in self._probes.values() if rank in self._alive]
        return any(self._group.members[rank].process_status != "stopped" for rank in waiting)

    def _conclude(self, now: float) -> None:
        """Blame workers that do not answer; else those that do not wait for others; else, if all hang, all."""
        self._probe_all_deadline = None
        alive = sorted(self._alive)
        unresponsive = [rank for rank in alive if rank not in self._progress]
        busy = [rank for rank in alive if not self._is_waiting(rank)]
        hung = unresponsive or busy or (alive if self._all_hang else [])
        self.hung = {rank: self._failure(rank, now) for rank in hung}

    def _is_waiting(self, rank: int) -> bool:
        progress = self._progress.get(rank)
        return progress is not None and progress.is_waiting

    def _probe(self, rank: int, now: float) -> None:
        self._tracker.probed(rank, now)
        self._probes[self._group.members[rank].actor.progress.remote()] = rank

    # ------------------------------------------------------------ messages

    def _failure(self, rank: int, now: float) -> Failure:
        seconds = self._tracker.silent_for(rank, now)
        progress = self._progress.get(rank)
        awaited = sorted(self._group_of(rank) & self._returned)
        if progress is not None and progress.is_waiting and awaited:
            text = (
                f"it waits for {_format_ranks(awaited)}, whose training function has returned: all ranks must call a "
                "collective operation equally often. Its training function has been silent for "
                f"{seconds:.0f} s, and is in {progress.line}"
            )
            detail = f"\n{progress.stack.rstrip()}"
        elif progress is not None:
            text = f"it hangs: its training function has been silent for {seconds:.0f} s, and is in {progress.line}"
            detail = f"\n{progress.stack.rstrip()}"
        else:
            process = _describe_process(self._group.members[rank])
            text = f"it hangs: it has been silent for {seconds:.0f} s, and {process}"
            detail = ""
        others = [
            f"  rank {other} {'waits' if progress.is_waiting else 'is'} in {progress.line}"
            for other, progress in sorted(self._progress.items())
            if other != rank and progress is not None and other in self._alive
        ]
        if others:
            detail += "\nmeanwhile:\n" + "\n".join(others)
        return Failure(HungWorkerError(f"rank {rank}: {text}"), text + detail)

    def _warn(self, now: float) -> None:
        """Log, once per silence, which ranks wait for which: it may be a hang or a long evaluation."""
        waiting = [rank for rank in self._alive if self._is_waiting(rank)]
        busy = [
            rank
            for rank, progress in self._progress.items()
            if progress is not None and not progress.is_waiting
        ]
        if self._warned or not waiting or not busy:
            return
        self._warned = True
        first = min(busy)
        progress = self._progress[first]
        assert progress is not None
        log.warning(
            "ranks %s wait for others, and rank %d has been silent for %.0f s: it is in %s. "
            "FailureConfig(hang_timeout_s=…) ends a run that hangs",
            sorted(waiting),
            first,
            self._tracker.silent_for(first, now),
            progress.line,
        )


def _format_ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _describe_process(member: Member) -> str:
    """Describe a process that does not answer."""
    location = member.location
    status = member.process_status
    if status == "stopped":
        return f"its process {location.pid} on {location.hostname} is stopped (SIGSTOP)"
    known = f", which is {status}," if status else ""
    return (
        f"its process {location.pid} on {location.hostname}{known} does not answer: it is probably in native code that "
        "holds Python's lock"
    )
