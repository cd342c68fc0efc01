"""Serve over HTTP: Ray's paths, Ray's own client, and `skate serve` with the URL of a dashboard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from skate._api import nodes
from skate.serve.schema import ServeInstanceDetails
from tests.contract.support import eventually
from tests.dashboard.processes import Client, running
from tests.dashboard.support import EVENT_TIMEOUT_S, PORT, TOKEN, Page, client_of
from tests.plugins.command_line import Cli

APPLICATIONS = "/api/serve/applications/"
SCALE = "/api/v1/applications/{}/deployments/{}/scale"

# Written for Ray: the server makes `ray` an alias of Skate.
PROGRAM = """
import os
from ray import serve

@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Says:
    def __init__(self, what):
        self.what = what

    def __call__(self):
        return self.what + os.environ.get("SAID", "")

app = Says.bind("hello")

def broken(args):
    raise RuntimeError("on purpose")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def server(cli: Cli, node: nodes.NodeRecord) -> Iterator[Client]:
    with running("--port", "0") as (client, _):
        yield client


@pytest.fixture
def url(server: Client) -> str:
    """The URL of the dashboard, with its token."""
    return f"{server.base}/?token={server.headers['Authorization'].removeprefix('Bearer ')}"


def config(folder: Path, **options: Any) -> dict[str, Any]:
    app = {
        "name": "greeting",
        "route_prefix": "/greet",
        "import_path": "program:app",
        "runtime_env": {"working_dir": f"local://{folder}", "env_vars": {"SAID": "!"}},
        **options,
    }
    return {"http_options": {"port": 0}, "applications": [app]}


def ask(server: Client, method: str, path: str, **arguments: Any) -> httpx.Response:
    return httpx.request(
        method, server.base + path, headers=server.headers, timeout=EVENT_TIMEOUT_S, **arguments
    )


def put(server: Client, given: dict[str, Any]) -> None:
    response = ask(server, "PUT", APPLICATIONS, json=given)
    assert (response.status_code, response.content) == (200, b""), response.text


def status_of(server: Client, name: str = "greeting") -> str:
    app = server.get(APPLICATIONS)["applications"].get(name)
    return "" if app is None else str(app["status"])


def call(server: Client) -> str:
    (target,) = server.get(APPLICATIONS)["target_groups"][0]["targets"]
    return httpx.get(f"http://{target['ip']}:{target['port']}/greet").text


def test_applications_are_deployed_described_and_deleted(server: Client, folder: Path) -> None:
    assert server.get(APPLICATIONS) == ServeInstanceDetails.get_empty_schema_dict()
    assert ask(server, "DELETE", APPLICATIONS).status_code == 200
    given = config(folder)
    put(server, given)
    eventually(lambda: status_of(server) == "RUNNING")
    assert call(server) == "hello!"
    details = server.get(APPLICATIONS)
    found = ServeInstanceDetails.model_validate(details)
    app = details["applications"]["greeting"]
    assert app["deployed_app_config"] == given["applications"][0]
    assert app["deployments"]["Says"]["replicas"][0]["state"] == "RUNNING"
    assert found.controller_info.node_id is not None
    assert server.get(f"{APPLICATIONS}?api_type=declarative")["applications"].keys() == {"greeting"}
    assert server.get(f"{APPLICATIONS}?api_type=IMPERATIVE")["applications"] == {}
    # The same again changes nothing, and another configuration replaces it.
    replica = app["deployments"]["Says"]["replicas"][0]["replica_id"]
    put(server, given)
    eventually(lambda: status_of(server) == "RUNNING")
    again = server.get(APPLICATIONS)["applications"]["greeting"]["deployments"]["Says"]["replicas"]
    assert [each["replica_id"] for each in again] == [replica]
    put(server, config(folder, import_path="program:broken"))
    eventually(lambda: status_of(server) == "DEPLOY_FAILED")
    assert "on purpose" in server.get(APPLICATIONS)["applications"]["greeting"]["message"]
    put(server, {"applications": []})
    eventually(lambda: status_of(server) == "")
    assert ask(server, "DELETE", APPLICATIONS).status_code == 200
    assert server.get(APPLICATIONS) == ServeInstanceDetails.get_empty_schema_dict()


