"""The dashboard of a Ray cluster: what Ray's state API reports, and where the rest is."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import pytest

import skate
from skate._api import observer
from skate.util.state import StateApiClient
from skate.util.state.common import ListApiOptions, StateResource, SummaryResource
from skate.util.state.exception import InvalidQueryError
from tests.contract.support import eventually
from tests.dashboard.support import Page, dashboard
from tests.plugins.ray_clusters import Clusters, free_port


@pytest.fixture(scope="module")
def address(clusters: Clusters) -> str:
    """A cluster with Ray's own dashboard, which Ray Client can reach, and whose workers find the tests."""
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        clusters.address({"num_cpus": 2, "ray_client_server_port": port, "include_dashboard": True})
    eventually(lambda: _is_listening(port))  # the server of Ray Client starts last
    return f"ray://127.0.0.1:{port}"


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@skate.remote
def square(x: int) -> int:
    return x * x


@skate.remote(num_cpus=100)
def oversized() -> None: ...


@skate.remote
class Counter:
    def add(self) -> int:
        return 1


async def test_the_pages_show_what_ray_reports(address: str) -> None:
    skate.init(address, preflight="off")
    counter = Counter.options(name="a/b.c").remote()
    assert skate.get([square.remote(3), counter.add.remote()]) == [9, 1]
    waits = oversized.remote()
    async with dashboard() as page:
        session = await page.get("/state/session")
        assert (session["engine"], session["address"], session["started"]) == ("ray", address, None)
        assert session["ray_dashboard"].startswith("http://127.0.0.1:")
        overview = await page.eventually(
            "/state/overview",
            lambda data: data["waiting"] and data["tasks"].get("FINISHED") and data["actors"].get("ALIVE"),
        )
        assert overview["object_store"] is None
        (waiting,) = overview["waiting"]
        assert waiting["name"] == "oversized"
        assert "waits for a node with" in (await page.get(f"/state/why/{waiting['id']}"))["lines"][0]
        assert (await page.get("/state/actors/a%2Fb.c"))["class_name"] == "Counter"
        timeline = await page.eventually("/state/timeline", lambda data: data["tracks"])
        pids = [track["pid"] for track in timeline["tracks"]]
        assert len(pids) == len(set(pids))
        await _has_rays_rows(page)
        await asyncio.to_thread(_is_read_from_rays_dashboard, session["ray_dashboard"])
        await _is_elsewhere(page)
    skate.cancel(waits)


async def _has_rays_rows(page: Page) -> None:
    """Check the state API over HTTP, and the health checks."""
    (actor,) = (await page.get("/api/v0/actors?detail=1"))["data"]["result"]["result"]
    assert (actor["class_name"], actor["name"], actor["state"]) == ("Counter", "a/b.c", "ALIVE")
    (node,) = (await page.get("/api/v0/nodes"))["data"]["result"]["result"]
    assert node["state"] == "ALIVE"
    query = "filter_keys=name&filter_predicates=%3D&filter_values=square"
    assert (await page.get(f"/api/v0/tasks?{query}"))["data"]["result"]["num_filtered"] == 1
    summary = (await page.get("/api/v0/tasks/summarize"))["data"]["result"]["result"]["node_id_to_summary"]
    assert summary["cluster"]["summary"]["square"]["state_counts"] == {"FINISHED": 1}
    assert (await page.client.get("/api/healthz")).status_code == 200


def _is_read_from_rays_dashboard(url: str) -> None:
    """Check that the state API takes the URL of Ray's own dashboard."""
    client = StateApiClient(url, headers={"Authorization": "Bearer none"})
    assert client.get_address() == url
    (actor,) = client.list(StateResource.ACTORS, ListApiOptions(detail=True))
    assert (actor.class_name, actor.name) == ("Counter", "a/b.c")
    assert client.get(StateResource.ACTORS, actor.actor_id).state == "ALIVE"
    assert client.list(StateResource.JOBS, ListApiOptions())[0].status == "RUNNING"
    counts = client.summary(SummaryResource.TASKS)["cluster"]["summary"]["square"]["state_counts"]
    assert counts == {"FINISHED": 1}
    with pytest.raises(InvalidQueryError, match="colour"):
        client.list(StateResource.ACTORS, ListApiOptions(filters=[("colour", "=", "red")]))


async def _is_elsewhere(page: Page) -> None:
    for path in (
        "/state/logs",
        "/state/runs",
        "/state/serve",
        "/state/memory",
        "/api/jobs/",
        "/api/v0/logs",
        "/api/v0/cluster_events",
        "/api/serve/applications/",
        "/nodes?view=summary",
        "/logical/actors",
        "/api/cluster_status",
    ):
        response = await page.client.get(path)
        assert (response.status_code, "Ray's own dashboard" in response.text) == (404, True), path
    assert "ray.kill()" in (await page.post("/actions/actors/a%2Fb.c/kill", status=404))["detail"]
    assert "ray.cancel()" in (await page.post("/actions/tasks/00/cancel", status=404))["detail"]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ray://", "write ray://HOST:PORT"),
        ("ray://127.0.0.1:1", "No Ray cluster answers at"),
        ("10.0.0.7:6379", "the form 'ray://host:port'"),
    ],
)
def test_an_address_that_is_no_cluster_says_what_to_write(address: str, says: str) -> None:
    with pytest.raises(ConnectionError, match=says):
        observer.attach(address)
