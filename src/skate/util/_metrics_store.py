"""Storage of metrics: recorded per process, aggregated over all processes of the session.

Each process stores its values in its own file in the session's ``metrics`` folder (see `_metrics_cells`), or in
memory while there is no session; the first record after `skate.init` moves them to the file. `collect` reads and
aggregates the files of all processes on demand.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from skate.util import _session
from skate.util._metrics_cells import SUFFIX, CellFile, MemoryCells, is_alive, read_entries

__all__ = ["Family", "Series", "Store", "Tags", "collect", "metrics_folder", "store"]

logger = logging.getLogger(__name__)

Kind = Literal["counter", "gauge", "histogram"]
Tags = tuple[tuple[str, str], ...]

PID_LABEL: Final = "pid"
_RETIRED: Final = "retired.json"


@dataclass(frozen=True, slots=True)
class Family:
    """The declaration of a metric."""

    kind: Kind
    name: str
    description: str
    boundaries: tuple[float, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every record looks up its family, and hashing the fields would dominate the cost.
        object.__setattr__(self, "_hash", hash((self.kind, self.name, self.description, self.boundaries)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def cells(self) -> int:
        """The number of cells of a series: a histogram has one per bucket, one for "+Inf", and the sum."""
        return len(self.boundaries) + 2 if self.kind == "histogram" else 1


@dataclass(slots=True)
class Series:
    """The values of one metric with one set of tags."""

    family: Family
    tags: Tags
    values: list[float]


def metrics_folder() -> str | None:
    """Return the folder of this session's metrics, or None without a session."""
    session = _session.session_folder()
    return None if session is None else f"{session}/metrics"


