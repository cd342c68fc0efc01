"""Which reports of a run are complete, and which checkpoints are kept: decisions, and nothing else.

Workers report when they come to it, and nobody waits for anybody. The n-th reports of all workers belong together. A
report is complete when each worker has made it and its part of the checkpoint is stored, or will not make it any more:
it has ended, or others have got two reports further while it has never given a part of a checkpoint. A worker that
has given one is waited for: without its part the next checkpoint would be no good. One that had not reported anything
when the first report was complete is not waited for any more. Of one that comes late with its first part, the
checkpoint still counts.
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from skate.train._reports.metrics import found

Metrics = dict[str, Any]
Positions = dict[str, Any]
_FURTHER = 2  # reports that others are ahead of a worker that does not report
_REMEMBERED = (
    64  # reports that such a worker may be behind, and its checkpoint still has what the others said
)


class Status(enum.StrEnum):
    """How far a checkpoint is."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint that is complete.

    Attributes:
        index: Of the report that it came with.
        name: Of its folder, in the run's; a path from the root, if it is elsewhere.
        metrics: Reported with it.
        positions: Where each worker stood in its datasets, by rank.
        status: How far it is.
        validation: With which settings it is validated, if it is.
    """

    index: int
    name: str
    metrics: Metrics
    positions: Sequence[Positions | None] = ()
    status: Status = Status.COMMITTED
    validation: dict[str, Any] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether it waits to be validated."""
        return self.status is Status.PENDING_VALIDATION


@dataclass(frozen=True, slots=True)
class Completed:
    """A report is complete.

    Attributes:
        index: Its number.
        metrics: What each worker reported, by rank; None for one that did not.
        checkpoint: The checkpoint that came with it, if all its parts are stored.
        dropped: Checkpoints that are no longer kept because of this one.
        lost: Why there is no checkpoint although one was given.
        lost_name: Of its folder, in which parts of it may be.
    """

    index: int
    metrics: list[Metrics | None]
    checkpoint: Kept | None = None
    dropped: tuple[Kept, ...] = ()
    lost: str | None = None
    lost_name: str | None = None


@dataclass(slots=True)
class _Report:
    metrics: dict[int, Metrics] = field(default_factory=dict)
    positions: dict[int, Positions | None] = field(default_factory=dict)
    validations: dict[int, dict[str, Any]] = field(default_factory=dict)
    name: str | None = None
    being_stored: set[int] = field(default_factory=set)
    lost: str | None = None


