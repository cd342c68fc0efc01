"""The actor that runs one submitted job: it starts the command, waits for it, and records the result."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import Any

import skate
from skate._api.submission import VARIABLE
from skate.job_submission._records import JobErrorType, JobInfo, JobStatus
from skate.job_submission._storage import JobStore

NAMESPACE = "_skate_jobs"
STOP_TIMEOUT_S = 3.0
LAST_LINES = 10


def name_of(id: str) -> str:
    """Return the actor name of the supervisor of a job."""
    return f"job_supervisor_{id}"


def now() -> int:
    """Return the current time in milliseconds since 1970."""
    return int(time.time() * 1000)


class JobSupervisor:
    """Run a command as a driver of the session of this actor."""

    def __init__(self, id: str, description: str) -> None:
        context = skate.get_runtime_context()
        session = context.get_session_dir()
        self._id = id
        self._store = JobStore(session)
        info = self._store.read(id)
        assert info is not None, "the client writes it before it creates the supervisor"
        self._info: JobInfo = info
        self._me = context.current_actor
        self._stopping = False
        self._recorded = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        environment = {**os.environ, "SKATE_ADDRESS": session, VARIABLE: description, "PYTHONUNBUFFERED": "1"}
        environment.pop("RAY_ADDRESS", None)
        with open(self._store.log(id), "ab") as log:
            try:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", info.entrypoint],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # to signal all its processes
                )
            except OSError as error:
                self._end(JobStatus.FAILED, str(error), JobErrorType.JOB_ENTRYPOINT_COMMAND_START_ERROR, None)
                raise
        self._watchdog = _watchdog(self._process.pid)
        info.status, info.message = JobStatus.RUNNING, "Job is currently running."
        info.driver_node_id = context.get_node_id()
        self._store.write(id, info)
        threading.Thread(target=self._watch, name="job-watch", daemon=True).start()

    def ping(self) -> None:
        """Return once the command has started."""

    def stop(self) -> bool:
        """Terminate the command, and kill it after a timeout; return False if it had already ended."""
        process = self._process
        if process is None or process.poll() is not None:
            return False
        self._stopping = True
        _signal(process, signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
        self._recorded.wait()
        return True

    def _watch(self) -> None:
        """Wait for the command, record the result, and end this actor."""
        assert self._process is not None
        code = self._process.wait()
        _signal(self._process, signal.SIGKILL)  # processes that the command left behind in its session
        self._watchdog.communicate(b"over\n")
        if self._stopping:
            self._end(JobStatus.STOPPED, "Job was intentionally stopped.", None, code)
        elif code == 0:
            self._end(JobStatus.SUCCEEDED, "Job finished successfully.", None, code)
        else:
            how = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
            )
            message = f"Job entrypoint command {how}, last lines of its log:\n{self._last_lines()}"
            self._end(JobStatus.FAILED, message, JobErrorType.JOB_ENTRYPOINT_COMMAND_ERROR, code)
        skate.kill(self._me)

    def _end(self, status: JobStatus, message: str, error: JobErrorType | None, code: int | None) -> None:
        info = self._info
        info.status, info.message, info.error_type, info.driver_exit_code = status, message, error, code
        info.end_time = now()
        self._store.write(self._id, info)
        self._recorded.set()

    def _last_lines(self) -> str:
        with open(self._store.log(self._id), encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-LAST_LINES:])


def _watchdog(group: int) -> subprocess.Popen[bytes]:
    """Start a process that kills the processes of the command if this process is killed before it finishes."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r word || kill -9 "-$1"', "skate-job-watchdog", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _signal(process: subprocess.Popen[Any], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return  # all processes have ended
