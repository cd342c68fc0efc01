"""The logs of a session: which there are, and what stands in them."""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Iterator
from typing import IO

from skate._engine.abc import Engine, Table
from skate.util.state.exception import InvalidQueryError

DEFAULT_INTERVAL = 0.1  # seconds between two looks at a log that is followed
CHUNK = 1 << 16
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_WORKER = re.compile(r"worker-(\d+)\.")


def log_folder(engine: Engine) -> str:
    """Return the folder of the session's logs."""
    return os.path.join(engine.context().session, "logs")


def log_files(engine: Engine, pattern: str) -> dict[str, list[str]]:
    """Return the names of logs that match a pattern, by kind."""
    found: dict[str, list[str]] = {}
    folder = log_folder(engine)
    names = sorted(os.listdir(folder), key=_in_order) if os.path.isdir(folder) else []
    for name in fnmatch.filter(names, pattern):
        found.setdefault("worker_out" if _WORKER.match(name) else "node", []).append(name)
    return found


def _in_order(name: str) -> tuple[int, str]:
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
    """Return the name of the log that is asked for.

    Raises:
        InvalidQueryError: Nothing or too much is asked for, or there is no such thing.
    """
    given = [value for value in (filename, actor, task, pid, submission) if value]
    if len(given) != 1:
        raise InvalidQueryError(
            "Name one log by filename (see `list_logs()`), actor_id, task_id, pid or submission_id."
        )
    if filename:
        if os.path.dirname(filename):
            raise InvalidQueryError(f"{filename!r} is a path; give the name of a log in the session's folder")
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
    if not number and actor and rows[-1]["pid"]:  # it has ended: its process is still known
        number = next(
            (row["worker_id"] for row in engine.state(Table.WORKERS) if row["pid"] == rows[-1]["pid"]), 0
        )
    if not number:
        raise InvalidQueryError(f"The {what} has not been given a worker, so it has no log yet.")
    return number


def read_log(
    folder: str, name: str, *, tail: int, follow: bool, interval: float | None, errors: str, plain: bool
) -> Iterator[str]:
    """Yield the text of a log in pieces.

    Args:
        folder: Of the logs; following ends when it is gone.
        name: Of the file.
        tail: How many of its last lines to start with; negative for all.
        follow: Whether to go on as it grows.
        interval: Seconds between two looks when following.
        errors: What to do with bytes that are no text.
        plain: Whether to leave out colours.
    """
    path = os.path.join(folder, name)
    while not os.path.exists(path):
        if not name.startswith("worker-"):
            known = ", ".join(sorted(os.listdir(folder))) if os.path.isdir(folder) else "none"
            raise InvalidQueryError(f"There is no log {name!r}; there are: {known}")
        # A worker's log begins with the first line that it prints.
        if not follow or not os.path.isdir(folder):
            return
        time.sleep(interval or DEFAULT_INTERVAL)
    with open(path, encoding="utf-8", errors=errors) as file:
        for text in _pieces(file, path, tail, follow, interval or DEFAULT_INTERVAL):
            yield _ANSI.sub("", text) if plain else text


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
            time.sleep(interval)  # a file cannot be waited for
        else:
            return
