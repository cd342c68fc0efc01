"""Jobs of a node on this machine: their files in the folder of its session, and the actors that run them."""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncIterator
from typing import Any

import skate
from skate._api import nodes
from skate._api.starting import packed_environment
from skate._api.submission import describe
from skate.exceptions import RayActorError
from skate.job_submission._records import (
    API_VERSION,
    DriverInfo,
    JobDetails,
    JobErrorType,
    JobInfo,
    JobStatus,
    JobType,
)
from skate.job_submission._storage import JobStore
from skate.job_submission._supervisor import NAMESPACE, JobSupervisor, name_of, now
from skate.util import state

POLL_INTERVAL_S = 0.1


class NodeJobs:
    """Jobs of the node with this session.

    Args:
        session: The folder of its session.
    """

    def __init__(self, session: str) -> None:
        self.address = session
        self._session = session
        self._store = JobStore(session)

    def version(self) -> str:
        """Return the version of Ray's Jobs API."""
        return API_VERSION

    # ------------------------------------------------------------ submission

    def submit(self, id: str, job: dict[str, Any]) -> str:
        """Start a job.

        Args:
            id: Its id.
            job: The other arguments of `submit_job`, checked.

        Raises:
            RuntimeError: The id is taken.
            ValueError: The environment or a resource is invalid.
        """
        metadata = job["metadata"]
        environment = packed_environment(job["runtime_env"])
        info = JobInfo(
            JobStatus.PENDING,
            job["entrypoint"],
            message="The job has not started: it may be waiting for resources or for its runtime environment.",
            start_time=now(),
            metadata=metadata,
            runtime_env=dict(job["runtime_env"] or {}),
            entrypoint_num_cpus=job["entrypoint_num_cpus"],
            entrypoint_num_gpus=job["entrypoint_num_gpus"],
            entrypoint_memory=job["entrypoint_memory"],
            entrypoint_resources=job["entrypoint_resources"],
        )
        try:
            self._store.write(id, info, new=True)
        except FileExistsError:
            raise RuntimeError(
                f"Job with submission_id {id} already exists: choose another id, or delete that job."
            ) from None
        options = {
            "num_cpus": job["entrypoint_num_cpus"] or 0,
            "num_gpus": job["entrypoint_num_gpus"],
            "memory": job["entrypoint_memory"],
            "resources": job["entrypoint_resources"],
            "label_selector": job["entrypoint_label_selector"],
            "runtime_env": environment or None,
        }
        try:
            self._supervise(id, options, describe(environment, {**metadata, "job_submission_id": id}))
        except BaseException:
            self._store.delete(id)
            raise
        return id

    def _supervise(self, id: str, options: dict[str, Any], description: str) -> None:
        with nodes.join(self._session):
            given = {name: value for name, value in options.items() if value is not None}
            skate.remote(JobSupervisor).options(
                name=name_of(id), namespace=NAMESPACE, lifetime="detached", max_concurrency=4, **given
            ).remote(id, description)

    # ------------------------------------------------------------ queries

    def status(self, id: str) -> JobStatus:
        """Return the status of a job."""
        return self._info(id).status

    def find(self, id: str) -> JobDetails:
        """Return a submitted job, or the job of a driver."""
        found = [job for job in self.list_all() if id in (job.submission_id, job.job_id)]
        if not found:
            raise _unknown(id)
        return found[0]

    def list_all(self) -> list[JobDetails]:
        """Return all jobs."""
        drivers = self._drivers()
        submitted = [self._details(id, drivers) for id in self._store.ids()]
        others = [row for row in drivers if row.submission_id is None]
        return [*submitted, *(_driver_details(row) for row in others)]

    def logs(self, id: str) -> str:
        """Return the output of a job so far."""
        self._info(id)
        return b"".join(self._store.read_log(id)).decode(errors="replace")

    async def tail(self, id: str) -> AsyncIterator[str]:
        """Yield the output of a job until it ends."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        seen = 0
        while True:
            is_over = self._info(id).status.is_terminal()  # check first, so that the last lines are read
            for data in self._store.read_log(id, seen):
                seen += len(data)
                if text := decoder.decode(data):
                    yield text
            if is_over:
                return
            await asyncio.sleep(POLL_INTERVAL_S)

    # ------------------------------------------------------------ stopping and deleting

    def stop(self, id: str) -> bool:
        """Stop a job; return whether it was running."""
        info = self._info(id)
        if info.status.is_terminal():
            return False
        with nodes.join(self._session):
            try:
                supervisor = skate.get_actor(name_of(id), namespace=NAMESPACE)
            except ValueError:
                return False  # it has ended in the meantime
            if info.status is JobStatus.RUNNING:
                try:
                    return bool(skate.get(supervisor.stop.remote()))
                except RayActorError:
                    return True  # the supervisor records the end of the command
            skate.kill(supervisor)
        info.status, info.message, info.end_time = (
            JobStatus.STOPPED,
            "Job was stopped before it started.",
            now(),
        )
        self._store.write(id, info)
        return True

    def delete(self, id: str) -> bool:
        """Delete a job that has ended, and its log."""
        info = self._info(id)
        if not info.status.is_terminal():
            raise RuntimeError(
                f"Attempted to delete job {id!r}, but it is in a non-terminal state {info.status}. Stop it first."
            )
        self._store.delete(id)
        return True

    # ------------------------------------------------------------ job information

    def _info(self, id: str) -> JobInfo:
        info = self._store.read(id)
        if info is None:
            raise _unknown(id)
        if not info.status.is_terminal():
            self._record_death(id, info)
        return info

    def _record_death(self, id: str, info: JobInfo) -> None:
        """Record the death of a supervisor, which could not do so itself."""
        filters: list[state.common.Filter] = [("name", "=", name_of(id)), ("ray_namespace", "=", NAMESPACE)]
        rows = state.list_actors(self._session, filters=filters, detail=True)
        if not rows or rows[-1].state != "DEAD":
            return
        latest = self._store.read(id)
        if latest is None or latest.status.is_terminal():  # the supervisor had recorded the end
            if latest is not None:
                info.__dict__.update(latest.__dict__)
            return
        info.error_type, info.message = self._explain_failure(info, rows[-1])
        info.status, info.end_time = JobStatus.FAILED, now()
        self._store.write(id, info)

    def _explain_failure(self, info: JobInfo, actor: state.common.ActorState) -> tuple[JobErrorType, str]:
        cause = (actor.death_cause or {}).get("actor_died_error_context", {}).get("error_message", "")
        if info.status is JobStatus.RUNNING:
            return JobErrorType.JOB_SUPERVISOR_ACTOR_DIED, f"The supervisor of the job died: {cause}"
        environment = json.loads(actor.serialized_runtime_env or "{}").get("env")
        for row in state.list_runtime_envs(self._session, filters=[("success", "=", False)], detail=True):
            if row.runtime_env == environment:
                return JobErrorType.RUNTIME_ENV_SETUP_FAILURE, f"runtime_env setup failed: {row.error}"
        return JobErrorType.JOB_SUPERVISOR_ACTOR_START_FAILURE, f"The job could not be started: {cause}"

    def _drivers(self) -> list[state.common.JobState]:
        every = state.list_jobs(self._session, limit=10_000, detail=True)
        return [row for row in every if row.type == "DRIVER"]

    def _details(self, id: str, drivers: list[state.common.JobState]) -> JobDetails:
        info = self._info(id)
        driver = next((row for row in drivers if row.submission_id == id), None)
        return JobDetails(
            type=JobType.SUBMISSION,
            status=info.status,
            entrypoint=info.entrypoint,
            job_id=driver.job_id if driver else None,
            submission_id=id,
            driver_info=_driver_info(driver) if driver else None,
            message=info.message,
            error_type=info.error_type,
            start_time=info.start_time,
            end_time=info.end_time,
            metadata=info.metadata,
            runtime_env=info.runtime_env,
            driver_node_id=info.driver_node_id,
            driver_exit_code=info.driver_exit_code,
        )


def _driver_info(row: state.common.JobState) -> DriverInfo:
    return DriverInfo(**(row.driver_info or {}))


def _driver_details(row: state.common.JobState) -> JobDetails:
    return JobDetails(
        type=JobType.DRIVER,
        status=JobStatus(row.status),
        entrypoint=row.entrypoint,
        job_id=row.job_id,
        driver_info=_driver_info(row),
        start_time=row.start_time,
        end_time=row.end_time or None,
        metadata=row.metadata,
        runtime_env=row.runtime_env,
        driver_node_id=row.driver_node_id,
    )


def _unknown(id: str) -> RuntimeError:
    return RuntimeError(f"Job {id} does not exist. `list_jobs()` lists the existing jobs.")
