"""Serve under constant load: replicas and the controller killed, new versions, broken versions, memory over time."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

import skate
import skate.util
from skate import serve
from skate.serve._controller import connect
from skate.serve._runtime.ids import REPLICA_PREFIX
from tests.chaos import attacks
from tests.serve.load import Load

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

KILLS = 100
KILLS_OF_THE_CONTROLLER = 20
SECONDS_OF_LOAD = float(os.environ.get("SKATE_CHAOS_SERVE_SECONDS", "120"))


@serve.deployment(num_replicas=3, ray_actor_options={"num_cpus": 0.1})
class Model:
    def __init__(self, version: str) -> None:
        if version == "broken":
            raise RuntimeError("this version does not start")
        self.version = version

    async def __call__(self) -> str:
        return self.version

    async def pid(self) -> int:
        return os.getpid()


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
class Front:
    def __init__(self, model: serve.handle.DeploymentHandle[str]) -> None:
        self.model = model

    async def __call__(self) -> str:
        return await self.model.remote()

    async def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def url() -> Iterator[str]:
    skate.init(num_cpus=8)
    serve.start(http_options={"port": 0})
    host, port = serve.address()
    yield f"http://{host}:{port}"
    serve.shutdown()
    skate.shutdown()


def some_replica(chooser: random.Random) -> int:
    """Return the process of a replica of either deployment."""
    name = chooser.choice(["Front", "Model"])
    while True:
        try:
            pid: int = serve.get_deployment_handle(name, "default").pid.remote().result(timeout_s=60)
        except skate.exceptions.RayActorError:
            continue  # the one that was asked has just been killed
        return pid


def test_a_hundred_kills_fail_no_request(url: str) -> None:
    chooser = random.Random(0)
    serve.run(Front.bind(Model.bind("1")))
    with Load(url) as load:
        for _ in range(KILLS):
            load.wait_for_more(chooser.randrange(1, 40))
            attacks.kill(some_replica(chooser))
        load.wait_for_more(200)
    assert load.failures == []


def test_kills_of_the_controller_fail_no_request(url: str) -> None:
    """At any moment: while nothing happens, while replicas are replaced, updated, added, and while it comes back."""
    chooser = random.Random(1)
    client = connect()
    assert client is not None
    version = 0
    serve.run(Front.bind(Model.bind("0")))
    with Load(url) as load:
        for _ in range(KILLS_OF_THE_CONTROLLER):
            load.wait_for_more(chooser.randrange(1, 40))
            what = chooser.choice(["nothing", "replica", "update", "application", "again"])
            if what == "replica":
                attacks.kill(some_replica(chooser))
            elif what == "update":
                version += 1
                serve._run(Front.bind(Model.bind(str(version))), _blocking=False)
            elif what == "application":
                serve._run(Model.bind("side"), name="side", route_prefix="/side", _blocking=False)
                serve.delete("side", _blocking=False)
            elif what == "again":
                attacks.kill(skate.get(client.actor.get_pid.remote()))
            threading.Event().wait(chooser.random() * 0.2)  # a moment that nothing marks
            attacks.kill(skate.get(client.actor.get_pid.remote()))
        assert client.wait("default") is None
        load.wait_for(str(version), 20)
        load.wait_for_more(200)
    assert load.failures == []
    serve.delete("side")
    details = client.details().applications
    assert set(details) == {"default"}
    counts = {name: len(each.replicas) for name, each in details["default"].deployments.items()}
    assert counts == {"Front": 2, "Model": 3}
    names = {row["name"] for row in skate.util.list_named_actors(all_namespaces=True)}
    assert sum(name.startswith(REPLICA_PREFIX) for name in names) == 5


def test_updates_and_broken_updates_fail_no_request(url: str) -> None:
    serve.run(Front.bind(Model.bind("0")))
    with Load(url) as load:
        for version in range(1, 11):
            attacks.record()
            with pytest.raises(RuntimeError, match="does not start"):
                serve.run(Front.bind(Model.bind("broken")))
            serve.run(Front.bind(Model.bind(str(version))))
            load.wait_for(str(version), 20)
    assert load.failures == []


def test_memory_does_not_grow_under_load(url: str) -> None:
    handle = serve.run(Front.bind(Model.bind("1")))
    client = connect()
    assert client is not None
    pids = {
        "front": handle.pid.remote().result(),
        "model": serve.get_deployment_handle("Model", "default").pid.remote().result(),
        "proxy": skate.get(client.actor.start_proxy.remote())["pid"],
    }
    processes = {name: psutil.Process(pid) for name, pid in pids.items()}

    def megabytes() -> dict[str, float]:
        # Not the share that is a process's own: pages that it had in common with its template become its own in time.
        return {name: process.memory_info().rss / 1e6 for name, process in processes.items()}

    with Load(url, clients=8) as load:
        load.wait_for_more(5000, timeout=600)
        before = megabytes()
        end = time.monotonic() + SECONDS_OF_LOAD
        while time.monotonic() < end:
            load.wait_for_more(500, timeout=600)
        after = megabytes()
    assert load.failures == []
    growth = {name: round(after[name] - before[name], 1) for name in before}
    print(
        f"{load.answers.total()} requests in {SECONDS_OF_LOAD:.0f} s; MB more than after the first 5,000: {growth}"
    )
    assert max(growth.values()) < 5, (before, after)
