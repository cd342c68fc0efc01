from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

import skate
from skate._api import nodes
from skate.cli import main
from skate.job_submission import JobDetails, JobErrorType, JobStatus, JobSubmissionClient, JobType
from skate.util import state
from tests.contract.support import EVENT_TIMEOUT_S, eventually

PROGRAM = """
import os, skate
skate.init()
@skate.remote
def work():
    return os.environ.get("WORD")
print("said", skate.get(work.remote()), skate.get_runtime_context().get_session_dir())
"""


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[nodes.NodeRecord]:
    """A long-lived node of the test's own."""
    root = Path(tempfile.mkdtemp(prefix="skj-"))
    monkeypatch.setenv("SKATE_TMPDIR", str(root))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    yield nodes.start(num_cpus=2)
    skate.shutdown()
    nodes.stop(private=True)
    shutil.rmtree(root)


@pytest.fixture
def client(node: nodes.NodeRecord) -> JobSubmissionClient:
    return JobSubmissionClient()


def ended(client: JobSubmissionClient, id: str) -> JobDetails:
    """Wait for the end of a job, and return it."""
    eventually(lambda: client.get_job_status(id).is_terminal(), "the job ends")
    return client.get_job_info(id)


def script(folder: Path, text: str) -> str:
    (folder / "script.py").write_text(text)
    return f"python {folder / 'script.py'}"


def test_a_program_runs_on_the_node_with_its_environment(
    client: JobSubmissionClient, node: nodes.NodeRecord, tmp_path: Path
) -> None:
    id = client.submit_job(
        entrypoint=script(tmp_path, PROGRAM),
        runtime_env={"env_vars": {"WORD": "hello"}},
        metadata={"who": "me"},
    )
    info = ended(client, id)
    assert info.status is JobStatus.SUCCEEDED, info.message
    assert client.get_job_logs(id) == f"said hello {node.folder}\n"
    assert (info.type, info.submission_id, info.driver_exit_code) == (JobType.SUBMISSION, id, 0)
    assert info.metadata == {"who": "me"}
    assert info.runtime_env == {"env_vars": {"WORD": "hello"}}
    assert info.job_id is not None
    assert info.driver_info is not None
    assert info.end_time is not None
    assert info.end_time >= (info.start_time or 0)
    assert client.list_jobs() == [info]


def test_the_working_dir_is_copied_and_run_in(client: JobSubmissionClient, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("from the folder")
    id = client.submit_job(entrypoint="cat data.txt", runtime_env={"working_dir": str(tmp_path)})
    assert ended(client, id).status is JobStatus.SUCCEEDED
    assert client.get_job_logs(id) == "from the folder"


def test_a_command_that_fails_says_how(client: JobSubmissionClient) -> None:
    info = ended(client, client.submit_job(entrypoint="echo broken; exit 3"))
    assert info.status is JobStatus.FAILED
    assert info.error_type is JobErrorType.JOB_ENTRYPOINT_COMMAND_ERROR
    assert info.driver_exit_code == 3
    assert "exit code 3" in (info.message or "")
    assert "broken" in (info.message or "")
    killed = ended(client, client.submit_job(entrypoint="kill -9 $$"))
    assert "SIGKILL" in (killed.message or "")


def test_an_environment_that_cannot_be_made_fails_the_job(client: JobSubmissionClient) -> None:
    id = client.submit_job(entrypoint="true", runtime_env={"working_dir": "file:///nowhere.zip"})
    info = ended(client, id)
    assert (info.status, info.error_type) == (JobStatus.FAILED, JobErrorType.RUNTIME_ENV_SETUP_FAILURE)
    assert "nowhere.zip" in (info.message or "")


def test_resources_that_cannot_be_had_fail_the_job(client: JobSubmissionClient) -> None:
    info = ended(client, client.submit_job(entrypoint="true", entrypoint_num_cpus=64))
    assert info.status is JobStatus.FAILED
    assert "64" in (info.message or "")
    assert (
        ended(client, client.submit_job(entrypoint="true", entrypoint_num_cpus=2)).status
        is JobStatus.SUCCEEDED
    )


def test_a_job_waits_for_its_resources_and_can_be_stopped_before_it_starts(
    client: JobSubmissionClient,
) -> None:
    first = client.submit_job(entrypoint="sleep 1000", entrypoint_num_cpus=2)
    eventually(lambda: client.get_job_status(first) is JobStatus.RUNNING)
    second = client.submit_job(entrypoint="true", entrypoint_num_cpus=1)
    assert client.get_job_status(second) is JobStatus.PENDING
    assert "waiting for resources" in (client.get_job_info(second).message or "")
    assert client.stop_job(second)
    assert client.get_job_status(second) is JobStatus.STOPPED
    assert client.stop_job(first)


@pytest.mark.parametrize("command", ["sleep 1000 & sleep 1000", "trap '' TERM; sleep 1000; sleep 1000"])
def test_a_job_is_stopped_with_all_its_processes(client: JobSubmissionClient, command: str) -> None:
    id = client.submit_job(entrypoint=f"echo $$; {command}")
    pid = int(eventually(lambda: client.get_job_logs(id)))
    family = [psutil.Process(pid), *eventually(lambda: psutil.Process(pid).children(recursive=True))]
    with pytest.raises(RuntimeError, match="non-terminal"):
        client.delete_job(id)
    assert client.stop_job(id)
    assert ended(client, id).status is JobStatus.STOPPED
    eventually(lambda: not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE])
    assert not client.stop_job(id)


