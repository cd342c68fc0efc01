"""Submitting programs to a node: they run there, whoever submitted them may leave."""

from __future__ import annotations

from skate.job_submission._client import JobSubmissionClient
from skate.job_submission._records import DriverInfo, JobDetails, JobErrorType, JobInfo, JobStatus, JobType

__all__ = [
    "DriverInfo",
    "JobDetails",
    "JobErrorType",
    "JobInfo",
    "JobStatus",
    "JobSubmissionClient",
    "JobType",
]
