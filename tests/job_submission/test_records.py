from __future__ import annotations

import json

import pytest

from skate.job_submission import JobErrorType, JobInfo, JobStatus

FAILED = JobInfo(
    JobStatus.FAILED,
    "python main.py",
    message="it failed",
    error_type=JobErrorType.JOB_ENTRYPOINT_COMMAND_ERROR,
    runtime_env={"env_vars": {"A": "1"}},
    driver_exit_code=1,
)


@pytest.mark.parametrize("info", [FAILED, JobInfo(JobStatus.PENDING, "true")], ids=["failed", "pending"])
def test_a_record_comes_back_from_json(info: JobInfo) -> None:
    written = info.to_json()
    assert JobInfo.from_json(json.loads(json.dumps(written))) == info
    assert written == info.to_json()


def test_a_record_in_json_has_the_keys_of_ray() -> None:
    written = FAILED.to_json()
    assert written["status"] == "FAILED"
    assert written["error_type"] == "JOB_ENTRYPOINT_COMMAND_ERROR"
    assert json.loads(written["runtime_env_json"]) == {"env_vars": {"A": "1"}}
    assert "runtime_env" not in written
