"""Serve under constant load: replicas killed a hundred times, new versions, broken versions, and memory over time."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

import skate
from skate import serve
from skate.serve._controller import connect
from tests.serve.load import Load

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

KILLS = 100
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
            os.kill(some_replica(chooser), signal.SIGKILL)
        load.wait_for_more(200)
    assert load.failures == []


def test_updates_and_broken_updates_fail_no_request(url: str) -> None:
    serve.run(Front.bind(Model.bind("0")))
    with Load(url) as load:
        for version in range(1, 11):
            with pytest.raises(RuntimeError, match="does not start"):
                serve.run(Front.bind(Model.bind("broken")))
            serve.run(Front.bind(Model.bind(str(version))))
            load.wait_for(str(version), 20)
    assert load.failures == []


def test_memory_does_not_grow_under_load(url: str) -> None:
    handle = serve.run(Front.bind(Model.bind("1")))
    client = connect()
    assert client is not None
    processes = [psutil.Process(handle.pid.remote().result())]
    proxy = skate.get(client.actor.start_proxy.remote())
    processes.append(psutil.Process(proxy["pid"]))

    def megabytes() -> list[float]:
        return [process.memory_full_info().pss / 1e6 for process in processes]

    with Load(url, clients=8) as load:
        load.wait_for_more(5000, timeout=600)
        before = megabytes()
        end = time.monotonic() + SECONDS_OF_LOAD
        while time.monotonic() < end:
            load.wait_for_more(500, timeout=600)
        after = megabytes()
    assert load.failures == []
    assert [now - then < 5 for then, now in zip(before, after, strict=True)] == [True, True], (before, after)
