"""Decides which reports of a run are complete, and which checkpoints to keep.

Workers report independently of each other. The n-th reports of all workers form one report. It is complete when each
worker has made it and stored its part of the checkpoint, or will not make it:

- The worker has ended.
- The worker has never contributed to a checkpoint, and another worker is two reports ahead. A worker that has
  contributed is waited for, because the next checkpoint would be incomplete without its part.
- The worker had not reported at all when the first report was completed.

A worker that contributes to a checkpoint for the first time after its report was completed still adds its part.
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from skate.train._reports.metrics import lookup

Metrics = dict[str, Any]
Positions = dict[str, Any]
_MAX_LEAD = 2  # reports by which others may be ahead of a worker that contributes no checkpoints
_REMEMBERED = 64  # completed reports whose metrics and positions a late checkpoint can still use


class Status(enum.StrEnum):
    """The status of a checkpoint."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A complete checkpoint.

    Attributes:
        index: The number of its report.
        name: The name of its folder in that of the checkpoints, or an absolute path elsewhere.
        metrics: The metrics reported with it.
        positions: The positions of each worker in its datasets, by rank.
        status: Its status.
        validation: The settings of its validation, if any.
    """

    index: int
    name: str
    metrics: Metrics
    positions: Sequence[Positions | None] = ()
    status: Status = Status.COMMITTED
    validation: dict[str, Any] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether it waits for its validation."""
        return self.status is Status.PENDING_VALIDATION


@dataclass(frozen=True, slots=True)
class CompletedReport:
    """A complete report.

    Attributes:
        index: Its number.
        metrics: The metrics of each worker, by rank; None for one that did not report.
        checkpoint: Its checkpoint, if all parts are stored.
        dropped: Checkpoints that are no longer kept because of this one.
        lost: Why the reported checkpoint could not be stored.
        lost_name: The folder of that checkpoint, which may contain parts of it.
    """

    index: int
    metrics: list[Metrics | None]
    checkpoint: KeptCheckpoint | None = None
    dropped: tuple[KeptCheckpoint, ...] = ()
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