def test_a_job_that_has_ended_can_be_forgotten(client: JobSubmissionClient, node: nodes.NodeRecord) -> None:
    id = client.submit_job(entrypoint="echo x")
    ended(client, id)
    assert client.delete_job(id)
    for ask in (
        client.get_job_status,
        client.get_job_info,
        client.get_job_logs,
        client.stop_job,
        client.delete_job,
    ):
        with pytest.raises(RuntimeError, match="does not exist"):
            ask(id)
    assert not list(Path(node.folder, "logs").glob("job-*"))


async def test_the_output_is_followed_until_the_end(client: JobSubmissionClient, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    id = client.submit_job(entrypoint=f"echo one; until [ -e {gate} ]; do sleep 0.01; done; echo two")
    seen = ""
    async for text in client.tail_job_logs(id):
        seen += text
        if seen == "one\n":
            gate.touch()
    assert seen == "one\ntwo\n"


def test_an_id_can_be_chosen_but_not_twice(client: JobSubmissionClient) -> None:
    assert client.submit_job(entrypoint="true", submission_id="mine") == "mine"
    with pytest.raises(RuntimeError, match="already exists"):
        client.submit_job(entrypoint="true", submission_id="mine")
    with pytest.raises(ValueError, match="is invalid"):
        client.submit_job(entrypoint="true", submission_id="../x")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"entrypoint": ""}, ValueError),
        ({"entrypoint": "true", "runtime_env": {"pips": []}}, ValueError),
        ({"entrypoint": "true", "metadata": {"a": 1}}, TypeError),
        ({"entrypoint": "true", "entrypoint_num_cpus": -1}, ValueError),
        ({"entrypoint": "true", "job_id": "a", "submission_id": "b"}, ValueError),
    ],
)
def test_what_cannot_be_right_is_refused_and_leaves_no_job(
    client: JobSubmissionClient, arguments: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.submit_job(**arguments)  # type: ignore[arg-type]
    assert client.list_jobs() == []


def test_the_death_of_a_supervisor_fails_its_job(client: JobSubmissionClient) -> None:
    id = client.submit_job(entrypoint="sleep 1000")
    eventually(lambda: client.get_job_status(id) is JobStatus.RUNNING)
    (actor,) = state.list_actors()
    os.kill(actor.pid or 0, signal.SIGKILL)
    info = ended(client, id)
    assert (info.status, info.error_type) == (JobStatus.FAILED, JobErrorType.JOB_SUPERVISOR_ACTOR_DIED)


def test_jobs_outlive_whoever_submits_them_and_end_with_the_node(
    client: JobSubmissionClient, node: nodes.NodeRecord
) -> None:
    id = client.submit_job(entrypoint="echo $$; sleep 1000")
    pid = int(eventually(lambda: client.get_job_logs(id)))
    assert not skate.is_initialized()
    nodes.stop()
    eventually(lambda: not psutil.pid_exists(pid))


def test_programs_that_are_attached_are_jobs_too(client: JobSubmissionClient) -> None:
    skate.init(address="auto")
    (job,) = client.list_jobs()
    assert (job.type, job.status, job.submission_id) == (JobType.DRIVER, JobStatus.RUNNING, None)
    assert client.get_job_info(skate.get_runtime_context().get_job_id()) == job
    submitted = client.submit_job(entrypoint="true")  # from within a session
    ended(client, submitted)
    assert {row.type for row in state.list_jobs()} == {"DRIVER", "SUBMISSION"}
    assert state.get_job(submitted).entrypoint == "true"  # type: ignore[union-attr]


def test_a_client_needs_a_node(node: nodes.NodeRecord) -> None:
    assert JobSubmissionClient("http://127.0.0.1:8265").get_address() == node.folder
    assert JobSubmissionClient(node.folder).get_address() == node.folder
    with pytest.raises(ConnectionError, match="is not the address of a Skate node"):
        JobSubmissionClient("127.0.0.1:8265")
    nodes.stop()
    with pytest.raises(ConnectionError, match="skate start"):
        JobSubmissionClient()


def test_a_job_does_not_go_to_the_private_node_of_another_program(node: nodes.NodeRecord) -> None:
    nodes.stop()
    host = "import skate, sys; skate.init(num_cpus=1); print(flush=True); sys.stdin.readline()"
    asks = (
        "from skate.job_submission import JobSubmissionClient; JobSubmissionClient('http://127.0.0.1:8265')"
    )
    words = "`skate start`"
    with subprocess.Popen(
        [sys.executable, "-c", host], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline()
        with pytest.raises(ConnectionError, match=words):
            JobSubmissionClient("http://127.0.0.1:8265")
        program.communicate(b"\n", timeout=EVENT_TIMEOUT_S)
    skate.init(num_cpus=1)  # a program's own node, which its children may not use for jobs
    assert JobSubmissionClient().get_address() == skate.get_runtime_context().get_session_dir()
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=False)
    assert words in done.stderr


# ------------------------------------------------------------ the command line


def cli(*arguments: str, status: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(main, ["job", *arguments])
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def test_a_job_is_submitted_and_shown_on_the_command_line(node: nodes.NodeRecord) -> None:
    out, err = cli("submit", "--submission-id", "one", "--", "echo", "two words")
    assert out == "two words\n"
    assert "Job 'one' submitted successfully\nTailing logs until the job exits" in err
    assert err.endswith("Job 'one' succeeded\n")
    assert cli("logs", "one")[0] == "two words\n"
    assert json.loads(cli("status", "one", "--format", "json")[0])["status"] == "SUCCEEDED"
    assert "SUBMISSION" in cli("list")[0]
    assert cli("delete", "one") == ("", "Job 'one' deleted successfully\n")
    assert cli("list") == ("", "There are no jobs.\n")
    assert "does not exist" in cli("status", "one", status=1)[1]


def test_a_failed_job_fails_the_command(node: nodes.NodeRecord) -> None:
    out, err = cli("submit", "--", "sh", "-c", "echo oh no; exit 2", status=1)
    assert out == "oh no\n"
    assert "Job 'raysubmit_" in err
    assert "' failed\nStatus message: " in err
    assert "exit code 2" in err


def test_a_job_can_be_left_alone_and_stopped(node: nodes.NodeRecord) -> None:
    id = cli("submit", "--no-wait", "--runtime-env-json", '{"env_vars": {"A": "1"}}', "--", "sleep 1000")[
        0
    ].strip()
    eventually(lambda: "RUNNING" in cli("status", id)[0])
    said = cli("stop", id)[1]
    assert said.startswith(f"Waiting for job '{id}' to exit")
    assert said.endswith(f"Job '{id}' was stopped\n")
    assert "had ended" in cli("stop", id)[1]
    assert "is not JSON" in cli("submit", "--metadata-json", "{", "--", "true", status=2)[1]
