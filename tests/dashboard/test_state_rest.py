"""The state API over HTTP: Ray's paths and field names, and Ray's own client."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

import skate
from skate._api import nodes
from skate.util.placement_group import placement_group
from tests.conftest import LeakWatch
from tests.dashboard.processes import Client, running
from tests.dashboard.support import PORT, TOKEN, Page, client_of
from tests.plugins.command_line import Cli

TABLES = [
    "actors",
    "jobs",
    "placement_groups",
    "nodes",
    "workers",
    "tasks",
    "objects",
    "runtime_envs",
    "cluster_events",
]
SUMMARIES = ["actors", "objects", "tasks"]
COUNTS = {
    "total",
    "num_after_truncation",
    "num_filtered",
    "result",
    "partial_failure_warning",
    "warnings",
}


@skate.remote(num_cpus=0.1)
class Speaker:
    def say(self, text: str) -> int:
        print(text, flush=True)
        return os.getpid()


@skate.remote
def square(x: int) -> int:
    return x * x


@pytest.fixture(scope="module")
def session(leak_watch: LeakWatch) -> Iterator[None]:
    """A session with an actor, four tasks, an object and a placement group."""
    with leak_watch.shared_session(num_cpus=2, log_to_driver=False):
        speaker = Speaker.options(name="speaker").remote()
        skate.get(speaker.say.remote("\x1b[31mfirst\x1b[0m\nsecond"))
        skate.get([square.remote(x) for x in range(4)])
        kept = skate.put(bytes(1_000_000))
        group = placement_group([{"CPU": 0.1}], name="group")
        skate.get(group.ready())
        yield
        del kept, speaker, group


async def listed(page: Page, path: str) -> dict[str, Any]:
    answer = await page.get(f"/api/v0/{path}")
    assert (answer["result"], answer["msg"]) == (True, "")
    found: dict[str, Any] = answer["data"]["result"]
    assert set(found) == COUNTS
    return found


async def refused(page: Page, path: str, status: int = 400) -> str:
    answer = await page.get(f"/api/v0/{path}", status=status)
    assert answer["result"] is False
    assert answer["data"] == {"result": None}
    return str(answer["msg"])


@pytest.mark.parametrize("table", TABLES)
async def test_every_table_is_listed_in_rays_envelope(page: Page, table: str) -> None:
    found = await listed(page, table)
    assert found["num_filtered"] == found["num_after_truncation"] == found["total"]
    assert isinstance(found["result"], list)
    assert found["result"] or table in ("runtime_envs", "cluster_events")


async def test_details_are_added_on_request(page: Page) -> None:
    (plain,) = (await listed(page, "actors"))["result"]
    (detailed,) = (await listed(page, "actors?detail=True"))["result"]
    assert "required_resources" not in plain
    assert detailed["required_resources"] == {"CPU": 0.1}
    assert plain.items() <= detailed.items()


async def test_filters_and_the_limit_are_counted(page: Page) -> None:
    query = "filter_keys=name&filter_predicates=%3D&filter_values=SQUARE"
    found = await listed(page, f"tasks?{query}&limit=3")
    assert [row["name"] for row in found["result"]] == ["square"] * 3
    assert found["num_filtered"] == 4
    assert found["total"] > 4
    both = f"{query}&filter_keys=state&filter_predicates=!%3D&filter_values=FINISHED"
    assert (await listed(page, f"tasks?{both}"))["result"] == []
    alive = "filter_keys=is_alive&filter_predicates=%3D&filter_values=True"
    assert (await listed(page, f"workers?{alive}"))["num_filtered"] > 0


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("limit=0", "limit must be an integer from 1 to 10000"),
        ("limit=10001", "limit must be"),
        ("limit=many", "limit must be"),
        ("timeout=soon", "timeout must be a number"),
        ("timeout=-1", "timeout must be a positive number"),
        ("timeout=nan", "timeout must be a positive number"),
        ("detail=perhaps", "detail must be true or false"),
        ("exclude_driver=2", "exclude_driver must be true or false"),
        ("filter_keys=name", "1 filter_keys, 0 filter_predicates and 0 filter_values"),
        (
            "filter_keys=name&filter_predicates=%3C&filter_values=a",
            "operator '<'; '=' and '!=' are supported",
        ),
        ("filter_keys=colour&filter_predicates=%3D&filter_values=a", "Cannot filter by 'colour'"),
        ("filter_keys=worker_pid&filter_predicates=%3D&filter_values=a", "needs an integer"),
    ],
)
async def test_a_bad_parameter_is_explained(page: Page, query: str, says: str) -> None:
    assert says in await refused(page, f"tasks?{query}")


@pytest.mark.parametrize("table", SUMMARIES)
async def test_summaries_have_rays_shape(page: Page, table: str) -> None:
    found = await listed(page, f"{table}/summarize")
    (summary,) = found["result"]["node_id_to_summary"].values()
    assert summary["summary"]
    assert {"summary", "summary_by"} < set(summary)
    assert "summarized by" in await refused(page, f"{table}/summarize?summary_by=colour")


async def test_tasks_are_counted_by_name_and_state(page: Page) -> None:
    query = "filter_keys=name&filter_predicates=%3D&filter_values=square"
    found = await listed(page, f"tasks/summarize?{query}")
    summary = found["result"]["node_id_to_summary"]["cluster"]
    assert summary["summary"]["square"]["state_counts"] == {"FINISHED": 4}
    assert (summary["total_tasks"], found["num_filtered"]) == (4, 4)


# ------------------------------------------------------------ logs


async def speaker(page: Page) -> dict[str, Any]:
    (row,) = (await listed(page, "actors?detail=1"))["result"]
    found: dict[str, Any] = row
    return found


async def test_logs_are_listed_and_read(page: Page) -> None:
    answer = await page.get("/api/v0/logs?glob=worker-*")
    assert set(answer["data"]["result"]) == {"worker_out"}
    actor = await speaker(page)
    response = await page.client.get(f"/api/v0/logs/file?actor_id={actor['actor_id']}&lines=-1")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    assert response.headers["content-disposition"] == 'attachment; filename="file.txt"'
    assert response.text == "\x1b[31mfirst\x1b[0m\nsecond\n"
    query = f"pid={actor['pid']}&node_id={actor['node_id']}"
    assert (await page.client.get(f"/api/v0/logs/file?{query}&lines=1")).text == "second\n"
    plain = await page.client.get(f"/api/v0/logs/file?{query}&filter_ansi_code=True")
    assert plain.text == "first\nsecond\n"


async def test_the_name_of_a_download_cannot_contain_a_header(page: Page) -> None:
    actor = await speaker(page)
    name = "a%22%0d%0aSet-Cookie:%20x=y"
    path = f"/api/v0/logs/file?actor_id={actor['actor_id']}&download_filename={name}"
    response = await page.client.get(path)
    assert response.headers["content-disposition"] == 'attachment; filename="a___Set-Cookie__x_y"'
    assert "set-cookie" not in response.headers


async def test_a_log_is_followed(page: Page) -> None:
    actor = await speaker(page)
    async with page.stream(
        f"/api/v0/logs/stream?actor_id={actor['actor_id']}&lines=1&interval=0.05&filter_ansi_code=1"
    ) as stream:
        assert await stream.text_with("second\n") == "second\n"
        handle = skate.get_actor("speaker")
        await asyncio.to_thread(lambda: skate.get(handle.say.remote("\x1b[1mthird\x1b[0m")))
        assert await stream.text_with("third\n") == "second\nthird\n"
        page.dashboard.end_streams()
        await stream.ended()


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("logs/book?pid=1", 400, "'file' or 'stream', not as 'book'"),
        ("logs/file", 400, "Select one log by one of filename"),
        ("logs/file?pid=1&filename=node.log", 400, "got filename, pid"),
        ("logs/file?pid=one", 400, "pid must be an integer"),
        ("logs/file?filename=node.log&lines=few", 400, "lines must be an integer"),
        ("logs/file?filename=node.log&suffix=log", 400, "suffix must be 'out' or 'err'"),
        ("logs/stream?filename=node.log&interval=0", 400, "interval must be a positive number"),
        ("logs/file?filename=node.log&filter_ansi_code=maybe", 400, "filter_ansi_code must be"),
        ("logs/file?filename=..%2Fsecret", 400, "'../secret' is a path"),
        ("logs/file?filename=..", 404, "There is no log '..'"),
        ("logs/file?filename=%00", 404, "There is no log"),
        ("logs/file?filename=missing.log", 404, "There is no log 'missing.log'"),
        ("logs/file?actor_id=00", 404, "There is no actor 00"),
        ("logs/file?task_id=00", 404, "There is no task 00"),
        ("logs/file?submission_id=..%2F..%2Fx", 404, "There is no log"),
        ("logs/file?pid=1", 404, "There is no process 1"),
        ("logs?node_id=00", 404, "There is no node with the id 00"),
        ("logs?node_ip=10.0.0.1", 404, "There is no node with the address 10.0.0.1"),
        ("logs?node_id=00&node_ip=127.0.0.1", 400, "node_id or node_ip, not both"),
    ],
)
async def test_a_bad_query_for_logs_is_explained(page: Page, path: str, status: int, says: str) -> None:
    assert says in await refused(page, path, status)


# ------------------------------------------------------------ who may ask


async def test_nothing_is_answered_without_the_token_or_to_another_host(page: Page) -> None:
    stranger = client_of(page.dashboard.app)
    forged = client_of(page.dashboard.app, Authorization=f"Bearer {TOKEN}", Host=f"evil.example:{PORT}")
    wrong = client_of(page.dashboard.app, Authorization="Bearer wrong")
    for path in ("/api/v0/tasks", "/api/v0/tasks/summarize", "/api/v0/logs", "/api/v0/logs/file"):
        assert (await stranger.get(path)).status_code == 401
        assert (await wrong.get(path)).status_code == 401
        assert (await forged.get(path)).status_code == 403


@pytest.mark.parametrize("path", ["/api/v0/colours", "/api/v1/x", "/api/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_unknown_path_is_answered_in_json(page: Page, path: str, method: str) -> None:
    response = await page.client.request(method, path)
    assert response.status_code == 404
    assert response.json()["msg"] == f"There is no {path}."


async def test_another_method_is_answered_in_json(page: Page) -> None:
    response = await page.client.post("/api/v0/tasks")
    assert response.status_code == 405
    assert response.json()["msg"] == "/api/v0/tasks does not accept POST."


# ------------------------------------------------------------ a real server


@pytest.fixture
def server(cli: Cli, node: nodes.NodeRecord) -> Iterator[Client]:
    with running("--port", "0") as (client, _):
        yield client


def test_a_node_that_has_died_is_an_error_in_the_envelope(server: Client) -> None:
    assert server.get("/api/v0/nodes")["result"] is True
    nodes.stop()
    answer = server.get("/api/v0/nodes")
    assert (answer["result"], answer["data"]) == (False, {"result": None})
    assert "node" in answer["msg"]


RAY = """
import dataclasses, json, sys
from ray.util.state.api import StateApiClient
from ray.util.state.common import (
    DEFAULT_LIMIT, GetApiOptions, ListApiOptions, StateResource, SummaryApiOptions, SummaryResource
)
from ray.util.state.exception import RayStateApiException

