"""The logs of a session: their names and content."""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Iterator
from typing import IO, Any

from skate._engine.abc import Engine, Table
from skate.util.state.exception import InvalidQueryError

DEFAULT_INTERVAL = 0.1  # seconds between two polls of a followed log
CHUNK = 1 << 16
_BYTES = "latin-1"  # maps each byte to a character, and back
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_WORKER = re.compile(r"worker-(\d+)\.")


def log_folder(engine: Engine) -> str:
    """Return the folder of the session's logs."""
    return os.path.join(engine.context().session, "logs")


def log_files(engine: Engine, pattern: str) -> dict[str, list[str]]:
    """Return the names of logs that match a pattern, by kind."""
    found: dict[str, list[str]] = {}
    folder = log_folder(engine)
    names = sorted(os.listdir(folder), key=_sort_key) if os.path.isdir(folder) else []
    for name in fnmatch.filter(names, pattern):
        found.setdefault("worker_out" if _WORKER.match(name) else "node", []).append(name)
    return found


def _sort_key(name: str) -> tuple[int, str]:
    match = _WORKER.match(name)
    return (int(match[1]) if match else -1, name)


def log_name(
    engine: Engine,
    *,
    filename: str | None,
    actor: str | None,
    task: str | None,
    pid: int | None,
    submission: str | None,
) -> str:
    """Return the name of the requested log.

    Raises:
        InvalidQueryError: The log is not identified uniquely, or does not exist.
    """
    given = [value for value in (filename, actor, task, pid, submission) if value]
    if len(given) != 1:
        raise InvalidQueryError(
            "Select one log by filename (see `list_logs()`), actor_id, task_id, pid or submission_id."
        )
    if filename:
        if os.path.dirname(filename):
            raise InvalidQueryError(f"{filename!r} is a path; pass the name of a log in the session's folder")
        return filename
    if submission:
        return f"job-driver-{submission}.log"
    return f"worker-{_worker_of(engine, actor, task, pid)}.log"


def _worker_of(engine: Engine, actor: str | None, task: str | None, pid: int | None) -> int:
    if actor:
        rows = [row for row in engine.state(Table.ACTORS) if row["actor_id"].hex() == actor]
        what = f"actor {actor}"
    elif task:
        rows = [row for row in engine.state(Table.TASKS) if row["task_id"].hex() == task]
        what = f"task {task}"
    else:
        rows = [row for row in engine.state(Table.WORKERS) if row["pid"] == pid]
        what = f"process {pid}"
    if not rows:
        raise InvalidQueryError(f"There is no {what}.")
    number: int = rows[-1]["worker_id"]
    if not number and actor and rows[-1]["pid"]:  # it has ended, but its process is still known
        number = next(
            (row["worker_id"] for row in engine.state(Table.WORKERS) if row["pid"] == rows[-1]["pid"]), 0
        )
    if not number:
        raise InvalidQueryError(f"The {what} has no worker yet, and therefore no log.")
    return number


def read_log(
    folder: str,
    name: str,
    *,
    tail: int,
    follow: bool,
    interval: float | None,
    encoding: str | None,
    errors: str,
    plain: bool,
) -> Iterator[Any]:
    """Yield the text of a log in pieces.

    Args:
        folder: Folder of the logs; following ends when it is removed.
        name: Name of the file.
        tail: Number of last lines to start with; negative for all.
        follow: Whether to continue as the file grows.
        interval: Seconds between two polls when following.
        encoding: The encoding of the log; None to yield its bytes.
        errors: How to treat bytes that cannot be decoded.
        plain: Whether to remove ANSI color codes.
    """
    path = os.path.join(folder, name)
    while not os.path.exists(path):
        if not name.startswith("worker-"):
            known = ", ".join(sorted(os.listdir(folder))) if os.path.isdir(folder) else "none"
            raise InvalidQueryError(f"Unknown log {name!r}; the logs are: {known}")
        # The log of a worker is created with its first line of output.
        if not follow or not os.path.isdir(folder):
            return
        time.sleep(interval or DEFAULT_INTERVAL)
    with open(path, encoding=encoding or _BYTES, errors=errors, newline="") as file:
        for text in _pieces(file, path, tail, follow, interval or DEFAULT_INTERVAL):
            shown = _ANSI.sub("", text) if plain else text
            yield shown if encoding else shown.encode(_BYTES)


def _pieces(file: IO[str], path: str, tail: int, follow: bool, interval: float) -> Iterator[str]:
    if tail >= 0:
        from collections import deque

        last = "".join(deque(file, maxlen=tail))
        if last:
            yield last
    while True:
        text = file.read(CHUNK)
        if text:
            yield text
        elif follow and os.path.exists(path):
            time.sleep(interval)  # there is no event to wait for
        else:
            return
