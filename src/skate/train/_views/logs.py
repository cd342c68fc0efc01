"""The log of a run, on the terminal and in the run's folder."""

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
    """Writes the log records of the controller's thread into the run's folder, for the duration of a `with` block.

    Args:
        storage: The run's folder.
        level: The name of the lowest level to log.
    """

    def __init__(self, storage: Storage, level: str) -> None:
        self._storage = storage
        self._level: int = getattr(logging, level)
        self._handler = _FolderHandler(storage)
        self._started_at = time.monotonic()

    def __enter__(self) -> RunLog:
        _levels.enter(self._level)
        if self._storage.is_primary:
            log.addHandler(self._handler)
            log.info("run %s starts", self._storage.experiment_dir_name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        took = time.monotonic() - self._started_at
        path = self._storage.experiment_fs_path
        if not self._storage.is_primary:
            pass  # the primary process logs it
        elif error is None:
            log.info("run %s finished after %.1f s: %s", self._storage.experiment_dir_name, took, path)
        elif kind is not None:
            # Not for the terminal, where the exception itself appears.
            text = f"the run ended after {took:.1f} s with {kind.__name__}: {error}"
            self._handler.handle(
                logging.makeLogRecord({"msg": text, "levelno": logging.ERROR, "levelname": "ERROR"})
            )
        log.removeHandler(self._handler)
        _levels.leave(self._level)
        self._handler.close()


class _FolderHandler(logging.Handler):
    """Writes log records into the run's folder."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT))
        self._storage = storage
        self._path = storage.path_of(LOG)
        self._is_local = folders.uses_local_paths(storage.storage_filesystem)
        self._buffer: list[str] = []
        # A process may drive several runs, each in its own thread.
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer a record, and write it if the folder is local."""
        if record.thread == self._thread:
            self._buffer.append(self.format(record) + "\n")
            try:
                if self._is_local and os.path.isdir(self._storage.experiment_fs_path):
                    self._write()
            except OSError:
                self.handleError(record)  # like other handlers: logging must not raise

    def close(self) -> None:
        """Write the buffered records. A failure to write the log does not fail the run."""
        try:
            if self._buffer and (not self._is_local or os.path.isdir(self._storage.experiment_fs_path)):
                self._write()
        except OSError as error:
            log.warning("could not write %s: %s", self._path, error)
        super().close()

    def _write(self) -> None:
        text, self._buffer = "".join(self._buffer), []
        if self._is_local:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(text)
            return
        # An object store cannot append.
        before = folders.read(self._storage.storage_filesystem, self._path) or b""
        folders.write(self._storage.storage_filesystem, self._path, before + text.encode())


class _Levels:
    """The level of the logger while runs are active: the lowest level that one of them needs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: list[int] = []
        self._before = logging.NOTSET

    def enter(self, level: int) -> None:
        with self._lock:
            if not self._active:
                self._before = log.level
            self._active.append(level)
            log.setLevel(min(self._active))

    def leave(self, level: int) -> None:
        with self._lock:
            self._active.remove(level)
            log.setLevel(min(self._active) if self._active else self._before)


_levels = _Levels()