client = StateApiClient(sys.argv[1], headers=json.loads(sys.argv[2]))
columns = {
    table.value: [
        sorted(row if isinstance(row, dict) else row.columns() if hasattr(row, "columns") else row.model_dump())
        for row in client.list(table, ListApiOptions(detail=detail), True)
    ]
    for table in StateResource
    for detail in (False, True)
}
named = [("name", "=", "main"), ("type", "=", "NORMAL_TASK")]
actor = client.list(StateResource.ACTORS, ListApiOptions(filters=[("state", "=", "ALIVE")]), True)[0]
try:
    client.list(StateResource.ACTORS, ListApiOptions(filters=[("colour", "=", "red")]), True)
except RayStateApiException as error:
    refused = str(error)
print(json.dumps({
    "rows": {name: len(found) for name, found in columns.items()},
    "actor": client.get(StateResource.ACTORS, actor.actor_id, GetApiOptions()).class_name,
    "nothing": client.get(StateResource.ACTORS, "00", GetApiOptions()),
    "summaries": {
        table.value: sorted(client.summary(table, options=SummaryApiOptions(), raise_on_missing_output=True)["cluster"])
        for table in SummaryResource
    },
    "refused": refused,
}))
"""


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_rays_own_client_reads_the_state_of_a_node(server: Client, node: nodes.NodeRecord) -> None:
    skate.init(node.folder)
    actor = Speaker.remote()
    skate.get(actor.say.remote("hello"))
    kept = skate.put(bytes(1_000_000))
    done = subprocess.run(
        [sys.executable, "-c", RAY, server.base, json.dumps(server.headers)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["rows"]) == set(TABLES)
    assert all(
        number > 0
        for name, number in found["rows"].items()
        if name not in ("cluster_events", "runtime_envs", "placement_groups")
    )
    assert (found["actor"], found["nothing"]) == ("Speaker", None)
    assert set(found["summaries"]) == set(SUMMARIES)
    assert "Cannot filter by 'colour'" in found["refused"]
    del kept


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_rays_command_line_sends_the_token_of_its_variable(server: Client) -> None:
    token = server.headers["Authorization"].removeprefix("Bearer ")
    command = [sys.executable, "-m", "ray.scripts.scripts", "list", "nodes", "--format", "json"]
    done = subprocess.run(
        [*command, "--address", server.base],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token},
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["state"], row["is_head_node"]) == ("ALIVE", True)
