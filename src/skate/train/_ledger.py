"""Which reports of a run are complete, and which checkpoints are kept: decisions, and nothing else.

Workers report when they come to it, and nobody waits for anybody. The n-th reports of all workers belong together. A
report is complete when each worker has made it and its part of the checkpoint is stored, or will not make it any more:
it has ended, or others have got two reports further while it has never given a part of a checkpoint. A worker that
has given one is waited for: without its part the next checkpoint would be no good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Metrics = dict[str, Any]
_FURTHER = 2  # reports that others are ahead of a worker that does not report


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint that is complete.

    Attributes:
        index: Of the report that it came with.
        name: Of its folder.
        metrics: Reported with it.
        path: Where it is, if the worker said that it is not to be stored with the run.
    """

    index: int
    name: str
    metrics: Metrics
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """A report is complete.

    Attributes:
        index: Its number.
        metrics: What each worker reported, by rank; None for one that did not.
        checkpoint: The checkpoint that came with it, if all its parts are stored.
        dropped: Checkpoints that are no longer kept because of this one.
        lost: Why there is no checkpoint although one was given.
    """

    index: int
    metrics: list[Metrics | None]
    checkpoint: Kept | None = None
    dropped: tuple[Kept, ...] = ()
    lost: str | None = None


@dataclass(slots=True)
class _Report:
    metrics: dict[int, Metrics] = field(default_factory=dict)
    name: str | None = None
    path: str | None = None
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

    # ------------------------------------------------------------ events

    def announced(
        self, rank: int, metrics: Metrics, name: str | None = None, path: str | None = None
    ) -> list[Completed]:
        """A worker has made its next report; with the name of a checkpoint, it is storing its part of it."""
        index = self.index_of(rank)
        self._made[rank] += 1
        if index < self.next:  # complete without this worker: its part comes late
            return []
        report = self._reports.setdefault(index, _Report())
        report.metrics[rank] = metrics
        if name is not None:
            report.name = report.name or name
            report.path = report.path or path
            report.being_stored.add(rank)
            self._gives_checkpoints.add(rank)
        return self._complete()

    def stored(self, rank: int, index: int, lost: str | None = None) -> list[Completed]:
        """A worker has stored its part of a checkpoint, or has failed to."""
        report = self._reports.get(index)
        if report is None:
            return []
        report.being_stored.discard(rank)
        report.lost = report.lost or lost
        return self._complete()

    def ended(self, rank: int) -> list[Completed]:
        """A worker will make no further report."""
        self._ended[rank] = True
        return self._complete()

    # ------------------------------------------------------------ what is so

    def index_of(self, rank: int) -> int:
        """Return the number of the report that a worker makes next."""
        return self.first + self._made[rank]

    @property
    def unfinished(self) -> list[str]:
        """Names of checkpoints that are not complete."""
        return [report.name for report in self._reports.values() if report.name is not None]

    # ------------------------------------------------------------ deciding

    def _complete(self) -> list[Completed]:
        done = []
        while self._is_complete(self.next):
            report = self._reports.pop(self.next)
            done.append(self._completed(self.next, report))
            self.next += 1
        return done

    def _is_complete(self, index: int) -> bool:
        report = self._reports.get(index)
        if report is None or report.being_stored:
            return False
        most = self.first + max(self._made)
        for rank, made in enumerate(self._made):
            if self.first + made > index or self._ended[rank]:
                continue
            if rank in self._gives_checkpoints or most - index <= _FURTHER:
                return False
        return True

    def _completed(self, index: int, report: _Report) -> Completed:
        metrics = [report.metrics.get(rank) for rank in range(len(self._made))]
        if report.name is None:
            return Completed(index, metrics)
        if report.lost is not None:
            return Completed(index, metrics, lost=report.lost)
        first = next(each for each in metrics if each is not None)
        checkpoint = Kept(index, report.name, first, report.path)
        self.kept.append(checkpoint)
        return Completed(index, metrics, checkpoint, tuple(self._drop()))

    def _drop(self) -> list[Kept]:
        if self._keep is None or len(self.kept) <= self._keep:
            return []
        latest = self.kept[-1]
        surplus = len(self.kept) - self._keep
        candidates = sorted((each for each in self.kept if each is not latest), key=self._worth)
        # The latest is kept to go on from, also when it is the worst: then one less of the others is.
        dropped = candidates[:surplus]
        self.kept = [each for each in self.kept if each not in dropped]
        return dropped

    def _worth(self, checkpoint: Kept) -> tuple[bool, float, int]:
        return worth(checkpoint, self._score, self._order)


def worth(checkpoint: Kept, score: str | None, order: str) -> tuple[bool, float, int]:
    """Return what checkpoints are compared by, the best being the largest: score first, then age."""
    value = checkpoint.metrics.get(score) if score is not None else None
    if not isinstance(value, int | float) or value != value:  # none, or not a number
        return False, 0.0, checkpoint.index
    return True, float(value if order == "max" else -value), checkpoint.index


def best(kept: Iterable[Kept], score: str, order: str) -> Kept | None:
    """Return the checkpoint with the best score; None if no checkpoint has one."""
    scored = [each for each in kept if worth(each, score, order)[0]]
    return max(scored, key=lambda each: worth(each, score, order), default=None)
