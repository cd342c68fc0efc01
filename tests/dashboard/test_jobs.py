"""Jobs over HTTP: Ray's paths, and Ray's own client."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from typing import Any

import pytest

from skate._api import nodes
from tests.dashboard.support import Page
from tests.dashboard.test_process import running
from tests.plugins.command_line import Cli


async def submit(page: Page, entrypoint: str, **fields: Any) -> str:
    answer = await page.post("/api/jobs/", json={"entrypoint": entrypoint, **fields})
    assert answer["job_id"] == answer["submission_id"]
    return str(answer["submission_id"])


async def ended(page: Page, id: str) -> Any:
    return await page.eventually(
        f"/api/jobs/{id}", lambda job: job["status"] in ("SUCCEEDED", "FAILED", "STOPPED")
    )


async def test_the_version_is_rays(page: Page) -> None:
    found = await page.get("/api/version")
    assert found["version"] == "4"
    assert found["ray_version"].startswith("2.")
    assert found["session_name"].startswith("session-")


async def test_a_job_is_submitted_listed_and_deleted(page: Page) -> None:
    id = await submit(
        page, "echo $WORD; exit 3", runtime_env={"env_vars": {"WORD": "hello"}}, metadata={"a": "b"}
    )
    job = await ended(page, id)
    assert (job["status"], job["driver_exit_code"], job["metadata"]) == ("FAILED", 3, {"a": "b"})
    assert job["type"] == "SUBMISSION"
    assert await page.get(f"/api/jobs/{id}/logs") == {"logs": "hello\n"}
    assert id in [each["submission_id"] for each in await page.get("/api/jobs/")]
    response = await page.client.delete(f"/api/jobs/{id}")
    assert response.json() == {"deleted": True}
    assert (await page.client.get(f"/api/jobs/{id}")).status_code == 404


async def test_a_running_job_is_stopped_and_cannot_be_deleted(page: Page) -> None:
    id = await submit(page, "sleep 100")
    await page.eventually(f"/api/jobs/{id}", lambda job: job["status"] == "RUNNING")
    response = await page.client.delete(f"/api/jobs/{id}")
    assert response.status_code == 500
    assert "non-terminal" in response.text
    assert await page.post(f"/api/jobs/{id}/stop") == {"stopped": True}
    assert (await ended(page, id))["status"] == "STOPPED"


async def test_an_uploaded_package_is_the_working_directory(page: Page) -> None:
    path = "/api/packages/gcs/_ray_pkg_0123456789abcdef.zip"
    assert (await page.client.get(path)).status_code == 404
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("hello.txt", "from the package")
    assert (await page.client.put(path, content=made.getvalue())).status_code == 200
    assert (await page.client.get(path)).status_code == 200
    id = await submit(
        page, "cat hello.txt", runtime_env={"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"}
    )
    assert (await ended(page, id))["status"] == "SUCCEEDED"
    assert (await page.get(f"/api/jobs/{id}/logs"))["logs"] == "from the package"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"not json", "not JSON"),
        (b"[1]", "not an object"),
        (b"{}", "'entrypoint' is missing"),
        (b'{"entrypoint": 3}', "must be a shell command"),
        (b'{"entrypoint": "true", "colour": "red"}', "Unknown field 'colour'"),
        (b'{"entrypoint": "true", "submission_id": "../up"}', "is invalid"),
        (b'{"entrypoint": "true", "runtime_env": "x"}', "runtime_env must be an object"),
        (b'{"entrypoint": "true", "runtime_env": {"working_dir": "gcs://missing.zip"}}', "was not uploaded"),
        (b'{"entrypoint": "true", "metadata": {"a": 1}}', "must map strings to strings"),
    ],
)
async def test_a_wrong_submission_is_explained(page: Page, body: bytes, says: str) -> None:
    response = await page.client.post("/api/jobs/", content=body)
    assert response.status_code == 400
    assert says in response.text


@pytest.mark.parametrize("path", ["/api/jobs/nothing", "/api/jobs/nothing/logs"])
async def test_an_unknown_job_does_not_exist(page: Page, path: str) -> None:
    response = await page.client.get(path)
    assert (response.status_code, response.text) == (404, "Job nothing does not exist")


@pytest.mark.parametrize("name", ["gcs/..%2F..%2Fx.zip", "gcs/.hidden", "s3/x.zip", "gcs/%2Fetc%2Fx"])
async def test_a_package_cannot_leave_its_folder(page: Page, name: str) -> None:
    response = await page.client.put(f"/api/packages/{name}", content=b"x")
    assert response.status_code in (400, 404, 405)


async def test_the_log_of_a_driver_is_not_a_jobs(page: Page) -> None:
    (driver,) = [job for job in await page.get("/api/jobs/") if job["type"] == "DRIVER"]
    response = await page.client.get(f"/api/jobs/{driver['job_id']}/logs")
    assert response.status_code == 400
    assert "submission type" in response.text


RAY = """
import asyncio, json, sys, tempfile, pathlib
from ray.job_submission import JobSubmissionClient

url, headers = sys.argv[1], json.loads(sys.argv[2])
client = JobSubmissionClient(url, headers=headers)
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "program.py").write_text("import skate; skate.init(); print('cpus', skate.cluster_resources()['CPU'])")
id = client.submit_job(
    entrypoint=f"{sys.executable} program.py",
    runtime_env={"working_dir": str(folder)},
    metadata={"by": "ray"},
    entrypoint_num_cpus=0.5,
)

async def tail():
    return "".join([lines async for lines in client.tail_job_logs(id)])

text = asyncio.run(tail())
info = client.get_job_info(id)
sleeper = client.submit_job(entrypoint="sleep 100", submission_id="sleeper")
stopped = client.stop_job(sleeper)
try:
    client.get_job_info("nothing")
except RuntimeError as error:
    missing = str(error)
print(json.dumps({
    "text": text, "status": info.status, "metadata": info.metadata, "driver": info.driver_info is not None,
    "jobs": [job.submission_id for job in client.list_jobs()], "stopped": stopped, "missing": missing,
    "version": client.get_version(), "logs": client.get_job_logs(id), "deleted": client.delete_job(id),
}))
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_rays_own_client_submits_jobs_to_a_node(cli: Cli, node: nodes.NodeRecord) -> None:
    with running("--port", "0") as (client, _):
        done = subprocess.run(
            [sys.executable, "-c", RAY, client.base, json.dumps(client.headers)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert "cpus 2.0" in found["text"]
        assert found["text"] == found["logs"]
        assert found["status"] == "SUCCEEDED"
        assert found["metadata"] == {"by": "ray"}
        assert found["driver"]
        assert "sleeper" in found["jobs"]
        assert (found["stopped"], found["deleted"]) == (True, True)
        assert "404" in found["missing"]
        assert found["version"] == "4"
        # Without the token, Ray's client is refused.
        refused = subprocess.run(
            [sys.executable, "-c", RAY, client.base, "{}"], capture_output=True, text=True, check=False
        )
        assert refused.returncode != 0
        assert "401" in refused.stderr or "Authentication" in refused.stderr
