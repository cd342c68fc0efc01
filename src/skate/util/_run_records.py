"""Records of the runs of datasets, training and tuning, which the dashboard shows.

The process of a run writes its record to the ``runs`` folder of the session: at most once a second, and at the end. A
record is one file with two lines of JSON: a short row for tables, and the details. One thread per process writes the
records of all its runs, so a run spends no time on them: the thread calls a function of the run that reads counters.
Without a session folder (no session, or another engine) nothing is recorded.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import reprlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from skate._api.background_threads import make_background_thread
from skate.util import _session

__all__ = ["RunRecord", "as_plain", "read_run", "read_runs", "recording", "status_after"]

logger = logging.getLogger(__name__)

Kind = Literal["data", "train", "tune"]
Status = Literal["RUNNING", "FINISHED", "FAILED", "INTERRUPTED"]

SHORT_RUN_S: Final = (
    0.2  # a run is not written before; also the interval at which the thread looks for due records
)
INTERVAL_S: Final = 1.0  # between two writes of a record
MAX_RECORDS: Final = 200
_MAX_SHARE: Final = 0.02  # of the time that may be spent on writing a record
_MAX_TEXT: Final = 200  # characters of a value
_MAX_ERROR: Final = 4000  # characters of an error
_MAX_ROW: Final = 1 << 16  # bytes of the first line
_SUFFIX: Final = ".jsonl"
_NAME: Final = re.compile(r"[0-9a-f]{12}")
_KINDS: Final = ("data", "train", "tune")
_STATUSES: Final = ("RUNNING", "FINISHED", "FAILED", "INTERRUPTED")
_PROCESS: Final = "process"  # the key of the writer's identity, for readers in this module


class RunRecord:
    """The record of a run of this process.

    Args:
        kind: The library.
        name: The name of the run.
        describe: Returns the details of the run, which JSON can represent, with a text ``summary`` for its row. It
            is called in another thread during the run, so it must not change anything.
        keep_short: Whether to record a run that ends before its first write.

    Attributes:
        id: The id of the record.
    """

    def __init__(
        self, kind: Kind, name: str, describe: Callable[[], Mapping[str, Any]], *, keep_short: bool = True
    ) -> None:
        self.id = os.urandom(6).hex()
        self._kind, self._name = kind, name
        self._describe = describe
        self._keep_short = keep_short
        self._lock = threading.RLock()  # the garbage collector may close the run of a thread that holds it
        self._started = time.time()
        self._due = time.monotonic() + SHORT_RUN_S
        self._pid = os.getpid()
        self._written: str | None = None  # the content of the file
        self._is_broken = False
        self._is_closed = False
        self._session = _session.session_folder()
        if self._session is None:
            self._is_closed = True
        else:
            _publisher.add(self, self._session)

    @property
    def is_open(self) -> bool:
        """Whether the run is recorded and has not ended."""
        return not self._is_closed

    def publish_if_due(self, now: float) -> None:
        """Write the record if a second has passed since the last time.

        Args:
            now: The time on the monotonic clock.
        """
        with self._lock:
            if self._is_closed or now < self._due:
                return
            self._write("RUNNING")
            took = time.monotonic() - now
            self._due = now + max(INTERVAL_S, took / _MAX_SHARE)

    def close(self, status: Status, error: BaseException | None = None) -> None:
        """Write the end of the run; a second call has no effect.

        Args:
            status: How the run ended.
            error: Why it failed.
        """
        if os.getpid() != self._pid:
            return  # a forked child finalizes an object of its parent, whose run continues
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            _publisher.remove(self)
            if self._keep_short or self._written is not None:
                self._write(status, time.time(), error)

    def _write(self, status: Status, ended: float | None = None, error: BaseException | None = None) -> None:
        details: dict[str, Any] = {}
        if not self._is_broken:
            try:
                details = dict(self._describe())
                text = json.dumps(details, allow_nan=False, separators=(",", ":"))
            except Exception as defect:
                if isinstance(defect, RuntimeError) and ended is None:
                    return  # the run has changed a container meanwhile
                # A defect here must not end the run.
                self._is_broken = True
                logger.warning("Could not describe the %s run %s", self._kind, self._name, exc_info=True)
        row = {
            "id": self.id,
            "kind": self._kind,
            "name": self._name[:_MAX_TEXT],
            "status": status,
            "started": self._started,
            "ended": ended,
            "pid": self._pid,
            "summary": "" if self._is_broken else str(details.get("summary", ""))[:_MAX_TEXT],
            "error": None if error is None else _error_text(error),
            _PROCESS: _process_identity(self._pid),
        }
        content = f"{json.dumps(row)}\n{'{}' if self._is_broken else text}\n"
        if content == self._written or (self._is_closed and ended is None):
            return
        assert self._session is not None
        folder, is_first = Path(self._session) / "runs", self._written is None
        if _publisher.write(folder, f"{self.id}{_SUFFIX}", content, is_first=is_first):
            self._written = content


class _Publisher:
    """Writes the records of all open runs of this process. Its thread ends with the last open run."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all runs, also in a forked child, where the thread does not exist and its locks may be held."""
        self._lock = threading.Lock()
        self._open: dict[RunRecord, None] = {}
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._session: str | None = None
        self._has_warned = False

    def add(self, record: RunRecord, session: str) -> None:
        """Start updating a record."""
        with self._lock:
            self._open[record] = None
            if self._session != session:
                self._session = session
                _session.on_shutdown(self.stop)
            if self._thread is None:
                thread = make_background_thread("runs", self._serve, self._stopped)
                try:
                    thread.start()
                except RuntimeError as error:  # a limit is reached, or the interpreter ends
                    logger.debug("Runs are recorded only when they end: %s", error)
                else:
                    self._thread = thread

    def remove(self, record: RunRecord) -> None:
        """Stop updating a record. The thread is not woken, so that the end of a short run costs nothing."""
        self._open.pop(record, None)

    def stop(self) -> None:
        """End the thread and all open records: the session ends."""
        for record in list(self._open):
            record.close("INTERRUPTED")
        with self._lock:
            thread, stopped = self._thread, self._stopped
            self._thread, self._stopped, self._session = None, threading.Event(), None
            stopped.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _serve(self, stopped: threading.Event) -> None:
        while not stopped.wait(SHORT_RUN_S):
            for record in list(self._open):
                record.publish_if_due(time.monotonic())
            with self._lock:
                if not self._open:
                    if not stopped.is_set():
                        self._thread = None
                    return

    def write(self, folder: Path, name: str, content: str, *, is_first: bool) -> bool:
        """Replace a file, and return whether this succeeded. The first failure after a success is logged."""
        fresh = folder / f".{name}.new"
        try:
            if is_first:
                folder.mkdir(mode=0o700, exist_ok=True)
                _delete_oldest(folder)
            fresh.write_text(content)
            fresh.replace(folder / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            if not self._has_warned and folder.parent.is_dir():  # otherwise the session has ended
                self._has_warned = True
                logger.warning(
                    "Could not record a run in %s, which the dashboard will not show: %s", folder, error
                )
            return False
        self._has_warned = False
        return True


_publisher = _Publisher()
os.register_at_fork(after_in_child=_publisher.reset)


@contextlib.contextmanager
def recording(kind: Kind, name: str, describe: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Record a run that the body of the ``with`` statement performs.

    Args:
        kind: The library.
        name: The name of the run.
        describe: Returns the details of the run, as for `RunRecord`.
    """
    record = RunRecord(kind, name, describe)
    try:
        yield
    except BaseException as error:
        record.close(status_after(error), error)
        raise
    record.close("FINISHED")


def _error_text(error: BaseException) -> str:
    try:
        return (str(error) or type(error).__name__)[:_MAX_ERROR]
    except Exception:  # of the user's class
        return type(error).__name__


def status_after(error: BaseException) -> Status:
    """Return the status of a run that an exception has ended."""
    return "FAILED" if isinstance(error, Exception) else "INTERRUPTED"


def as_plain(value: Any) -> Any:
    """Return a value in a short form that JSON can represent; None for NaN and infinity.

    >>> as_plain(0.5), as_plain(float("nan")), as_plain([1, 2]), as_plain(open)
    (0.5, None, '[1, 2]', 'open')
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= 64 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[: _MAX_TEXT - 1]}…"
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return as_plain(value.item())
    if isinstance(value, list | tuple | set | frozenset | dict):
        return reprlib.repr(value)[:_MAX_TEXT]
    # The repr of other objects may be slow or change them.
    return str(getattr(value, "__name__", type(value).__name__))


# ------------------------------------------------------------ readers


def read_runs(session_folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the rows of the recorded runs of a session, the oldest first.

    A run whose process has ended without recording its end is ``INTERRUPTED``. Files that are no records are ignored.

    Args:
        session_folder: The folder of the session.
    """
    folder = Path(session_folder) / "runs"
    rows = (_read(path) for path in _paths(folder))
    return sorted((row for row, _ in filter(None, rows)), key=lambda row: (row["started"], row["id"]))


def read_run(session_folder: str | os.PathLike[str], run_id: str) -> dict[str, Any] | None:
    """Return a recorded run with its details; None if there is no such run.

    Args:
        session_folder: The folder of the session.
        run_id: The id of the run.
    """
    if not _NAME.fullmatch(run_id):
        return None
    found = _read(Path(session_folder) / "runs" / f"{run_id}{_SUFFIX}", with_details=True)
    return None if found is None else {**found[1], **found[0]}


def _paths(folder: Path) -> list[Path]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [
        folder / name for name in names if name.endswith(_SUFFIX) and _NAME.fullmatch(name[: -len(_SUFFIX)])
    ]


def _read(path: Path, *, with_details: bool = False) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the row and the details of a record; None if the file is none."""
    try:
        with path.open("rb") as file:
            row = _parse(file.readline(_MAX_ROW))
            details = _parse(file.read()) if with_details else None
            changed = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    if row is None or row.get("id") != path.name[: -len(_SUFFIX)] or not _is_row(row):
        return None
    row = {"ended": None, "summary": "", "error": None, **row}
    identity = row.pop(_PROCESS, None)
    if row["status"] == "RUNNING" and identity != _process_identity(row["pid"]):
        row["status"], row["ended"] = "INTERRUPTED", changed
    return row, details or {}


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or only the first part of it
        return None
    return found if isinstance(found, dict) else None


def _is_row(row: dict[str, Any]) -> bool:
    return (
        row.get("kind") in _KINDS
        and row.get("status") in _STATUSES
        and isinstance(row.get("pid"), int)
        and isinstance(row.get("started"), int | float)
        and math.isfinite(row["started"])
        and isinstance(row.get("name"), str)
    )


def _process_identity(pid: int) -> str | None:
    """Return a string that distinguishes processes with the same pid, if there is one; None for an ended process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # After the name in parentheses: the state is field 3, and the start time field 22.
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
    except OSError:
        return None  # it has just ended
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "alive"


def _delete_oldest(folder: Path) -> None:
    """Make room for another record: delete the oldest runs that have ended."""
    paths = _paths(folder)
    if len(paths) < MAX_RECORDS:
        return
    surplus = len(paths) - MAX_RECORDS + MAX_RECORDS // 10  # some more, so that not every run has to look
    for path in sorted(paths, key=_modified):
        found = _read(path)
        if found is None or found[0]["status"] != "RUNNING":
            path.unlink(missing_ok=True)
            surplus -= 1
        if not surplus:
            return


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
