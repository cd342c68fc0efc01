"""`JobSubmissionClient` with a URL: the dashboard of a node in another process, and servers that do not answer so."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from skate._api import nodes
from skate.job_submission import JobStatus, JobSubmissionClient, JobType
from tests.contract.support import eventually
from tests.dashboard.processes import running
from tests.plugins.command_line import Cli


@pytest.fixture
def url(cli: Cli, node: nodes.NodeRecord) -> Iterator[str]:
    """The URL of a dashboard, with its token."""
    with running("--port", "0") as (client, _):
        yield f"{client.base}/?token={client.headers['Authorization'].removeprefix('Bearer ')}"


@pytest.fixture
def client(url: str) -> JobSubmissionClient:
    return JobSubmissionClient(url, metadata={"by": "http"})


async def test_a_program_with_its_folder_and_modules_runs_on_the_node(
    client: JobSubmissionClient, tmp_path: Path
) -> None:
    folder, module = tmp_path / "folder", tmp_path / "helpers"
    folder.mkdir()
    module.mkdir()
    (folder / "program.py").write_text("import helpers, skate; skate.init(); print(helpers.WORD)")
    (module / "__init__.py").write_text("WORD = 'héllo'")
    wheel = tmp_path / "wheeled-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("wheeled.py", "")
        archive.writestr(
            "wheeled-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: wheeled\nVersion: 1.0\n"
        )
        archive.writestr("wheeled-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("wheeled-1.0.dist-info/RECORD", "")
    for _ in range(2):  # the second time, the packages are there
        id = client.submit_job(
            entrypoint=f"{sys.executable} -c 'import wheeled' && {sys.executable} program.py",
            runtime_env={"working_dir": str(folder), "py_modules": [str(module), str(wheel)]},
            metadata={"more": "x"},
            entrypoint_num_cpus=0.5,
        )
        text = "".join([text async for text in client.tail_job_logs(id)])
        info = client.get_job_info(id)
        assert (info.status, text) == (JobStatus.SUCCEEDED, "héllo\n"), (info.message, text)
    assert info.type is JobType.SUBMISSION
    assert info.driver_info is not None
    assert info.metadata == {"by": "http", "more": "x"}
    assert client.get_job_logs(id) == text
    assert id in [job.submission_id for job in client.list_jobs()]
    assert client.delete_job(id)
    with pytest.raises(RuntimeError, match=f"Job {id} does not exist"):
        client.get_job_status(id)
    with pytest.raises(RuntimeError, match=f"Job {id} does not exist"):
        [text async for text in client.tail_job_logs(id)]


def test_a_job_is_stopped_and_its_id_is_taken(client: JobSubmissionClient) -> None:
    id = client.submit_job(entrypoint="sleep 1000", submission_id="mine")
    assert id == "mine"
    with pytest.raises(RuntimeError, match="already exists"):
        client.submit_job(entrypoint="true", submission_id="mine")
    eventually(lambda: client.get_job_status(id) is JobStatus.RUNNING)
    with pytest.raises(RuntimeError, match="non-terminal"):
        client.delete_job(id)
    assert client.stop_job(id)
    eventually(lambda: client.get_job_status(id) is JobStatus.STOPPED)
    assert not client.stop_job(id)


def test_the_address_has_no_token_and_a_request_needs_one(url: str) -> None:
    client = JobSubmissionClient(url)
    assert "token" not in client.get_address()
    assert client.get_version() == JobSubmissionClient().get_version()
    base, _, token = url.partition("/?token=")
    JobSubmissionClient(base, headers={"Authorization": f"Bearer {token}"})
    port = base.rpartition(":")[2]
    JobSubmissionClient(base, cookies={f"skate_token_{port}": token})
    with pytest.raises(RuntimeError, match=r"status 401.*Pass the URL with its token"):
        JobSubmissionClient(base)


def test_the_command_line_submits_over_http(cli: Cli, url: str) -> None:
    done = cli("job", "submit", "--address", url, "--submission-id", "one", "--", "echo", "hello")
    assert done.out == "hello\n"
    base, _, token = url.partition("/?token=")
    headers = json.dumps({"Authorization": f"Bearer {token}"})
    assert cli("job", "logs", "--address", base, "--headers", headers, "one").out == "hello\n"
    assert "status 401" in cli("job", "list", "--address", base, status=1).err


def test_a_url_without_a_server_is_a_connection_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port} does not answer"):
        JobSubmissionClient(f"http://127.0.0.1:{port}")


class _Version(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"version": "4"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep the output of the test clean."""


@contextmanager
def https_server(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with HTTPServer(("127.0.0.1", 0), _Version) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_certificates_are_verified(tmp_path: Path) -> None:
    file = tmp_path / "both.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-", "-out", "-"],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_bytes(made.stdout)
    with https_server(file) as url:
        with pytest.raises(ConnectionError, match="certificate verify failed"):
            JobSubmissionClient(url)
        assert JobSubmissionClient(url, verify=False).get_address() == url
        assert JobSubmissionClient(url, verify=str(file)).get_version() == "4"
        with pytest.raises(FileNotFoundError, match="does not exist"):
            JobSubmissionClient(url, verify=str(tmp_path / "missing.pem"))
