"""What a run leaves to look at: event files for TensorBoard while it runs, and a picture of its curves at the end.

None of this may end a run: what fails is logged, and left out from then on.
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

# "0" writes neither events nor picture, "1" both, "ranks" both for each worker. If it is not set, a short run gets no
# picture: nobody looks at the curves of a second, and drawing them takes as long.
SWITCH = "SKATE_TRAIN_CURVES"
PICTURE = "curves.png"
_SHORT = 5.0  # seconds
_PATIENCE = 50  # reports of another worker after which rank 0 is not waited for

_Said = tuple[int, float, dict[str, float]]  # the number of a report, when it was made, and its numbers


class Views:
    """Writes events and curves of a run into its folder.

    Args:
        storage: The run's folder.
        mode: "0", "1" or "ranks", as `SWITCH` has it; "" if it is not set.
        ahead: Load what draws while the run goes on, in a thread. Not where the training function runs in this process:
            it may fork, and a process must not be forked in the middle of an import.
    """

    def __init__(self, storage: Storage, mode: str = "1", *, ahead: bool = True) -> None:
        self._storage = storage
        self._ranks = mode == "ranks"
        self._writes_events = self._draws = mode != "0"
        self._draws_from = time.monotonic() + (0.0 if mode else _SHORT)
        self._events: dict[int, Events] = {}
        self._drop_from = 0
        self._source: int | None = None  # the rank whose metrics stand for the run
        self._held: dict[int, list[_Said]] = {}  # by rank, as long as that is open
        self._ahead = ahead
        self._loading: threading.Thread | None = None
        self._has_reports = False

    @classmethod
    def of(cls, storage: Storage, *, ahead: bool = True) -> Views:
        """Return what the environment asks for."""
        return cls(storage, os.environ.get(SWITCH, "") if storage.keeps else "0", ahead=ahead)

    def started(self, index: int) -> None:
        """Workers have been started, the first time or again; their first report will have this number."""
        if self._events:
            self._writes_events = _tried("the events for TensorBoard", self._end_events)
        # What was reported from there on is made again.
        self._held = {rank: [said for said in held if said[0] < index] for rank, held in self._held.items()}
        self._drop_from = index

    def heard(self, rank: int, index: int, metrics: dict[str, Any]) -> None:
        """A worker has reported.

        Args:
            rank: Which.
            index: The number of the report.
            metrics: What it reported.
        """
        self._has_reports = True
        if self._draws and self._ahead and self._loading is None and self._is_long:
            self._loading = threading.Thread(target=_load, name="skate-train-curves", daemon=True)
            self._loading.start()
        if self._writes_events:
            self._writes_events = _tried(
                "the events for TensorBoard", lambda: self._add(rank, (index, time.time(), numbers(metrics)))
            )

    def closed(self, starts: Sequence[int]) -> None:
        """The run has ended.

        Args:
            starts: The reports at which workers were started, the first time and again.
        """
        if self._events or self._held:
            _tried("the events for TensorBoard", self._end_events)
        if self._loading is not None:
            self._loading.join()
        if self._draws and self._has_reports and self._is_long:
            _tried("the curves", lambda: self._draw(starts))

    @property
    def _is_long(self) -> bool:
        return time.monotonic() >= self._draws_from

    def _add(self, rank: int, said: _Said) -> None:
        if self._ranks:
            self._write(rank, said)
            return
        if rank == 0 and self._source is None:
            self._source = 0
            self._held.clear()
        if self._source is None:
            # Rank 0 may only be slow. One that has not reported by now will not, and another stands for the run.
            held = self._held.setdefault(rank, [])
            held.append(said)
            if len(held) >= _PATIENCE:
                self._choose(rank)
        elif rank == self._source:
            self._write(0, said)

    def _choose(self, rank: int) -> None:
        self._source = rank
        for each in self._held.pop(rank):
            self._write(0, each)
        self._held.clear()

    def _write(self, rank: int, said: _Said) -> None:
        index, at, scalars = said
        if scalars:
            self._events_of(rank).add(index, at, scalars)

    def _events_of(self, rank: int) -> Events:
        if rank not in self._events:
            # The run's own folder for the first: TensorBoard then shows it by the run's name.
            folder = self._storage.path_of(f"rank_{rank}") if rank else self._storage.experiment_fs_path
            self._events[rank] = Events(self._storage.storage_filesystem, folder, self._drop_from)
        return self._events[rank]

    def _end_events(self) -> None:
        if self._source is None and self._held:
            self._choose(min(self._held))
        events, self._events = self._events, {}
        for each in events.values():
            each.close()

    def _draw(self, starts: Sequence[int]) -> None:
        name = self._storage.experiment_dir_name
        try:
            drawn = curves.picture(name, self._storage.history(), starts, ranks=self._ranks)
        except ImportError as error:
            log.debug("no picture of the curves: %s", error)  # matplotlib is optional
            return
        if drawn is not None:
            folders.write(self._storage.storage_filesystem, self._storage.path_of(PICTURE), drawn)


def _load() -> None:
    """Import what draws while workers train: it takes half a second, for which nobody has to wait at the end."""
    try:
        importlib.import_module("matplotlib.backends.backend_agg")
    except ImportError:
        return  # said when it would be used


def _tried(what: str, call: Callable[[], None]) -> bool:
    """Call, and tell whether it worked."""
    try:
        call()
    except Exception:
        log.warning("%s of the run could not be written, and are left out", what, exc_info=True)
        return False
    return True
