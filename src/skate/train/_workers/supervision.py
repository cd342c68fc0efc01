"""Looks after workers of which nothing is heard, and says which of them hangs, and where."""

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
from skate.train._workers.stacks import Stand
from skate.train._workers.watch import Watch

log = logging.getLogger(__name__)

_SILENCE = 60.0  # seconds without a word, after which a worker is asked whether it is there
# In which it has to answer: a long call in native code may hold Python's lock. A variable may set another one.
HEALTH_CHECK_TIMEOUT_S = 600.0
_RECHECK = 10.0  # the same, once a worker has returned
_BLOCKED = 60.0  # seconds in one call after which those who wait for a worker that has returned wait in vain
_IDLE = 0.1  # the share of a processor below which a thread does not compute
INQUIRY = 10.0  # seconds to answer where it stands, once it is known that the run hangs


class Supervisor:
    """Asks workers where they are, if they are silent for too long.

    Args:
        group: The workers.
        limit: Seconds without a word from any worker after which the run hangs; None if there is no limit.

    Attributes:
        hung: The workers that hang.
    """

    def __init__(self, group: WorkerGroup, limit: float | None) -> None:
        self._group = group
        self._watch = Watch(
            range(len(group)),
            time.monotonic(),
            limit=limit,
            silence=_SILENCE,
            patience=variables.number(
                "TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", HEALTH_CHECK_TIMEOUT_S, at_least=0
            ),
            recheck=_RECHECK,
        )
        self._living = set(range(len(group)))
        self._questions: dict[Any, int] = {}
        self._stands: dict[int, Stand | None] = {}
        self._waits_since: dict[int, tuple[float, Stand]] = {}  # when a call was first seen to wait, and how
        self._returned: set[int] = set()
        self._inquiry: float | None = None  # when the answers have to be there
        self._warned = False
        self._all_hang = False
        self.hung: dict[int, Failure] = {}

    # ------------------------------------------------------------ what workers do

    def heard(self, rank: int) -> None:
        """A worker's training function has said something."""
        self._watch.heard(rank, time.monotonic())
        self._warned = False
        self._stands.pop(rank, None)
        self._waits_since.pop(rank, None)
        if self._all_hang:  # it was slow, and does not hang
            self._all_hang, self._inquiry = False, None

    def ended(self, rank: int) -> None:
        """A worker has ended, or failed."""
        self._watch.ended(rank, time.monotonic())
        self._living.discard(rank)

    def returned(self, rank: int) -> None:
        """A worker's training function has returned. It may, unless others wait for it in a collective operation."""
        self.ended(rank)
        self._watch.returned(rank, time.monotonic())
        self._returned.add(rank)
        self._waits_since.clear()  # what waits now has to wait from here on

    # ------------------------------------------------------------ the loop's side

    @property
    def refs(self) -> list[Any]:
        """Answers that are waited for."""
        return list(self._questions)

    @property
    def due(self) -> float | None:
        """When to look again, on the monotonic clock."""
        return self._inquiry if self._inquiry is not None else self._watch.due()

    def came(self, ref: Any) -> None:
        """An answer is there."""
        rank = self._questions.pop(ref)
        try:
            stand: Stand | None = skate.get(ref)
        except RayError:  # its stream says that it is gone
            return
        now = time.monotonic()
        self._stands[rank] = stand
        self._watch.answered(rank, now)
        _, before = self._waits_since.get(rank, (now, None))
        if stand is None or not stand.waits:
            self._waits_since.pop(rank, None)
        elif before is None or before.call != stand.call:
            self._waits_since[rank] = now, stand
        if self._inquiry is not None:
            self.look()
        elif in_vain := self._waits_in_vain(now):
            self.hung = {each: self._failure(each, now) for each in in_vain}

    def look(self) -> None:
        """See whether a worker hangs."""
        now = time.monotonic()
        due = self.due
        if due is None or (now < due and self._inquiry is None):
            return
        if self._inquiry is not None:
            if now >= self._inquiry or not self._awaited:
                self._conclude(now)
        elif self._watch.hangs(now):
            self._all_hang = True
            self.inquire()
        elif mute := self._watch.mute(now):
            self.hung = {rank: self._failure(rank, now) for rank in mute}
        else:
            for rank in self._watch.to_ask(now):
                self._ask(rank, now)
            self._warn(now)

    # ------------------------------------------------------------ workers that have returned

    def _waits_in_vain(self, now: float) -> list[int]:
        """Return the ranks that wait for one that has returned, if no other rank can let them go on.

        As long as a rank computes, others may wait for it: one that has sent its part of a `gather` may return. Only
        if all have been in the same call for a while does nothing move any more.
        """
        if not self._returned or not all(self._is_blocked(rank, now) for rank in self._living):
            return []
        return [rank for rank in sorted(self._living) if self._group_of(rank) & self._returned]

    def _is_blocked(self, rank: int, now: float) -> bool:
        since, before = self._waits_since.get(rank, (now, None))
        stand = self._stands.get(rank)
        if before is None or stand is None or stand.call != before.call or now - since < _BLOCKED:
            return False
        # A backward pass may compute: where the ranks are not known, neither is it known that it waits.
        return stand.group is not None or stand.cpu - before.cpu < _IDLE * (now - since)

    def _group_of(self, rank: int) -> Set[int]:
        stand = self._stands.get(rank)
        return stand.group if stand is not None and stand.group is not None else self._returned

    # ------------------------------------------------------------ the inquiry

    def inquire(self) -> None:
        """Ask all workers that live where they are, because something is wrong."""
        now = time.monotonic()
        self._inquiry = now + INQUIRY
        self._questions.clear()
        self._stands.clear()
        for rank in self._living:
            self._ask(rank, now)

    @property
    def _awaited(self) -> bool:
        waiting = [rank for rank in self._questions.values() if rank in self._living]
        return any(self._group.members[rank].process_status != "stopped" for rank in waiting)

    def _conclude(self, now: float) -> None:
        """Name those that do not answer; else those that do not wait for others; else, if all hang, all."""
        self._inquiry = None
        living = sorted(self._living)
        mute = [rank for rank in living if rank not in self._stands]
        busy = [rank for rank in living if not self._waits(rank)]
        hung = mute or busy or (living if self._all_hang else [])
        self.hung = {rank: self._failure(rank, now) for rank in hung}

    def _waits(self, rank: int) -> bool:
        stand = self._stands.get(rank)
        return stand is not None and stand.waits

    def _ask(self, rank: int, now: float) -> None:
        self._watch.asked(rank, now)
        self._questions[self._group.members[rank].actor.stand.remote()] = rank

    # ------------------------------------------------------------ words

    def _failure(self, rank: int, now: float) -> Failure:
        seconds = self._watch.silent_for(rank, now)
        stand = self._stands.get(rank)
        awaited = sorted(self._group_of(rank) & self._returned)
        if stand is not None and stand.waits and awaited:
            text = (
                f"it waits for {_ranks(awaited)}, whose training function has returned: all ranks have to call a "
                "collective operation, as often as each other. Its training function has said nothing for "
                f"{seconds:.0f} s, and stands in {stand.place}"
            )
            detail = f"\n{stand.stack.rstrip()}"
        elif stand is not None:
            text = f"it hangs: its training function has said nothing for {seconds:.0f} s, and stands in {stand.place}"
            detail = f"\n{stand.stack.rstrip()}"
        else:
            text = f"it hangs: it has said nothing for {seconds:.0f} s, and {_muteness(self._group.members[rank])}"
            detail = ""
        others = [
            f"  rank {other} {'waits' if stand.waits else 'is'} in {stand.place}"
            for other, stand in sorted(self._stands.items())
            if other != rank and stand is not None and other in self._living
        ]
        if others:
            detail += "\nmeanwhile:\n" + "\n".join(others)
        return Failure(HungWorkerError(f"rank {rank}: {text}"), text + detail)

    def _warn(self, now: float) -> None:
        """Say once in a silence who waits for whom: it may be a hang, and it may be a long evaluation."""
        waiting = [rank for rank in self._living if self._waits(rank)]
        busy = [rank for rank, stand in self._stands.items() if stand is not None and not stand.waits]
        if self._warned or not waiting or not busy:
            return
        self._warned = True
        first = min(busy)
        stand = self._stands[first]
        assert stand is not None
        log.warning(
            "ranks %s wait for others, and nothing has been heard of rank %d for %.0f s: it is in %s. "
            "FailureConfig(hang_timeout_s=…) ends what hangs",
            sorted(waiting),
            first,
            self._watch.silent_for(first, now),
            stand.place,
        )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _muteness(member: Member) -> str:
    """Say what is known of a process that does not answer."""
    where = member.whereabouts
    status = member.process_status
    if status == "stopped":
        return f"its process {where.pid} on {where.hostname} is stopped (SIGSTOP)"
    known = f", which is {status}," if status else ""
    return (
        f"its process {where.pid} on {where.hostname}{known} does not answer: it is probably in native code that holds "
        "Python's lock"
    )
