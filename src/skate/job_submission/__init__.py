"""Submission of programs to a node, where they run independently of the submitter."""

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
