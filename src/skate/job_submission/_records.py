"""Records of submitted jobs, under Ray's names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

API_VERSION: Final = "4"  # of Ray's Jobs API


class JobStatus(StrEnum):
    """The status of a submitted job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def is_terminal(self) -> bool:
        """Return whether the status is final."""
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)


class JobType(StrEnum):
    """The origin of a job."""

    SUBMISSION = "SUBMISSION"
    DRIVER = "DRIVER"


class JobErrorType(StrEnum):
    """The reason for the failure of a job."""

    RUNTIME_ENV_SETUP_FAILURE = "RUNTIME_ENV_SETUP_FAILURE"
    JOB_SUPERVISOR_ACTOR_START_FAILURE = "JOB_SUPERVISOR_ACTOR_START_FAILURE"
    JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE = "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"
    JOB_SUPERVISOR_ACTOR_DIED = "JOB_SUPERVISOR_ACTOR_DIED"
    JOB_ENTRYPOINT_COMMAND_START_ERROR = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
    JOB_ENTRYPOINT_COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


@dataclass
class JobInfo:
    """The stored record of a submitted job; times are in milliseconds since 1970."""

    status: JobStatus
    entrypoint: str
    message: str | None = None
    error_type: JobErrorType | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None
    entrypoint_num_cpus: float | None = None
    entrypoint_num_gpus: float | None = None
    entrypoint_memory: int | None = None
    entrypoint_resources: dict[str, float] | None = None
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record with plain values; the runtime environment is JSON, under the key `runtime_env_json`."""
        record = asdict(self)
        record["status"] = self.status.value
        record["error_type"] = None if self.error_type is None else self.error_type.value
        environment = record.pop("runtime_env")
        if environment is not None:
            record["runtime_env_json"] = json.dumps(environment)
        return record

    @classmethod
    def from_json(cls, json_dict: dict[str, Any]) -> JobInfo:
        """Return the record that `to_json` wrote.

        Args:
            json_dict: The record.
        """
        record = dict(json_dict)
        environment = record.pop("runtime_env_json", None)
        error = record.pop("error_type", None)
        return cls(
            status=JobStatus(record.pop("status")),
            error_type=None if error is None else JobErrorType(error),
            runtime_env=None if environment is None else json.loads(environment),
            **record,
        )


@dataclass(frozen=True)
class DriverInfo:
    """The driver process of a job."""

    id: str
    node_ip_address: str
    pid: str


@dataclass
class JobDetails:
    """A submitted job, or an attached program."""

    type: JobType
    status: JobStatus
    entrypoint: str
    job_id: str | None = None
    submission_id: str | None = None
    driver_info: DriverInfo | None = None
    message: str | None = None
    error_type: JobErrorType | None = None
    start_time: int | None = None
    end_time: int | None = None
    metadata: dict[str, str] | None = field(default_factory=dict)
    runtime_env: dict[str, Any] | None = field(default_factory=dict)
    driver_agent_http_address: str | None = None
    driver_node_id: str | None = None
    driver_exit_code: int | None = None
