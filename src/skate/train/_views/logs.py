"""What a run says of itself: on the terminal as far as it is wanted, and in the run's folder."""

from __future__ import annotations

import logging
import os
import threading
import time
from types import TracebackType

from skate.train._storage import folders
from skate.train._storage.run_folder import Storage

LOG = "run.log"
_FORMAT = "%(asctime)s %(levelname)s %(message)s"

log = logging.getLogger("skate.train")


class RunLog:
    """Keeps what is logged about a run, by the thread that drives it, while a `with` block is under way.

    Args:
        storage: The run's folder.
        level: The least that matters, by its name.
    """

    def __init__(self, storage: Storage, level: str) -> None:
        self._storage = storage
        self._level: int = getattr(logging, level)
        self._handler = _Kept(storage)
        self._begun = time.monotonic()

    def __enter__(self) -> RunLog:
        _levels.enter(self._level)
        if self._storage.keeps:
            log.addHandler(self._handler)
            log.info("run %s begins", self._storage.experiment_dir_name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        took = time.monotonic() - self._begun
        path = self._storage.experiment_fs_path
        if not self._storage.keeps:
            pass  # another process has said so
        elif error is None:
            log.info("run %s has finished after %.1f s: %s", self._storage.experiment_dir_name, took, path)
        elif kind is not None:
            # Not for the terminal: there the error itself is on its way.
            text = f"the run has ended after {took:.1f} s with {kind.__name__}: {error}"
            self._handler.handle(
                logging.makeLogRecord({"msg": text, "levelno": logging.ERROR, "levelname": "ERROR"})
            )
        log.removeHandler(self._handler)
        _levels.leave(self._level)
        self._handler.close()


class _Kept(logging.Handler):
    """Writes lines into the run's folder."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT))
        self._storage = storage
        self._path = storage.path_of(LOG)
        self._is_local = folders.is_here(storage.storage_filesystem)
        self._waiting: list[str] = []
        # One process may drive several runs, each in a thread of its own.
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        if record.thread == self._thread:
            self._waiting.append(self.format(record) + "\n")
            try:
                if self._is_local and os.path.isdir(self._storage.experiment_fs_path):
                    self._write()
            except OSError:
                self.handleError(record)  # as other handlers do: whoever logs must not fail

    def close(self) -> None:
        """Write what is left. A run whose log cannot be written has not failed for that."""
        try:
            if self._waiting and (not self._is_local or os.path.isdir(self._storage.experiment_fs_path)):
                self._write()
        except OSError as error:
            log.warning("%s could not be written: %s", self._path, error)
        super().close()

    def _write(self) -> None:
        text, self._waiting = "".join(self._waiting), []
        if self._is_local:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(text)
            return
        # An object store cannot append.
        before = folders.read(self._storage.storage_filesystem, self._path) or b""
        folders.write(self._storage.storage_filesystem, self._path, before + text.encode())


class _Levels:
    """The level of the logger while runs are under way: what the most talkative of them wants."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[int] = []
        self._before = logging.NOTSET

    def enter(self, level: int) -> None:
        with self._lock:
            if not self._wanted:
                self._before = log.level
            self._wanted.append(level)
            log.setLevel(min(self._wanted))

    def leave(self, level: int) -> None:
        with self._lock:
            self._wanted.remove(level)
            log.setLevel(min(self._wanted) if self._wanted else self._before)


_levels = _Levels()
