"""What workers ask whoever drives the run: to wait for each other, and which checkpoints there are."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from skate.train._reports.messages import BEGIN, CHECKPOINTS, Asked
from skate.train._run.journal import Journal
from skate.train._run.meeting import Meeting

_PATIENCE = 10.0  # seconds for which who asks waits for workers that are behind, until these report again


@dataclass(frozen=True)
class _Open:
    """A worker waits for checkpoints.

    Attributes:
        rank: The worker.
        number: Of its question.
        reports: How many reports have to be complete.
        validated: Whether validations have to be over.
        deadline: When it gets what there is, on the monotonic clock.
        lenient: When it gives up those who have not reported as often, on the same clock; None after that.
    """

    rank: int
    number: int
    reports: int
    validated: bool
    deadline: float | None
    lenient: float | None


class Questions:
    """Answers workers when there is an answer.

    Args:
        journal: Has the checkpoints.
        world: How many workers there are.
        answer: Takes rank, number of the question, and the answer.
        validates: Whether checkpoints that wait for a validation get one.
    """

    refs: tuple[Any, ...] = ()

    def __init__(
        self, journal: Journal, world: int, answer: Callable[[int, int, Any], Any], *, validates: bool
    ) -> None:
        self._journal = journal
        self._answer = answer
        self._meeting = Meeting(world)
        self._validates = validates
        self._open: list[_Open] = []
        self._silent: dict[
            int, int
        ] = {}  # ranks that were given up -> the report that they would have made next

    def asked(self, rank: int, asked: Asked) -> None:
        """A worker has asked something."""
        if asked.question == BEGIN:
            self._answer(rank, asked.number, None)
            return
        if asked.question != CHECKPOINTS:
            for each, number, answer in self._meeting.arrived(
                rank, asked.number, asked.question, asked.value
            ):
                self._answer(each, number, answer)
            return
        validated, timeout = asked.value
        now = time.monotonic()
        self._open.append(
            _Open(
                rank,
                asked.number,
                self._journal.ledger.index_of(rank),
                validated and self._validates,
                None if timeout is None else now + timeout,
                now + _PATIENCE,
            )
        )
        self.look()

    @property
    def due(self) -> float | None:
        """When somebody has waited for long enough, on the monotonic clock."""
        times = [at for each in self._open for at in (each.deadline, each.lenient) if at is not None]
        return min(times, default=None)

    def came(self, ref: Any) -> None:
        """Nothing is waited for."""

    def look(self) -> None:
        """Answer those who can be answered."""
        waiting, now = [], time.monotonic()
        for each in self._open:
            if each.lenient is not None and now >= each.lenient:
                ledger = self._journal.ledger
                self._silent.update((rank, ledger.index_of(rank)) for rank in ledger.behind(each.reports))
                each = replace(each, lenient=None)
            if self._has_answer(each, now):
                self._answer(each.rank, each.number, self._journal.checkpoints())
            else:
                waiting.append(each)
        self._open = waiting

    @property
    def is_open(self) -> bool:
        """Whether somebody waits for checkpoints."""
        return bool(self._open)

    @property
    def waiting_for_validations(self) -> list[int]:
        """The ranks that wait for validations, and do nothing meanwhile."""
        return sorted({each.rank for each in self._open if each.validated})

    def _has_answer(self, each: _Open, now: float) -> bool:
        if each.deadline is not None and now >= each.deadline:
            return True
        # Whoever is behind may be slow, or not report at all: who asks wants to know of what comes late, too.
        ledger = self._journal.ledger
        awaited = [
            rank for rank in ledger.behind(each.reports) if self._silent.get(rank) != ledger.index_of(rank)
        ]
        if (awaited and each.lenient is not None) or not ledger.is_complete(each.reports):
            return False
        return not each.validated or all(kept.index >= each.reports for kept in self._journal.pending)
