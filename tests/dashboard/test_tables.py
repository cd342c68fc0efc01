"""The tables, single rows, explanations, the overview and the timeline."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.routing import Route

import skate
from skate.util import placement_group
from tests.contract.support import Signal, eventually
from tests.dashboard.support import Page

pytestmark = pytest.mark.usefixtures("session")


@skate.remote
def double(value: int) -> int:
    return 2 * value


@skate.remote
def fail() -> None:
    raise ValueError("on purpose")


@skate.remote
class Worker:
    def pid(self) -> int:
        return os.getpid()


async def test_the_session_is_described(page: Page) -> None:
    found = await page.get("/state/session")
    assert found["connected"]
    assert found["problem"] is None
    assert found["engine"] == "local"
    assert found["address"] == skate.get_runtime_context().get_session_dir()
    assert found["version"] == skate.__version__
    assert abs(found["started"] - time.time()) < 600
    assert found["pid"] > 0


async def test_the_overview_counts_and_samples(page: Page) -> None:
    skate.get([double.remote(n) for n in range(5)])
    worker = Worker.remote()
    skate.get(worker.pid.remote())
    found = await page.eventually(
        "/state/overview",
        lambda data: data["tasks"].get("FINISHED", 0) >= 7 and data["actors"].get("ALIVE"),
    )
    assert {"name": "CPU", "total": 2.0, "used": 0.0} in found["resources"]
    assert found["workers"] >= 1
    assert found["object_store"]["limit"] > 0
    history = found["history"]
    lengths = {len(history[name]) for name in ("time", "cpu", "memory", "object_store", "running")}
    assert len(lengths) == 1
    assert lengths != {0}
    assert history["memory_limit"] > 0
    assert isinstance(history["gpu"], list)


async def test_tasks_are_filtered_searched_and_limited(page: Page) -> None:
    skate.get([double.options(name=f"number-{n}").remote(n) for n in range(5)])
    failed = fail.remote()
    with pytest.raises(ValueError, match="on purpose"):
        skate.get(failed)
    found = await page.eventually(
        "/state/tasks?filter=state=FAILED", lambda data: any(row["name"] == "fail" for row in data["rows"])
    )
    assert {row["state"] for row in found["rows"]} == {"FAILED"}
    assert found["rows"][0]["error_type"] == "TASK_EXECUTION_EXCEPTION"
    found = await page.get("/state/tasks?search=NUMBER-&limit=2&filter=state!=FAILED")
    assert len(found["rows"]) == 2
    assert found["total"] == 5
    assert found["dropped"] == 0
    assert set(found["rows"][0]) == set(found["columns"])
    row = await page.get(f"/state/tasks/{found['rows'][0]['task_id']}")
    assert row["required_resources"] == {"CPU": 1.0}
    assert [event["state"] for event in row["events"]] == ["PENDING_ARGS_AVAIL", "RUNNING", "FINISHED"]


async def test_calls_of_actors_are_tasks_too(page: Page) -> None:
    worker = Worker.options(name="the worker").remote()
    pid = skate.get(worker.pid.remote())
    found = await page.eventually(
        f"/state/tasks?filter=type=ACTOR_TASK&filter=worker_pid={pid}", lambda data: data["rows"]
    )
    assert found["rows"][0]["name"] == "Worker.pid"
    actors = await page.get("/state/actors?search=the worker")
    (row,) = actors["rows"]
    assert (row["class_name"], row["pid"], row["state"]) == ("Worker", pid, "ALIVE")
    assert (await page.get(f"/state/actors/{row['actor_id']}"))["is_detached"] is False


@pytest.mark.parametrize("name", ["dotted.name", "a/b", "50%", "what?", "v1.5/ü #2"])
async def test_an_actor_is_found_and_killed_by_any_name(page: Page, name: str) -> None:
    worker = Worker.options(name=name).remote()
    skate.get(worker.pid.remote())
    path = quote(name, safe="")
    found = await page.eventually(
        "/state/actors", lambda data: any(row["name"] == name for row in data["rows"])
    )
    (id,) = [row["actor_id"] for row in found["rows"] if row["name"] == name]
    assert (await page.get(f"/state/actors/{path}"))["actor_id"] == id
    async with page.live(f"/state/actors/{path}") as client:
        assert (await client.next())[1]["data"]["actor_id"] == id
    # The page itself, which reads the name from its address.
    response = await page.client.get(f"/actors/{path}")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert await page.post(f"/actions/actors/{path}/kill") == {"killed": id}


@pytest.mark.parametrize(
    "path", ["/favicon.ico", "/assets/none.js", "/assets/a/b", "/assets/..%2f..%2f_app.py"]
)
async def test_a_file_that_is_not_of_the_page_does_not_exist(page: Page, path: str) -> None:
    await page.get(path, status=404)


@pytest.mark.parametrize("table", ["workers", "nodes", "jobs", "placement_groups", "objects"])
async def test_every_table_answers(page: Page, table: str) -> None:
    kept = skate.put(b"x" * 1_000_000)
    group = placement_group([{"CPU": 0.1}], name="small")
    skate.get(group.ready())
    found = await page.eventually(f"/state/{table}", lambda data: data["rows"])
    assert found["total"] >= 1
    key = found["columns"][0] if table != "jobs" else "job_id"
    assert (await page.get(f"/state/{table}/{found['rows'][0][key]}"))[key] == found["rows"][0][key]
    skate.util.remove_placement_group(group)
    del kept


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/state/tasks?filter=stat=x", 400, "Did you mean 'state'?"),
        ("/state/tasks?filter=state", 400, "column=value"),
        ("/state/tasks?limit=0", 400, "limit must be an integer"),
        ("/state/tasks?limit=many", 400, "limit must be an integer"),
        ("/state/tasks/00", 404, "There is no task 00"),
        ("/state/actors/00", 404, "There is no actor 00"),
        ("/state/nothing", 404, "There is no /state/nothing"),
        ("/state/why/zz", 400, "hexadecimal"),
        ("/state/why/00", 400, "not the id of"),
        ("/state/timeline?since=yesterday", 400, "since must be a number"),
    ],
)
async def test_a_wrong_request_is_explained(page: Page, path: str, status: int, says: str) -> None:
    assert says in (await page.get(path, status=status))["detail"]


async def test_what_waits_is_shown_and_explained(page: Page, tmp_path: Path) -> None:
    @skate.remote(num_cpus=2)
    def hold(until: Path) -> None:
        while not until.exists():  # a task that waits for another one would release its CPUs
            time.sleep(0.01)

    holding = hold.remote(tmp_path / "go")
    waiting = double.options(name="patient").remote(1)
    after = double.options(name="dependent").remote(waiting)
    found = await page.eventually("/state/overview", lambda data: len(data["waiting"]) >= 1)
    names = {row["name"]: row for row in found["waiting"]}
    id = names.get("dependent", names.get("patient"))["id"]  # type: ignore[index]
    why = await page.get(f"/state/why/{after.task_id().hex()}")
    assert why["lines"][0].startswith("task dependent waits for its arguments")
    assert any("patient" in line for line in why["lines"])
    assert (await page.get(f"/state/why/{id}"))["id"] == id
    (tmp_path / "go").touch()
    skate.get([holding, after])


async def test_a_waiting_placement_group_is_explained(page: Page) -> None:
    first = placement_group([{"CPU": 2}])
    skate.get(first.ready())
    group = placement_group([{"CPU": 1}], name="later")
    found = await page.eventually("/state/overview", lambda data: data["waiting"])
    (row,) = [row for row in found["waiting"] if row["kind"] == "placement_group"]
    lines = (await page.get(f"/state/why/{row['id']}"))["lines"]
    assert lines[0].startswith("placement group later waits for resources")
    for each in (group, first):
        skate.util.remove_placement_group(each)


async def test_the_timeline_has_a_track_for_each_process(page: Page) -> None:
    start = time.time()
    pids = set(skate.get([Worker.remote().pid.remote() for _ in range(2)]))
    found = await page.eventually(
        f"/state/timeline?since={start}",
        lambda data: pids <= {track["pid"] for track in data["tracks"]},
    )
    tracks = {track["id"]: track for track in found["tracks"]}
    calls = [event for event in found["events"] if event["name"] == "Worker.pid"]
    assert {tracks[event["track"]]["pid"] for event in calls} == pids
    assert {tracks[event["track"]]["title"] for event in calls} <= {"actor Worker", "worker"}
    assert all(start <= event["start"] <= event["end"] <= found["now"] for event in calls)
    assert len((await page.get("/state/timeline?limit=1"))["events"]) == 1


async def test_an_unfinished_task_has_no_end(page: Page) -> None:
    signal = Signal.remote()

    @skate.remote
    def hold(signal: Any) -> None:
        skate.get(signal.wait.remote())

    holding = hold.options(name="unfinished").remote(signal)
    found = await page.eventually(
        "/state/timeline",
        lambda data: any(event["name"] == "unfinished" for event in data["events"]),
    )
    (event,) = [event for event in found["events"] if event["name"] == "unfinished"]
    assert event["end"] is None
    assert event["state"] == "RUNNING"
    skate.get(signal.send.remote())
    skate.get(holding)


async def test_an_actor_is_killed_and_a_task_cancelled(page: Page) -> None:
    worker = Worker.remote()
    skate.get(worker.pid.remote())
    id = worker._actor_id.hex()
    assert (await page.client.get(f"/actions/actors/{id}/kill")).status_code == 404
    assert await page.post(f"/actions/actors/{id}/kill") == {"killed": id}
    with pytest.raises(skate.exceptions.ActorDiedError):
        skate.get(worker.pid.remote())
    refused = await page.post("/actions/actors/00/kill", status=404)
    assert refused["detail"].startswith("No living actor has the name or the id '00'.")

    phoenix = Worker.options(max_restarts=1, max_task_retries=-1).remote()
    before = skate.get(phoenix.pid.remote())
    await page.post(f"/actions/actors/{phoenix._actor_id.hex()}/kill?restart=1")
    eventually(lambda: skate.get(phoenix.pid.remote()) != before)

    signal = Signal.remote()

    @skate.remote
    def hold(signal: Any) -> None:
        skate.get(signal.wait.remote())

    holding = hold.remote(signal)
    eventually(
        lambda: skate.util.state.list_tasks(filters=[("name", "=", "hold"), ("state", "=", "RUNNING")])
    )
    await page.post(f"/actions/tasks/{holding.task_id().hex()}/cancel")
    with pytest.raises(skate.exceptions.TaskCancelledError):
        skate.get(holding)
    await page.post("/actions/tasks/00/cancel", status=400)


# What GET may ask for: each of these only reads.
READING = {
    "/state/{path:path}", "/state/logs/{name:path}/follow", "/live", "/metrics", "/{path:path}", "/api/version",
    "/api/jobs/", "/api/jobs/{id}", "/api/jobs/{id}/logs", "/api/packages/{protocol}/{name}", "/api/ray/version",
    "/api/v0/actors", "/api/v0/jobs", "/api/v0/placement_groups", "/api/v0/nodes", "/api/v0/workers", "/api/v0/tasks",
    "/api/v0/objects", "/api/v0/runtime_envs", "/api/v0/cluster_events", "/api/v0/actors/summarize",
    "/api/v0/tasks/summarize", "/api/v0/objects/summarize", "/api/v0/logs", "/api/v0/logs/{kind}",
    "/api/serve/applications/", "/nodes", "/nodes/{id}", "/logical/actors", "/logical/actors/{id}",
    "/api/cluster_status", "/api/gcs_healthz", "/api/local_raylet_healthz", "/api/healthz", "/api/{path:path}",
}  # fmt: skip


async def test_only_reading_is_done_with_get(page: Page) -> None:
    routes = [each for each in page.dashboard._application().routes if isinstance(each, Route)]  # type: ignore[attr-defined]
    assert {each.path for each in routes if "GET" in (each.methods or ())} == READING
    for each in routes:
        if each.path.startswith("/actions/"):
            assert (await page.client.get(each.path)).status_code == 404


async def test_metrics_of_all_processes_are_exported(page: Page) -> None:
    from skate.util.metrics import Counter

    @skate.remote
    def count() -> None:
        Counter("dashboard_test", "Counted by a worker.").inc(3)

    skate.get(count.remote())
    Counter("dashboard_test", "Counted by a worker.").inc(4)
    response = await page.client.get("/metrics")
    assert "skate_dashboard_test_total 7.0" in response.text
    assert 'skate_tasks{State="FINISHED"} ' in response.text
    assert response.headers["content-type"].startswith("text/plain")


async def test_updates_are_pushed(page: Page) -> None:
    path = "/state/tasks?filter=name=pushed"
    async with page.live(path, "/state/session") as client:
        await client.until(lambda name, data: data["path"] == path and data["data"]["total"] == 0)
        skate.get(double.options(name="pushed").remote(1))
        found = await client.until(lambda name, data: data["path"] == path and data["data"]["total"] == 1)
        assert found["data"]["rows"][0]["state"] == "FINISHED"


async def test_without_serve_there_are_no_applications(page: Page) -> None:
    assert await page.get("/state/serve") == {"applications": [], "proxies": [], "http": None}
    assert await page.get("/state/llm") == {"models": []}
