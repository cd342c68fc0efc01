"""The numbers behind the metrics: recorded in this process, added up over all processes of the session.

Each process keeps its numbers in a file of its own in the session's ``metrics`` folder (see
`_metrics_cells`), or in plain memory while there is no session; the first record after `skate.init` moves
them. `collect` reads the files of all processes and adds them up, whenever somebody wants to know.
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
    """A metric as it was declared."""

    kind: Kind
    name: str
    description: str
    boundaries: tuple[float, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every record looks its family up, and hashing the fields takes longer than all the rest of it.
        object.__setattr__(self, "_hash", hash((self.kind, self.name, self.description, self.boundaries)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def cells(self) -> int:
        """How many numbers a series has: a histogram one for each bucket, one for "+Inf", and the sum."""
        return len(self.boundaries) + 2 if self.kind == "histogram" else 1


@dataclass(slots=True)
class Series:
    """The numbers of one metric with one set of tags."""

    family: Family
    tags: Tags
    values: list[float]


def metrics_folder() -> str | None:
    """Return the folder in which this session's processes keep their metrics, or None without a session."""
    session = _session.session_folder()
    return None if session is None else f"{session}/metrics"


class Store:
    """Records the numbers of this process.

    Args:
        folder: Says where to keep them, or None for in memory. It is asked at every record, so it must be
            quick; a new answer means a new session, whose metrics start at zero.
    """

    def __init__(self, folder: Callable[[], str | None] = metrics_folder) -> None:
        self.folder = folder
        self._start_anew()

    def _start_anew(self) -> None:
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
        """Give a gauge its value."""
        with self._lock:
            at = self._position(family, tags)
            self._cells.numbers[at] = value

    def observe(self, family: Family, tags: Tags, value: float) -> None:
        """Count a value into its bucket of a histogram, and add it to the sum."""
        with self._lock:
            at = self._position(family, tags)
            self._cells.numbers[at + bisect_left(family.boundaries, value)] += 1
            self._cells.numbers[at + family.cells - 1] += value

    def add(self, family: Family, tags: Tags, numbers: Sequence[float]) -> None:
        """Add numbers that were counted elsewhere, one for each cell of the family."""
        with self._lock:
            at = self._position(family, tags)
            cells = self._cells.numbers
            for offset, number in enumerate(numbers):
                cells[at + offset] += number

    def collect(self) -> list[Series]:
        """Return the series of all processes of the session, or of this one when there is no session."""
        with self._lock:
            self._follow_session()
            if isinstance(self._cells, MemoryCells):
                own = ((os.getpid(), _series(entry)) for entry in self._cells.entries())
                return _added_up(own)
            place = self._cells.path.parent
        try:
            return collect(place)
        except FileNotFoundError as error:  # the session's folder was removed under us
            with self._lock:
                self._retreat(error)
        return self.collect()

    def detach(self) -> None:
        """Close the file of this process; its counters stay part of their session, and start anew here."""
        with self._lock:
            self._cells.close()
            self._cells = MemoryCells()
            self._place = None
            self._positions.clear()

    def after_fork(self) -> None:
        """Start with nothing in a forked child: the inherited file is the parent's."""
        # The old lock may be held by a thread that exists only in the parent.
        inherited = self._cells
        self._start_anew()
        try:
            inherited.close()
        except BufferError:
            pass  # a thread of the parent was reading it at that moment; then it stays mapped

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
            self._retreat(error)
            at = self._cells.add(entry, values)
        self._positions[key] = at
        return at

    def _follow_session(self) -> None:
        place = self.folder()
        if place == self._place:
            return
        if self._place is not None:
            # A session's numbers end with it; those recorded before the first one belong to it.
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
                self._retreat(error)

    def _move_to(self, target: CellFile | MemoryCells) -> None:
        source, self._cells = self._cells, target
        for key, at in self._positions.items():
            self._add(key, list(source.numbers[at : at + key[0].cells]))
        source.close()

    def _retreat(self, error: OSError) -> None:
        """Go on in memory when the session's folder is gone or the disk is full."""
        if isinstance(self._cells, CellFile):
            self._move_to(MemoryCells())
        logger.warning("Metrics of process %d are not visible to others any more: %s", os.getpid(), error)


def collect(folder: Path) -> list[Series]:
    """Add up what all processes have recorded in `folder`.

    Counters and histograms are summed, also over processes that have ended. Gauges are kept apart by a
    ``pid`` tag and go with their process.
    """
    with _only_one_in(folder):
        retired, counted = _read_retired(folder)
        found: list[tuple[int, Series]] = []
        ended: list[Path] = []
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if path.name in counted:
                path.unlink()  # left over when the process that retired it was stopped in between
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
            retired = _added_up((0, one) for one in retired)
            _write_retired(folder, retired, ended)
    return _added_up([*((0, one) for one in retired), *found])


@contextlib.contextmanager
def _only_one_in(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read_retired(folder: Path) -> tuple[list[Series], set[str]]:
    """Return the sums over processes that ended, and the names of the files that are in them."""
    try:
        known = json.loads((folder / _RETIRED).read_text())
    except FileNotFoundError:
        return [], set()
    return [Series(*_declared(key), values) for key, values in known["series"]], set(known["files"])


def _write_retired(folder: Path, series: list[Series], files: list[Path]) -> None:
    """Keep the sums of ended processes in one file instead of one for each of them."""
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


def _declared(key: list[Any]) -> tuple[Family, Tags]:
    kind, name, description, boundaries, tags = key
    return Family(kind, name, description, tuple(boundaries)), tuple((tag, value) for tag, value in tags)


def _series(entry: Any) -> Series:
    return Series(*_declared(entry.key), list(entry.values))


def _added_up(found: Iterable[tuple[int, Series]]) -> list[Series]:
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
