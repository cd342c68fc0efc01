"""The client that submits jobs to a node on this machine, and asks about them."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import string
from collections.abc import AsyncIterator
from typing import Any

import skate
from skate._api import nodes, variables
from skate._api.starting import packed_environment
from skate._api.submission import describe
from skate._version import ray_version
from skate.exceptions import RayActorError
from skate.job_submission._records import DriverInfo, JobDetails, JobErrorType, JobInfo, JobStatus, JobType
from skate.job_submission._storage import JobStore
from skate.job_submission._supervisor import NAMESPACE, JobSupervisor, name_of, now
from skate.util import state

Jobs = list[JobDetails]

POLL_SECONDS = 0.1
_ID = re.compile(r"[\w.-]{1,100}")


class JobSubmissionClient:
    """Submits programs to a node and asks how they do.

    A job is a shell command that the node runs; in it `skate.init()` attaches to that node. Nothing goes over HTTP:
    the node has to be on this machine and of this user.

    Args:
        address: Of the node: "auto" or None for that of this program if it has called `init`, or else that of
            `skate start`; or a session's folder. Ray's habit of "http://127.0.0.1:8265" means "auto".
        create_cluster_if_needed: Ignored.
        cookies: Ignored.
        metadata: Metadata of every job that this client submits.
        headers: Ignored.
        verify: Ignored.

    Raises:
        ConnectionError: There is no such node.
    """

    def __init__(
        self,
        address: str | None = None,
        create_cluster_if_needed: bool = False,
        cookies: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        verify: str | bool | None = True,
        **kwargs: Any,
    ) -> None:
        self._metadata = dict(metadata or {})
        given = address or variables.text("ADDRESS") or "auto"
        given = nodes.plain_address(given)
        if skate.is_initialized() and given in ("auto", "local"):
            self._session = skate.get_runtime_context().get_session_dir()
        else:
            self._session = nodes.find(given, long_lived=True)
        self._store = JobStore(self._session)

    def get_address(self) -> str:
        """Return the address of the node: the folder of its session."""
        return self._session

    def get_version(self) -> str:
        """Return the version of Ray whose API this is."""
        return ray_version

    # ------------------------------------------------------------ submitting

    def submit_job(
        self,
        *,
        entrypoint: str,
        job_id: str | None = None,
        runtime_env: dict[str, Any] | None = None,
        metadata: dict[str, str] | None = None,
        submission_id: str | None = None,
        entrypoint_num_cpus: float | None = None,
        entrypoint_num_gpus: float | None = None,
        entrypoint_memory: int | None = None,
        entrypoint_resources: dict[str, float] | None = None,
        entrypoint_label_selector: dict[str, str] | None = None,
    ) -> str:
        """Have the node run a command; return its id at once.

        Args:
            entrypoint: The shell command, like "python train.py".
            job_id: Ray's old name for `submission_id`.
            runtime_env: The environment of the command, and of the job's workers by default.
            metadata: Words to find it again by.
            submission_id: An id of your own.
            entrypoint_num_cpus: CPUs that the command itself takes; none by default.
            entrypoint_num_gpus: GPUs that the command itself takes.
            entrypoint_memory: Memory that the command itself takes, in bytes.
            entrypoint_resources: Other resources that it takes.
            entrypoint_label_selector: Labels that the node must have.

        Raises:
            RuntimeError: The id is taken.
            ValueError: An argument cannot be right.
        """
        if not isinstance(entrypoint, str) or not entrypoint.strip():
            raise ValueError(f"entrypoint must be a shell command, not {entrypoint!r}")
        if job_id and submission_id and job_id != submission_id:
            raise ValueError("job_id is the old name of submission_id: give one of them")
        id = submission_id or job_id or _new_id()
        if not _ID.fullmatch(id):
            raise ValueError(
                f"The submission id {id!r} may have letters, digits, '_', '.' and '-', at most 100."
            )
        every = {**self._metadata, **(metadata or {})}
        for key, value in every.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"metadata maps strings to strings, not {key!r} to {value!r}")
        environment = packed_environment(runtime_env)
        info = JobInfo(
            JobStatus.PENDING,
            entrypoint,
            message="Job has not started yet. It may be waiting for resources or for its runtime environment.",
            start_time=now(),
            metadata=every,
            runtime_env=dict(runtime_env or {}),
            entrypoint_num_cpus=entrypoint_num_cpus,
            entrypoint_num_gpus=entrypoint_num_gpus,
            entrypoint_memory=entrypoint_memory,
            entrypoint_resources=entrypoint_resources,
        )
        try:
            self._store.write(id, info, new=True)
        except FileExistsError:
            raise RuntimeError(
                f"Job with submission_id {id} already exists. Please use a different submission_id."
            ) from None
        options = {
            "num_cpus": entrypoint_num_cpus or 0,
            "num_gpus": entrypoint_num_gpus,
            "memory": entrypoint_memory,
            "resources": entrypoint_resources,
            "label_selector": entrypoint_label_selector,
            "runtime_env": environment or None,
        }
        try:
            self._supervise(id, options, describe(environment, {**every, "job_submission_id": id}))
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

    # ------------------------------------------------------------ asking

    def get_job_status(self, job_id: str) -> JobStatus:
        """Return where a job stands.

        Raises:
            RuntimeError: There is no such job.
        """
        return self._info(job_id).status

    def get_job_info(self, job_id: str) -> JobDetails:
        """Return all that is known of a job; `job_id` may also be the id of a driver.

        Raises:
            RuntimeError: There is no such job.
        """
        found = [job for job in self.list_jobs() if job_id in (job.submission_id, job.job_id)]
        if not found:
            raise _unknown(job_id)
        return found[0]

    def list_jobs(self) -> Jobs:
        """Return all jobs: those that were submitted, and programs that are attached."""
        drivers = self._drivers()
        submitted = [self._details(id, drivers) for id in self._store.ids()]
        others = [row for row in drivers if row.submission_id is None]
        return [*submitted, *(_driver_details(row) for row in others)]

    def get_job_logs(self, job_id: str) -> str:
        """Return what a job's command has printed so far.

        Raises:
            RuntimeError: There is no such job.
        """
        self._info(job_id)
        try:
            with open(self._store.log(job_id), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """Yield what a job's command prints, until it has ended.

        Raises:
            RuntimeError: There is no such job.
        """
        seen = 0
        while True:
            over = self._info(job_id).status.is_terminal()  # looked at first, so that the last lines are read
            text = self.get_job_logs(job_id)
            if len(text) > seen:
                yield text[seen:]
                seen = len(text)
            if over:
                return
            await asyncio.sleep(POLL_SECONDS)

    # ------------------------------------------------------------ ending

    def stop_job(self, job_id: str) -> bool:
        """Stop a job; return whether it was still under way.

        Raises:
            RuntimeError: There is no such job.
        """
        info = self._info(job_id)
        if info.status.is_terminal():
            return False
        with nodes.join(self._session):
            try:
                supervisor = skate.get_actor(name_of(job_id), namespace=NAMESPACE)
            except ValueError:
                return False  # it has ended meanwhile
            if info.status is JobStatus.RUNNING:
                try:
                    return bool(skate.get(supervisor.stop.remote()))
                except RayActorError:
                    return True  # it ends itself once the command has ended
            skate.kill(supervisor)
        info.status, info.message, info.end_time = (
            JobStatus.STOPPED,
            "Job was stopped before it started.",
            now(),
        )
        self._store.write(job_id, info)
        return True

    def delete_job(self, job_id: str) -> bool:
        """Forget a job that has ended, and its log.

        Raises:
            RuntimeError: There is no such job, or it is under way.
        """
        info = self._info(job_id)
        if not info.status.is_terminal():
            raise RuntimeError(
                f"Attempted to delete job {job_id!r}, but it is in a non-terminal state {info.status}. Stop it first."
            )
        self._store.delete(job_id)
        return True

    # ------------------------------------------------------------ what is known

    def _info(self, id: str) -> JobInfo:
        info = self._store.read(id)
        if info is None:
            raise _unknown(id)
        if not info.status.is_terminal():
            self._notice_death(id, info)
        return info

    def _notice_death(self, id: str, info: JobInfo) -> None:
        """Write down that a supervisor has died, which it could not do itself."""
        filters: list[state.common.Filter] = [("name", "=", name_of(id)), ("ray_namespace", "=", NAMESPACE)]
        rows = state.list_actors(self._session, filters=filters, detail=True)
        if not rows or rows[-1].state != "DEAD":
            return
        latest = self._store.read(id)
        if latest is None or latest.status.is_terminal():  # it had written first
            if latest is not None:
                info.__dict__.update(latest.__dict__)
            return
        info.error_type, info.message = self._why(info, rows[-1])
        info.status, info.end_time = JobStatus.FAILED, now()
        self._store.write(id, info)

    def _why(self, info: JobInfo, actor: state.common.ActorState) -> tuple[JobErrorType, str]:
        cause = (actor.death_cause or {}).get("actor_died_error_context", {}).get("error_message", "")
        if info.status is JobStatus.RUNNING:
            return JobErrorType.JOB_SUPERVISOR_ACTOR_DIED, f"The job's supervisor has died: {cause}"
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
    return RuntimeError(f"Job {id} does not exist. `list_jobs()` shows those that do.")


def _new_id() -> str:
    letters = string.ascii_letters + string.digits
    return "raysubmit_" + "".join(secrets.choice(letters) for _ in range(16))
