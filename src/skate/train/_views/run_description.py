"""Describes a run for its run record: workers, thinned curves of the metrics, and checkpoints."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from skate.train._reports.metrics import numbers
from skate.train._reports.report_ledger import KeptCheckpoint
from skate.train._views.run_progress import RunProgress

_MAX_POINTS = 1000
_MAX_CURVES = 50
_MAX_CHECKPOINTS = 100
_METRICS_IN_SUMMARY = 3

Point = TypeVar("Point")
_Scalars = tuple[float, int, Mapping[str, float]]  # the time of a report, its number, and its numeric metrics


class ThinnedSeries(Generic[Point]):
    """A series of any length, of which at most `most` points are kept: the first, the last, and every k-th between.

    Another thread may read it while points are added.

    Args:
        most: The maximum number of points, at least 3.
    """

    def __init__(self, most: int = _MAX_POINTS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: list[Point] = []
        self._last: tuple[Point, ...] = ()  # the newest point, unless it is in `_kept`
        self._step = 1  # one in this many points is kept
        self._skipped = 0  # points since the newest of `_kept`

    def add(self, point: Point) -> None:
        """Add the next point."""
        with self._lock:
            self._skipped += 1
            if self._kept and self._skipped < self._step:
                self._last = (point,)
                return
            self._last, self._skipped = (), 0
            self._kept.append(point)
            if len(self._kept) == self._most:
                self._halve()

    def _halve(self) -> None:
        """Keep every other point, and the newest one."""
        if self._most % 2 == 0:
            self._last, self._skipped = (self._kept[-1],), self._step
        self._kept = self._kept[::2]
        self._step *= 2

    def points(self) -> list[Point]:
        """Return the kept points, in their order."""
        with self._lock:
            return [*self._kept, *self._last]

    def truncate(self, condition: Callable[[Point], bool]) -> None:
        """Drop the points from the first one on for which a condition is not true."""
        with self._lock:
            kept = list(itertools.takewhile(condition, self._kept))
            if len(kept) == len(self._kept) and all(map(condition, self._last)):
                return
            self._kept, self._last, self._skipped = kept, (), 0
            if not kept:
                self._step = 1


class RunDescription:
    """The details of a run in progress.

    Args:
        progress: The progress of the run.
        kept: Returns the kept checkpoints.
        path_of: Returns the path of a checkpoint by its name.
    """

    def __init__(
        self,
        progress: RunProgress,
        kept: Callable[[], Iterable[KeptCheckpoint]],
        path_of: Callable[[str], str],
    ) -> None:
        self._progress = progress
        self._kept = kept
        self._path_of = path_of
        self._workers: dict[int, dict[str, Any]] = {}
        self._reports: ThinnedSeries[_Scalars] = ThinnedSeries()

    # ------------------------------------------------------------ events

    def attempt_started(self, first: int) -> None:
        """Handle the start of an attempt.

        Args:
            first: The number of their first report. Reports from there on are made again.
        """
        self._reports.truncate(lambda point: point[1] < first)

    def workers_started(self, workers: Iterable[tuple[int, int, str]]) -> None:
        """Handle the start of a group of workers.

        Args:
            workers: The rank, the process id and the node of each.
        """
        self._workers = {
            rank: {"rank": rank, "pid": pid, "node": node, "status": "running"} for rank, pid, node in workers
        }

    def worker_ended(self, rank: int, status: str) -> None:
        """Record that a worker has "finished" or "failed"."""
        if rank in self._workers:
            self._workers[rank]["status"] = status

    def group_ended(self) -> None:
        """Handle the shutdown of the group: workers that were still running are stopped."""
        for each in self._workers.values():
            if each["status"] == "running":
                each["status"] = "stopped"

    def reported(self, rank: int, index: int, values: Mapping[str, float]) -> None:
        """Handle a report.

        Args:
            rank: The worker; the metrics of rank 0 represent the run.
            index: The number of the report.
            values: Its numeric metrics.
        """
        if rank == 0:
            self._reports.add((time.time(), index, values))

    # ------------------------------------------------------------ the description

    def __call__(self) -> dict[str, Any]:
        """Return the workers, curves and checkpoints. Another thread calls this, so it copies before it iterates."""
        points, kept = self._reports.points(), list(self._kept())
        names = list(dict.fromkeys(name for _, _, values in points for name in values))[:_MAX_CURVES]
        return {
            "summary": self._summary(points),
            "failures": self._progress.failures,
            "reports": points[-1][1] + 1 if points else 0,
            "workers": [dict(each) for each in list(self._workers.values())],
            "metrics": {
                "time": [at for at, _, _ in points],
                "iteration": [index for _, index, _ in points],
                "values": {name: [_finite(values.get(name)) for _, _, values in points] for name in names},
            },
            "checkpoints": [
                {
                    "path": self._path_of(each.name),
                    "iteration": each.index,
                    "metrics": {name: _finite(value) for name, value in numbers(each.metrics).items()},
                }
                for each in kept[-_MAX_CHECKPOINTS:]
            ],
            "checkpoints_kept": len(kept),
        }

    def _summary(self, points: list[_Scalars]) -> str:
        if not points:
            return self._progress.state
        _, index, values = points[-1]
        shown = ", ".join(f"{name} {value:.4g}" for name, value in list(values.items())[:_METRICS_IN_SUMMARY])
        return f"report {index}: {shown}" if shown else f"report {index}"


def _finite(value: float | None) -> float | None:
    """Return a number that JSON can represent; None for NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None