def test_a_scaler_sets_the_number_of_replicas(server: Client, folder: Path) -> None:
    path = SCALE.format("greeting", "Says")
    response = ask(server, "POST", path, json={"target_num_replicas": 1})
    assert (response.status_code, response.json()) == (503, {"error": "Serve does not run on this node."})
    put(server, config(folder))
    eventually(lambda: status_of(server) == "RUNNING")
    response = ask(server, "POST", path, json={"target_num_replicas": 2})
    assert response.status_code == 412
    assert "external_scaler_enabled" in response.json()["error"]
    put(server, config(folder, external_scaler_enabled=True))
    eventually(lambda: status_of(server) == "RUNNING")
    assert ask(server, "POST", path, json={"target_num_replicas": 2}).status_code == 200
    eventually(
        lambda: (
            server.get(APPLICATIONS)["applications"]["greeting"]["deployments"]["Says"]["target_num_replicas"]
            == 2
        )
    )
    unknown = ask(server, "POST", SCALE.format("greeting", "Nothing"), json={"target_num_replicas": 2})
    assert (unknown.status_code, "has no deployment 'Nothing'" in unknown.json()["error"]) == (404, True)
    for wrong in ({}, {"target_num_replicas": -1}, {"target_num_replicas": "two"}):
        assert ask(server, "POST", path, json=wrong).status_code == 400


def test_the_command_line_deploys_over_http(cli: Cli, server: Client, url: str, folder: Path) -> None:
    assert cli("serve", "config", "--address", url).out == "No configuration was found.\n"
    assert "No Serve instance found" in cli("serve", "shutdown", "-y", "--address", url).err
    file = folder / "config.yaml"
    local = {"working_dir": str(folder), "env_vars": {"SAID": "!"}}
    file.write_text(yaml.safe_dump(config(folder, runtime_env=local)))
    cli("serve", "deploy", str(file), "--address", url, "--wait")
    assert call(server) == "hello!"
    found = yaml.safe_load(cli("serve", "status", "--address", url).out)
    assert found["applications"]["greeting"]["status"] == "RUNNING"
    declared = yaml.safe_load(cli("serve", "config", "--address", url, "--name", "greeting").out)
    assert declared["import_path"] == "program:app"
    # The folder was uploaded: the node does not use the original.
    assert declared["runtime_env"]["working_dir"].startswith("gcs://_ray_pkg_")
    file.write_text(yaml.safe_dump(config(folder, runtime_env=local, import_path="program:broken")))
    assert "on purpose" in cli("serve", "deploy", str(file), "--address", url, "--wait", status=1).err
    cli("serve", "shutdown", "-y", "--address", url)
    assert server.get(APPLICATIONS)["applications"] == {}


def test_commands_over_http_explain_what_they_cannot_do(cli: Cli, url: str, folder: Path) -> None:
    arguments = ("serve", "deploy", "program:app", "--address", url, "--app-dir", str(folder))
    assert "pass --working-dir instead" in cli(*arguments, status=2).err
    said = cli("serve", "controller-health", "--address", url, status=1).err
    assert "needs the node itself" in said
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config(folder)))
    said = cli("serve", "deploy", str(file), "--address", url, status=1).err
    assert "is not a valid URI for `working_dir`" in said
    said = cli("serve", "status", "--address", url.partition("/?")[0], status=1).err
    assert "status 401" in said
    assert "Pass the URL with its token" in said