class Ledger:
    """The reports of the workers of one attempt.

    Args:
        world: How many workers there are.
        first: The number of the first report.
        kept: Checkpoints that are there already, oldest first.
        keep: How many to keep; all if None.
        score: The metric by which to keep them; else the latest are.
        order: Whether the highest or the lowest score is best.
    """

    def __init__(
        self,
        world: int,
        *,
        first: int = 0,
        kept: Sequence[Kept] = (),
        keep: int | None = None,
        score: str | None = None,
        order: Literal["max", "min"] = "max",
    ) -> None:
        self.kept = list(kept)
        self.first = self.next = first
        self._keep, self._score, self._order = keep, score, order
        self._made = [0] * world
        self._ended = [False] * world
        self._gives_checkpoints: set[int] = set()
        self._reports: dict[int, _Report] = {}
        self._past: dict[
            int, _Report
        ] = {}  # complete, but a worker may still come with a part of a checkpoint

    # ------------------------------------------------------------ events

    def announced(
        self,
        rank: int,
        metrics: Metrics,
        name: str | None = None,
        positions: Positions | None = None,
        validation: dict[str, Any] | None = None,
    ) -> list[Completed]:
        """A worker has made its next report; with the name of a checkpoint, it is storing its part of it."""
        index = self.index_of(rank)
        self._made[rank] += 1
        if index < self.next:  # complete without this worker, who comes late
            if name is None:
                return []
            self._reports.setdefault(index, self._past.get(index, _Report()))
        report = self._reports.setdefault(index, _Report())
        report.metrics[rank] = metrics
        report.positions[rank] = positions
        if validation is not None:
            report.validations[rank] = validation
        if name is not None:
            report.name = report.name or name
            report.being_stored.add(rank)
            self._gives_checkpoints.add(rank)
        return self._complete()

    def stored(
        self, rank: int, index: int, lost: str | None = None, name: str | None = None
    ) -> list[Completed]:
        """A worker has stored its part of a checkpoint, under another name than it had announced, or has failed to."""
        report = self._reports.get(index)
        if report is None:
            return []
        report.being_stored.discard(rank)
        report.lost = report.lost or lost
        report.name = name or report.name
        return self._complete()

    def ended(self, rank: int) -> list[Completed]:
        """A worker will make no further report."""
        self._ended[rank] = True
        return self._complete()

    def validated(self, index: int, status: Status, metrics: Metrics) -> list[Kept]:
        """A checkpoint has been validated, or could not be; return the checkpoints that are no longer kept."""
        self.kept = [
            replace(each, status=status, metrics={**each.metrics, **metrics}) if each.index == index else each
            for each in self.kept
        ]
        return self._drop()

    # ------------------------------------------------------------ what is so

    def index_of(self, rank: int) -> int:
        """Return the number of the report that a worker makes next."""
        return self.first + self._made[rank]

    @property
    def unfinished(self) -> list[str]:
        """Names of checkpoints that are not complete."""
        kept = {
            each.name for each in self.kept
        }  # of one of which a further part comes late, the others are complete
        names = [report.name for report in self._reports.values() if report.name is not None]
        return [name for name in names if name not in kept]

    def is_storing(self, ranks: Container[int], before: int) -> bool:
        """Tell whether a checkpoint will be complete when some workers have stored what they are storing.

        Args:
            ranks: The workers.
            before: A report that is not looked at any more, nor are those after it.
        """
        for index in sorted(self._reports):
            report = self._reports[index]
            if index >= before or not (self._is_made(index) and all(r in ranks for r in report.being_stored)):
                if index < self.next:
                    continue  # one that comes late holds up no other
                return False
            if report.being_stored and report.lost is None:
                return True
        return False

    def behind(self, index: int) -> list[int]:
        """Return the ranks that have yet to make the report before a number, and may."""
        return [rank for rank, ended in enumerate(self._ended) if not ended and self.index_of(rank) < index]

    def is_complete(self, before: int) -> bool:
        """Tell whether all reports before a number are, and nothing is being stored that belongs to them."""
        return self.next >= before and not any(index < before for index in self._reports)

    @property
    def end(self) -> int:
        """The number of the first report that nobody has made."""
        return self.first + max(self._made)

    # ------------------------------------------------------------ deciding

    def _complete(self) -> list[Completed]:
        late = [index for index in self._reports if index < self.next and self._is_complete(index)]
        done = [self._completed(index, self._reports.pop(index)) for index in sorted(late)]
        while self._is_complete(self.next):
            report = self._past[self.next] = self._reports.pop(self.next)
            self._past.pop(self.next - _REMEMBERED, None)
            done.append(self._completed(self.next, report))
            self.next += 1
        return done

    def _is_complete(self, index: int) -> bool:
        report = self._reports.get(index)
        return report is not None and not report.being_stored and self._is_made(index)

    def _is_made(self, index: int) -> bool:
        """Tell whether all workers have made a report that will."""
        for rank, made in enumerate(self._made):
            if self.first + made > index or self._ended[rank]:
                continue
            does_not_report = made == 0 and self.next > self.first  # others have, and were not waited for
            if rank in self._gives_checkpoints or (self.end - index <= _FURTHER and not does_not_report):
                return False
        return True

    def _completed(self, index: int, report: _Report) -> Completed:
        metrics = [report.metrics.get(rank) for rank in range(len(self._made))]
        if report.name is None:
            return Completed(index, metrics)
        if report.lost is not None:
            has_others = any(each.name == report.name for each in self.kept)
            return Completed(index, metrics, lost=report.lost, lost_name=None if has_others else report.name)
        first = next(each for each in metrics if each is not None)
        positions = [report.positions.get(rank) for rank in range(len(self._made))]
        said = any(each is not None for each in positions)
        checkpoint = Kept(index, report.name, first, positions if said else ())
        if report.validations:
            # Several workers may ask for it: it is done once, as the first of them wants it.
            wanted = report.validations[min(report.validations)]
            checkpoint = replace(checkpoint, status=Status.PENDING_VALIDATION, validation=wanted)
        # One that comes late has its place among the others; one of which a further part comes late has it already.
        self.kept = [each for each in self.kept if each.index != index]
        bisect.insort(self.kept, checkpoint, key=lambda each: each.index)
        return Completed(index, metrics, checkpoint, tuple(self._drop()))

    def _drop(self) -> list[Kept]:
        if self._keep is None or len(self.kept) <= self._keep:
            return []
        latest = self.kept[-1]
        worst = sorted(self.kept, key=self._worth)[: -self._keep]
        # The latest is kept to go on from, also when it is none of the best. What one is worth that waits to be
        # validated is not known yet.
        dropped = [each for each in worst if each is not latest and not each.is_pending]
        self.kept = [each for each in self.kept if each not in dropped]
        return dropped

    def _worth(self, checkpoint: Kept) -> tuple[bool, float, int]:
        return worth(checkpoint, self._score, self._order)


def worth(checkpoint: Kept, score: str | None, order: str) -> tuple[bool, float, int]:
    """Return what checkpoints are compared by, the best being the largest: score first, then age."""
    value = found(checkpoint.metrics, score) if score is not None else None
    if not isinstance(value, int | float) or value != value:  # none, or not a number
        return False, 0.0, checkpoint.index
    return True, float(value if order == "max" else -value), checkpoint.index


def best(kept: Iterable[Kept], score: str, order: str) -> Kept | None:
    """Return the checkpoint with the best score; None if no checkpoint has one."""
    scored = [each for each in kept if worth(each, score, order)[0]]
    return max(scored, key=lambda each: worth(each, score, order), default=None)
