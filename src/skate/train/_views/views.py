"""Writes event files for TensorBoard while a run trains, and a plot of its metrics at the end.

Errors here do not end the run: they are logged, and the output is disabled from then on.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from skate.train._reports.metrics import numbers
from skate.train._storage import folders
from skate.train._storage.run_folder import Storage
from skate.train._views import curves
from skate.train._views.tensorboard import Events

log = logging.getLogger(__name__)

# "0" writes neither events nor a plot, "1" both, "ranks" both for each worker. If it is not set, a short run gets no
# plot, which would take longer than the run.
SWITCH = "SKATE_TRAIN_CURVES"
PICTURE = "curves.png"
_SHORT_RUN_S = 5.0
_REPORTS_BEFORE_FALLBACK = 50  # of another worker, after which that one represents the run instead of rank 0

_Scalars = tuple[int, float, dict[str, float]]  # the number of a report, its time, and its numeric metrics


class Views:
    """Writes the events and the plot of a run into its folder.

    Args:
        storage: The run's folder.
        mode: The value of `SWITCH`: "0", "1" or "ranks"; "" if it is not set.
        ahead: Import matplotlib in a thread while the run trains. Not safe if the training function runs in this
            process: it may fork, and a process must not be forked in the middle of an import.
    """

    def __init__(self, storage: Storage, mode: str = "1", *, ahead: bool = True) -> None:
        self._storage = storage
        self._ranks = mode == "ranks"
        self._writes_events = self._draws = mode != "0"
        self._draws_from = time.monotonic() + (0.0 if mode else _SHORT_RUN_S)
        self._events: dict[int, Events] = {}
        self._drop_from = 0
        self._source: int | None = None  # the rank whose metrics represent the run
        self._held: dict[int, list[_Scalars]] = {}  # by rank, until that rank is known
        self._ahead = ahead
        self._loading: threading.Thread | None = None
        self._has_reports = False

    @classmethod
    def from_environment(cls, storage: Storage, *, ahead: bool = True) -> Views:
        """Return the views that the environment variable selects."""
        return cls(storage, os.environ.get(SWITCH, "") if storage.is_primary else "0", ahead=ahead)

    def attempt_started(self, index: int) -> None:
        """Handle the start of a group of workers, whose first report has this number."""
        if self._events:
            self._writes_events = _try("the events for TensorBoard", self._close_events)
        # Reports from this number on are made again.
        self._held = {rank: [each for each in held if each[0] < index] for rank, held in self._held.items()}
        self._drop_from = index

    def reported(self, rank: int, index: int, metrics: dict[str, Any]) -> None:
        """Handle a report.

        Args:
            rank: The worker.
            index: The number of the report.
            metrics: Its metrics.
        """
        self._has_reports = True
        if self._draws and self._ahead and self._loading is None and self._is_long:
            self._loading = threading.Thread(target=_load, name="skate-train-curves", daemon=True)
            self._loading.start()
        if self._writes_events:
            self._writes_events = _try(
                "the events for TensorBoard", lambda: self._add(rank, (index, time.time(), numbers(metrics)))
            )

    def close(self, starts: Sequence[int]) -> None:
        """Write the plot, and close the event files.

        Args:
            starts: The number of the first report of each attempt.
        """
        if self._events or self._held:
            _try("the events for TensorBoard", self._close_events)
        if self._loading is not None:
            self._loading.join()
        if self._draws and self._has_reports and self._is_long:
            _try("the curves", lambda: self._draw(starts))

    @property
    def _is_long(self) -> bool:
        return time.monotonic() >= self._draws_from

    def _add(self, rank: int, scalars: _Scalars) -> None:
        if self._ranks:
            self._write(rank, scalars)
            return
        if rank == 0 and self._source is None:
            self._source = 0
            self._held.clear()
        if self._source is None:
            # Rank 0 may only be slow. If it stays silent, another worker represents the run.
            held = self._held.setdefault(rank, [])
            held.append(scalars)
            if len(held) >= _REPORTS_BEFORE_FALLBACK:
                self._choose(rank)
        elif rank == self._source:
            self._write(0, scalars)

    def _choose(self, rank: int) -> None:
        self._source = rank
        for each in self._held.pop(rank):
            self._write(0, each)
        self._held.clear()

    def _write(self, rank: int, scalars: _Scalars) -> None:
        index, at, values = scalars
        if values:
            self._events_of(rank).add(index, at, values)

    def _events_of(self, rank: int) -> Events:
        if rank not in self._events:
            # Rank 0 writes to the run's folder itself, so that TensorBoard shows the run's name.
            folder = self._storage.path_of(f"rank_{rank}") if rank else self._storage.experiment_fs_path
            self._events[rank] = Events(self._storage.storage_filesystem, folder, self._drop_from)
        return self._events[rank]

    def _close_events(self) -> None:
        if self._source is None and self._held:
            self._choose(min(self._held))
        events, self._events = self._events, {}
        for each in events.values():
            each.close()

    def _draw(self, starts: Sequence[int]) -> None:
        name = self._storage.experiment_dir_name
        try:
            drawn = curves.render(name, self._storage.history(), starts, ranks=self._ranks)
        except ImportError as error:
            log.debug("no plot of the metrics: %s", error)  # matplotlib is optional
            return
        if drawn is not None:
            folders.write(self._storage.storage_filesystem, self._storage.path_of(PICTURE), drawn)


def _load() -> None:
    """Import matplotlib while workers train, which takes half a second that would delay the end of the run."""
    try:
        importlib.import_module("matplotlib.backends.backend_agg")
    except ImportError:
        return  # reported when it is used


def _try(what: str, call: Callable[[], None]) -> bool:
    """Call a function; return whether it succeeded."""
    try:
        call()
    except Exception:
        log.warning("could not write %s of the run: disabled from here on", what, exc_info=True)
        return False
    return True