def test_serve_of_a_node_that_has_died_is_unavailable(server: Client, folder: Path) -> None:
    nodes.stop()
    for method in ("GET", "DELETE"):
        response = ask(server, method, APPLICATIONS)
        assert response.status_code == 503
        assert "node" in response.text
    assert ask(server, "PUT", APPLICATIONS, json=config(folder)).status_code == 503


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"not json", "not JSON"),
        (b"[]", "not an object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "applications"),
        (b'{"applications": 3}', "applications"),
        (b'{"applications": ["x"]}', "applications"),
        (b'{"applications": [{"name": "a"}]}', "import_path"),
        (b'{"applications": [{"import_path": "a:b", "runtime_env": 3}]}', "runtime_env must be an object"),
        (
            b'{"applications": [{"import_path": "a:b", "runtime_env": {"working_dir": "gcs://no.zip"}}]}',
            "was not uploaded",
        ),
        (b'{"applications": [], "http_options": {"port": "many"}}', "port"),
        (b'{"applications": [{"import_path": "a:b"}, {"import_path": "a:b"}]}', "Found multiple configs"),
    ],
)
async def test_a_wrong_configuration_is_explained(page: Page, body: bytes, says: str) -> None:
    response = await page.client.put(APPLICATIONS, content=body)
    assert response.status_code == 400
    assert says in response.text
    assert (await page.get(APPLICATIONS))["applications"] == {}


async def test_an_unknown_kind_of_applications_is_explained(page: Page) -> None:
    response = await page.client.get(f"{APPLICATIONS}?api_type=colours")
    assert response.status_code == 400
    assert "must be one of imperative, declarative" in response.text


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", APPLICATIONS), ("DELETE", APPLICATIONS), ("POST", SCALE.format("a", "b"))],
)
async def test_nothing_is_changed_for_strangers(page: Page, method: str, path: str) -> None:
    authorized = {"Authorization": f"Bearer {TOKEN}"}
    app = page.dashboard.app
    given: dict[str, Any] = {"applications": []}
    assert (await client_of(app).request(method, path, json=given)).status_code == 401
    assert (await client_of(app, Authorization="Bearer wrong").request(method, path)).status_code == 401
    forged = client_of(app, **authorized, Host=f"evil.example:{PORT}")
    assert (await forged.request(method, path, json=given)).status_code == 403
    foreign = client_of(app, **authorized, Origin="http://evil.example")
    assert (await foreign.request(method, path, json=given)).status_code == 403


RAY = """
import json, sys, time
from ray.dashboard.modules.serve.sdk import ServeSubmissionClient
from ray.serve.schema import ServeInstanceDetails

client = ServeSubmissionClient(sys.argv[1], headers=json.loads(sys.argv[2]))
empty = ServeInstanceDetails(**client.get_serve_details())
client.deploy_applications(json.loads(sys.argv[3]))
while True:
    details = ServeInstanceDetails(**client.get_serve_details())
    app = details.applications.get("greeting")
    if app is not None and app.status != "DEPLOYING":
        break
    time.sleep(0.2)
config = details.applications["greeting"].deployed_app_config.model_dump(exclude_unset=True)
status = details._get_status().applications["greeting"].status
client.delete_applications()
print(json.dumps({"empty": len(empty.applications), "status": status, "import_path": config["import_path"]}))
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_rays_own_client_deploys_to_a_node(server: Client, folder: Path) -> None:
    arguments = [server.base, json.dumps(server.headers), json.dumps(config(folder))]
    done = subprocess.run(
        [sys.executable, "-c", RAY, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"empty": 0, "status": "RUNNING", "import_path": "program:app"}


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_rays_command_line_shows_the_status(server: Client, folder: Path) -> None:
    put(server, config(folder))
    eventually(lambda: status_of(server) == "RUNNING")
    token = server.headers["Authorization"].removeprefix("Bearer ")
    command = [sys.executable, "-m", "ray.serve.scripts", "status", "--address", server.base]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token},
    )
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["applications"]["greeting"]["status"] == "RUNNING"