class ReportLedger:
    """The reports of the workers of one attempt.

    Args:
        world_size: The number of workers.
        first: The number of the first report.
        kept: The existing checkpoints, oldest first.
        keep: How many checkpoints to keep; all if None.
        score: The metric by which the best are kept; None to keep the latest.
        order: Whether the highest or the lowest score is best.
        waits_for: Ranks whose reports are always waited for.
    """

    def __init__(
        self,
        world_size: int,
        *,
        first: int = 0,
        kept: Sequence[KeptCheckpoint] = (),
        keep: int | None = None,
        score: str | None = None,
        order: Literal["max", "min"] = "max",
        waits_for: Iterable[int] = (),
    ) -> None:
        self.kept = list(kept)
        self.first = self.next = first
        self._keep, self._score, self._order = keep, score, order
        self._made = [0] * world_size
        self._ended = [False] * world_size
        self._contributors = set(waits_for)  # and ranks that have reported a checkpoint
        self._reports: dict[int, _Report] = {}
        self._past: dict[int, _Report] = {}  # complete, but a late worker may still add to the checkpoint

    # ------------------------------------------------------------ events

    def reported(
        self,
        rank: int,
        metrics: Metrics,
        name: str | None = None,
        positions: Positions | None = None,
        validation: dict[str, Any] | None = None,
    ) -> list[CompletedReport]:
        """A worker has made its next report; if it names a checkpoint, the worker is storing its part."""
        index = self.index_of(rank)
        self._made[rank] += 1
        if index < self.next:  # completed without this worker
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
            self._contributors.add(rank)
        return self._complete()

    def stored(
        self, rank: int, index: int, lost: str | None = None, name: str | None = None
    ) -> list[CompletedReport]:
        """Record that a worker has stored its part of a checkpoint, perhaps under another name, or has failed to."""
        report = self._reports.get(index)
        if report is None:
            return []
        report.being_stored.discard(rank)
        report.lost = report.lost or lost
        report.name = name or report.name
        return self._complete()

    def ended(self, rank: int) -> list[CompletedReport]:
        """A worker will make no further report."""
        self._ended[rank] = True
        return self._complete()

    def validated(self, index: int, status: Status, metrics: Metrics) -> list[KeptCheckpoint]:
        """Record the result of a validation, and return the checkpoints that are no longer kept."""
        self.kept = [
            replace(each, status=status, metrics={**each.metrics, **metrics}) if each.index == index else each
            for each in self.kept
        ]
        return self._drop()

    # ------------------------------------------------------------ queries

    def index_of(self, rank: int) -> int:
        """Return the number of a worker's next report."""
        return self.first + self._made[rank]

    @property
    def unfinished(self) -> list[str]:
        """The names of incomplete checkpoints."""
        kept = {each.name for each in self.kept}  # a late part may be missing, but the checkpoint is usable
        names = [report.name for report in self._reports.values() if report.name is not None]
        return [name for name in names if name not in kept]

    def is_storing(self, ranks: Container[int], before: int) -> bool:
        """Return whether the current uploads of some workers will complete a checkpoint.

        Args:
            ranks: The workers.
            before: The first report to ignore, with all later ones.
        """
        for index in sorted(self._reports):
            report = self._reports[index]
            if index >= before or not (self._is_made(index) and all(r in ranks for r in report.being_stored)):
                if index < self.next:
                    continue  # a late checkpoint does not delay others
                return False
            if report.being_stored and report.lost is None:
                return True
        return False

    def behind(self, index: int) -> list[int]:
        """Return the ranks that have not made all reports before a number, and still may."""
        return [rank for rank, ended in enumerate(self._ended) if not ended and self.index_of(rank) < index]

    def is_complete(self, before: int) -> bool:
        """Return whether all reports before a number are complete, with no upload under way."""
        return self.next >= before and not any(index < before for index in self._reports)

    @property
    def end(self) -> int:
        """The number of the first report that no worker has made."""
        return self.first + max(self._made)

    # ------------------------------------------------------------ decisions

    def _complete(self) -> list[CompletedReport]:
        late = [index for index in self._reports if index < self.next and self._can_complete(index)]
        done = [self._complete_report(index, self._reports.pop(index)) for index in sorted(late)]
        while self._can_complete(self.next):
            report = self._past[self.next] = self._reports.pop(self.next)
            self._past.pop(self.next - _REMEMBERED, None)
            done.append(self._complete_report(self.next, report))
            self.next += 1
        return done

    def _can_complete(self, index: int) -> bool:
        report = self._reports.get(index)
        return report is not None and not report.being_stored and self._is_made(index)

    def _is_made(self, index: int) -> bool:
        """Return whether no worker is expected to make a report any more."""
        for rank, made in enumerate(self._made):
            if self.first + made > index or self._ended[rank]:
                continue
            never_reports = made == 0 and self.next > self.first  # a report was completed without this worker
            if rank in self._contributors or (self.end - index <= _MAX_LEAD and not never_reports):
                return False
        return True

    def _complete_report(self, index: int, report: _Report) -> CompletedReport:
        metrics = [report.metrics.get(rank) for rank in range(len(self._made))]
        if report.name is None:
            return CompletedReport(index, metrics)
        if report.lost is not None:
            has_others = any(each.name == report.name for each in self.kept)
            return CompletedReport(
                index, metrics, lost=report.lost, lost_name=None if has_others else report.name
            )
        first = next(each for each in metrics if each is not None)
        positions = [report.positions.get(rank) for rank in range(len(self._made))]
        known = any(each is not None for each in positions)
        checkpoint = KeptCheckpoint(index, report.name, first, positions if known else ())
        if report.validations:
            # Several workers may request it: it runs once, with the settings of the lowest rank.
            settings = report.validations[min(report.validations)]
            checkpoint = replace(checkpoint, status=Status.PENDING_VALIDATION, validation=settings)
        # A late checkpoint is inserted in order; a late part replaces the entry of its checkpoint.
        self.kept = [each for each in self.kept if each.index != index]
        bisect.insort(self.kept, checkpoint, key=lambda each: each.index)
        return CompletedReport(index, metrics, checkpoint, tuple(self._drop()))

    def _drop(self) -> list[KeptCheckpoint]:
        if self._keep is None or len(self.kept) <= self._keep:
            return []
        latest = self.kept[-1]
        worst = sorted(self.kept, key=lambda each: sort_key(each, self._score, self._order))[: -self._keep]
        # Always keep the latest to resume from, and pending ones, whose score is not known yet.
        dropped = [each for each in worst if each is not latest and not each.is_pending]
        self.kept = [each for each in self.kept if each not in dropped]
        return dropped


def sort_key(checkpoint: KeptCheckpoint, score: str | None, order: str) -> tuple[bool, float, int]:
    """Return the key that sorts checkpoints from worst to best: by score, then from oldest to latest."""
    value = lookup(checkpoint.metrics, score) if score is not None else None
    if not isinstance(value, int | float) or value != value:  # missing, or NaN
        return False, 0.0, checkpoint.index
    return True, float(value if order == "max" else -value), checkpoint.index


def best(kept: Iterable[KeptCheckpoint], score: str, order: str) -> KeptCheckpoint | None:
    """Return the checkpoint with the best score; None if no checkpoint has one."""
    scored = [each for each in kept if sort_key(each, score, order)[0]]
    return max(scored, key=lambda each: sort_key(each, score, order), default=None)
