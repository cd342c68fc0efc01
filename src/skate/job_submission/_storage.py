"""Storage of submitted jobs: one file per job in the folder of the session, and its log beside other logs."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

from skate.job_submission._records import JobErrorType, JobInfo, JobStatus

SUFFIX = ".json"
CHUNK = 1 << 18  # bytes of a log that are read at once


class JobStore:
    """The submitted jobs of a session.

    A job has one writer at a time: the client until the supervisor runs, then the supervisor.
    """

    def __init__(self, session: str) -> None:
        self._folder = os.path.join(session, "jobs")
        self._logs = os.path.join(session, "logs")

    def log(self, id: str) -> str:
        """Return the path of the log of a job."""
        return os.path.join(self._logs, f"job-driver-{id}.log")

    def read_log(self, id: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of the log of a job from a position on, in chunks; none before the job has started."""
        try:
            with open(self.log(id), "rb") as file:
                file.seek(start)
                while data := file.read(CHUNK):
                    yield data
        except FileNotFoundError:
            return

    def ids(self) -> list[str]:
        """Return the ids of all jobs, oldest first."""
        if not os.path.isdir(self._folder):
            return []
        found = [entry for entry in os.scandir(self._folder) if entry.name.endswith(SUFFIX)]
        ids = [entry.name.removesuffix(SUFFIX) for entry in found]
        known = [(info.start_time or 0, id) for id in ids if (info := self.read(id)) is not None]
        return [id for _, id in sorted(known)]

    def read(self, id: str) -> JobInfo | None:
        """Return a job, or None."""
        try:
            with open(self._path(id), encoding="utf-8") as file:
                row: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        row["status"] = JobStatus(row["status"])
        row["error_type"] = JobErrorType(row["error_type"]) if row["error_type"] else None
        return JobInfo(**row)

    def write(self, id: str, info: JobInfo, *, new: bool = False) -> None:
        """Store a job.

        Raises:
            FileExistsError: `new` is True and the id is taken.
        """
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        draft = f"{self._path(id)}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(info), file, default=str)
        try:
            if new:
                os.link(draft, self._path(id))
            else:
                os.replace(draft, self._path(id))
        finally:
            if os.path.exists(draft):
                os.unlink(draft)

    def delete(self, id: str) -> None:
        """Delete a job and its log."""
        for path in (self._path(id), self.log(id)):
            if os.path.exists(path):
                os.unlink(path)

    def _path(self, id: str) -> str:
        return os.path.join(self._folder, id + SUFFIX)
