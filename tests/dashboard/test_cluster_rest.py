"""Nodes, actors and the status over HTTP under Ray's names, and health checks."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import skate
from skate._api import nodes, observer
from skate.util.state import list_workers
from tests.conftest import LeakWatch
from tests.dashboard.processes import running
from tests.dashboard.support import PORT, TOKEN, Page, client_of
from tests.plugins.command_line import Cli


@skate.remote(num_cpus=0.5)
class Counter:
    def pid(self) -> int:
        return os.getpid()


@skate.remote(num_cpus=0)
class Failing:
    def __init__(self) -> None:
        raise ValueError("on purpose")


@pytest.fixture(scope="module")
def pids(leak_watch: LeakWatch) -> Iterator[list[int]]:
    """A session with an actor, and the pid of its process."""
    with leak_watch.shared_session(num_cpus=2, log_to_driver=False):
        counter = Counter.options(name="counter").remote()
        yield [skate.get(counter.pid.remote())]


@pytest.fixture
def session(pids: list[int]) -> None:
    """The session of the page."""


async def data(page: Page, path: str) -> dict[str, Any]:
    answer = await page.get(path)
    assert answer["result"] is True
    found: dict[str, Any] = answer["data"]
    return found


async def test_nodes_are_summarized(page: Page) -> None:
    found = await data(page, "/nodes?view=summary")
    (node,) = found["summary"]
    assert {
        "now", "hostname", "ip", "cpu", "cpus", "mem", "bootTime", "loadAvg", "disk", "gpus", "tpus", "raylet"
    } <= set(node)  # fmt: skip
    raylet = node["raylet"]
    assert (raylet["state"], raylet["isHeadNode"], raylet["nodeManagerHostname"]) == (
        "ALIVE",
        True,
        socket.gethostname(),
    )
    assert raylet["nodeId"] == skate.nodes()[0]["NodeID"]
    assert raylet["resourcesTotal"]["CPU"] == 2
    assert raylet["resourcesTotal"]["objectStoreMemory"] == raylet["objectStoreAvailableMemory"]
    assert abs(raylet["startTimeMs"] / 1000 - time.time()) < 3600
    total, available, percent, used = node["mem"]
    assert (available + used, 0 < percent < 100) == (total, True)
    assert "0.5/2 CPU" in found["nodeLogicalResources"][raylet["nodeId"]]
    assert await data(page, "/nodes?view=hostNameList") == {"hostNameList": [socket.gethostname()]}


async def test_a_node_has_its_actors_and_workers(page: Page, pids: list[int]) -> None:
    id = skate.nodes()[0]["NodeID"]
    detail = (await data(page, f"/nodes/{id}"))["detail"]
    assert detail["raylet"]["nodeId"] == id
    assert [actor["className"] for actor in detail["actors"].values()] == ["Counter"]
    workers = {worker["pid"]: worker for worker in detail["workers"]}
    assert {*pids, os.getpid()} <= set(workers)
    assert workers[pids[0]]["memoryInfo"]["rss"] > 0


async def test_actors_have_rays_fields(page: Page, pids: list[int]) -> None:
    actors = (await data(page, "/logical/actors"))["actors"]
    (id,) = [id for id, actor in actors.items() if actor["name"] == "counter"]
    actor = (await data(page, f"/logical/actors/{id}"))["detail"]
    assert (actor["actorId"], actor["pid"], actor["state"]) == (id, pids[0], "ALIVE")
    assert (actor["actorClass"], actor["numRestarts"], actor["exitDetail"]) == ("Counter", "0", "-")
    assert actor["address"]["workerId"] in [row.worker_id for row in list_workers()]
    assert actor["requiredResources"] == {"CPU": 0.5}
    assert abs(actor["startTime"] / 1000 - time.time()) < 3600
    assert actor["endTime"] == 0
    assert actor["processStats"]["pid"] == pids[0]
    selected = (await data(page, f"/logical/actors?ids={id},00"))["actors"]
    assert (selected[id]["name"], selected["00"]) == ("counter", None)


async def test_a_dead_actor_says_why(page: Page) -> None:
    failing = Failing.remote()
    id = failing._actor_id.hex()
    found = await page.eventually(
        f"/logical/actors/{id}", lambda found: found["data"]["detail"]["state"] == "DEAD"
    )
    detail = found["data"]["detail"]
    assert detail["exitDetail"] == "creation failed"
    assert detail["endTime"] >= detail["startTime"] > 0


async def test_the_status_has_usage_and_demands(page: Page) -> None:
    blocking = Counter.options(num_cpus=2).remote()  # waits for the other actor's CPU
    found = await page.eventually(
        "/api/cluster_status",
        lambda found: found["data"]["clusterStatus"]["loadMetricsReport"]["resourceDemand"],
    )
    assert found["data"]["autoscalingError"] is None
    report = found["data"]["clusterStatus"]["loadMetricsReport"]
    assert report["usage"]["CPU"] == [0.5, 2.0]
    assert report["resourceDemand"] == [[{"CPU": 2.0}, 1]]
    assert found["data"]["clusterStatus"]["autoscalerReport"]["failedNodes"] == []
    text = (await data(page, "/api/cluster_status?format=1"))["clusterStatus"]
    assert " 0.5/2 CPU" in text
    assert "{'CPU': 2.0}: 1 waiting" in text
    skate.kill(blocking)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/nodes", 400, "view must be one of summary, hostNameList, got None"),
        ("/nodes?view=colours", 400, "got 'colours'"),
        ("/nodes/00", 404, "There is no node with the id 00"),
        ("/logical/actors/00", 404, "There is no actor with the id 00"),
    ],
)
async def test_unknown_ids_and_views_are_explained(page: Page, path: str, status: int, says: str) -> None:
    answer = await page.get(path, status=status)
    assert (answer["result"], answer["data"]) == (False, {"result": None})
    assert says in answer["msg"]


CHECKS = {
    "/api/gcs_healthz": "success",
    "/api/local_raylet_healthz": "success",
    "/api/healthz": "raylet: success\ngcs: success",
}


@pytest.mark.parametrize("path", CHECKS)
async def test_a_running_node_is_healthy(page: Page, path: str) -> None:
    response = await page.client.get(path)
    assert (response.status_code, response.text) == (200, CHECKS[path])


async def test_the_version_is_that_of_the_jobs_api(page: Page) -> None:
    assert await page.get("/api/ray/version") == await page.get("/api/version")


async def test_all_paths_need_the_token_and_the_host(page: Page) -> None:
    stranger = client_of(page.dashboard.app)
    forged = client_of(page.dashboard.app, Authorization=f"Bearer {TOKEN}", Host=f"evil.example:{PORT}")
    for path in ("/nodes?view=summary", "/nodes/00", "/logical/actors", "/api/cluster_status", *CHECKS):
        assert (await stranger.get(path)).status_code == 401
        assert (await forged.get(path)).status_code == 403


def test_a_node_that_has_died_is_not_healthy(cli: Cli, node: nodes.NodeRecord) -> None:
    with running("--port", "0") as (client, _):

        def ask(path: str) -> httpx.Response:
            return httpx.get(client.base + path, headers=client.headers, timeout=30.0)

        assert ask("/api/healthz").status_code == 200
        nodes.stop()
        for path in CHECKS:
            response = ask(path)
            assert response.status_code == 503
            assert "node" in response.text
        answer = ask("/nodes?view=summary")
        assert (answer.status_code, answer.json()["result"]) == (503, False)


async def test_the_node_and_the_actors_of_a_ray_cluster_are_elsewhere(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer.Observer, "is_local", False)
    paths = (
        "/nodes?view=summary",
        "/logical/actors",
        "/api/cluster_status",
        "/api/v0/logs",
        "/api/v0/cluster_events",
        "/api/serve/applications/",
    )
    for path in paths:
        response = await page.client.get(path)
        assert response.status_code == 404
        assert "Ray's own dashboard" in response.text
    monkeypatch.setattr(observer.Observer, "has_ended", lambda _: False)
    assert (await page.get("/api/v0/nodes"))["data"]["result"]["total"] == 1