class Store:
    """Record the values of this process.

    Args:
        folder: Function that returns the folder of the values, or None for memory. It is called for every record, so it
            must be fast; another folder means a new session, whose metrics start at zero.
    """

    def __init__(self, folder: Callable[[], str | None] = metrics_folder) -> None:
        self.folder = folder
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._cells: CellFile | MemoryCells = MemoryCells()
        self._place: str | None = None
        self._positions: dict[tuple[Family, Tags], int] = {}

    def increment(self, family: Family, tags: Tags, amount: float) -> None:
        """Add to a counter."""
        with self._lock:
            at = self._position(family, tags)
            self._cells.numbers[at] += amount

    def set(self, family: Family, tags: Tags, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            at = self._position(family, tags)
            self._cells.numbers[at] = value

    def observe(self, family: Family, tags: Tags, value: float) -> None:
        """Count a value in its bucket of a histogram, and add it to the sum."""
        with self._lock:
            at = self._position(family, tags)
            self._cells.numbers[at + bisect_left(family.boundaries, value)] += 1
            self._cells.numbers[at + family.cells - 1] += value

    def add(self, family: Family, tags: Tags, numbers: Sequence[float]) -> None:
        """Add values that were counted elsewhere, one per cell of the family."""
        with self._lock:
            at = self._position(family, tags)
            cells = self._cells.numbers
            for offset, number in enumerate(numbers):
                cells[at + offset] += number

    def collect(self) -> list[Series]:
        """Return the series of all processes of the session, or of this one if there is no session."""
        with self._lock:
            self._follow_session()
            if isinstance(self._cells, MemoryCells):
                own = ((os.getpid(), _series(entry)) for entry in self._cells.entries())
                return _sum_series(own)
            place = self._cells.path.parent
        try:
            return collect(place)
        except FileNotFoundError as error:  # the folder of the session was removed
            with self._lock:
                self._fall_back_to_memory(error)
        return self.collect()

    def detach(self) -> None:
        """Close the file of this process; its counters remain in their session and restart from zero here."""
        with self._lock:
            self._cells.close()
            self._cells = MemoryCells()
            self._place = None
            self._positions.clear()

    def after_fork(self) -> None:
        """Start empty in a forked child: the inherited file belongs to the parent."""
        # The old lock may be held by a thread that exists only in the parent.
        inherited = self._cells
        self._reset()
        try:
            inherited.close()
        except BufferError:
            pass  # a thread of the parent was reading it, so it stays mapped

    def _position(self, family: Family, tags: Tags) -> int:
        self._follow_session()
        key = family, tags
        at = self._positions.get(key)
        if at is None:
            at = self._add(key, [0.0] * family.cells)
        return at

    def _add(self, key: tuple[Family, Tags], values: list[float]) -> int:
        family, tags = key
        entry = _key(family, tags)
        try:
            at = self._cells.add(entry, values)
        except OSError as error:
            self._fall_back_to_memory(error)
            at = self._cells.add(entry, values)
        self._positions[key] = at
        return at

    def _follow_session(self) -> None:
        place = self.folder()
        if place == self._place:
            return
        if self._place is not None:
            # Values end with their session; those recorded before the first session belong to it.
            self._cells.close()
            self._cells = MemoryCells()
            self._positions.clear()
        self._place = place
        if place is not None:
            try:
                Path(place).mkdir(mode=0o700, exist_ok=True)
                self._move_to(CellFile(Path(place)))
                _session.on_shutdown(self.detach)
            except OSError as error:
                self._fall_back_to_memory(error)

    def _move_to(self, target: CellFile | MemoryCells) -> None:
        source, self._cells = self._cells, target
        for key, at in self._positions.items():
            self._add(key, list(source.numbers[at : at + key[0].cells]))
        source.close()

    def _fall_back_to_memory(self, error: OSError) -> None:
        """Continue in memory if the folder of the session is gone or the disk is full."""
        if isinstance(self._cells, CellFile):
            self._move_to(MemoryCells())
        logger.warning(
            "Metrics of process %d are no longer visible to other processes: %s", os.getpid(), error
        )


def collect(folder: Path) -> list[Series]:
    """Aggregate the values that all processes recorded in `folder`.

    Counters and histograms are summed, including those of ended processes. Gauges have a ``pid`` tag and end with
    their process.
    """
    with _exclusive_access(folder):
        retired, counted = _read_retired(folder)
        found: list[tuple[int, Series]] = []
        ended: list[Path] = []
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if path.name in counted:
                path.unlink()  # left over by a process that was stopped while it retired the file
                continue
            with path.open("rb") as file:
                alive = is_alive(file.fileno())
                series = [_series(entry) for entry in read_entries(file.read())]
            if alive:
                pid = int(path.name.partition("-")[0])
                found.extend((pid, one) for one in series)
            else:
                ended.append(path)
                retired.extend(one for one in series if one.family.kind != "gauge")
        if ended:
            retired = _sum_series((0, one) for one in retired)
            _write_retired(folder, retired, ended)
    return _sum_series([*((0, one) for one in retired), *found])


@contextlib.contextmanager
def _exclusive_access(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read_retired(folder: Path) -> tuple[list[Series], set[str]]:
    """Return the sums over ended processes, and the names of the files that they include."""
    try:
        known = json.loads((folder / _RETIRED).read_text())
    except FileNotFoundError:
        return [], set()
    return [Series(*_parse_key(key), values) for key, values in known["series"]], set(known["files"])


def _write_retired(folder: Path, series: list[Series], files: list[Path]) -> None:
    """Store the sums of ended processes in a single file."""
    content = {
        "files": [path.name for path in files],
        "series": [[_key(one.family, one.tags), one.values] for one in series],
    }
    fresh = folder / f"{_RETIRED}.new"
    fresh.write_text(json.dumps(content))
    fresh.replace(folder / _RETIRED)
    for path in files:
        path.unlink()


def _key(family: Family, tags: Tags) -> list[Any]:
    return [family.kind, family.name, family.description, family.boundaries, tags]


def _parse_key(key: list[Any]) -> tuple[Family, Tags]:
    kind, name, description, boundaries, tags = key
    return Family(kind, name, description, tuple(boundaries)), tuple((tag, value) for tag, value in tags)


def _series(entry: Any) -> Series:
    return Series(*_parse_key(entry.key), list(entry.values))


def _sum_series(found: Iterable[tuple[int, Series]]) -> list[Series]:
    totals: dict[tuple[Family, Tags], Series] = {}
    for pid, series in found:
        tags = series.tags
        if series.family.kind == "gauge":
            if not any(tag == PID_LABEL for tag, _ in tags):
                tags = (*tags, (PID_LABEL, str(pid)))
            totals[series.family, tags] = Series(series.family, tags, series.values)
            continue
        total = totals.setdefault(
            (series.family, tags), Series(series.family, tags, [0.0] * len(series.values))
        )
        total.values = [a + b for a, b in zip(total.values, series.values, strict=True)]
    return list(totals.values())


store = Store()
os.register_at_fork(after_in_child=store.after_fork)
