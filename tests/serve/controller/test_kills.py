"""Kills of the controller at the worst moments: no request fails, and the new controller completes what was begun."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import skate
import skate.util
from skate import serve
from skate.exceptions import RayActorError
from skate.serve._controller.client import connect
from skate.serve._runtime.ids import NAMESPACE, REPLICA_PREFIX
from skate.serve.config import DeploymentActorConfig
from skate.serve.schema import ApplicationStatus, ServeDeploySchema
from skate.util.placement_group import placement_group_table
from tests.serve.conftest import LIGHT, light
from tests.serve.load import Load
from tests.serve.waiting import until

pytestmark = pytest.mark.usefixtures("engine")


class Gate:
    """A place where code of any process waits until the test opens it; counts who has come."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        os.makedirs(folder, exist_ok=True)

    def enter(self) -> None:
        path = os.path.join(self.folder, f"came-{os.getpid()}-{time.monotonic_ns()}")
        open(path, "x").close()
        while not os.path.exists(os.path.join(self.folder, "open")):
            time.sleep(0.01)  # nobody tells when a file comes to exist

    @property
    def came(self) -> int:
        return sum(name.startswith("came-") for name in os.listdir(self.folder))

    def open(self) -> None:
        open(os.path.join(self.folder, "open"), "x").close()


@light
class Mortal:
    def __init__(self, version: str = "1", gate: Gate | None = None, fails: bool = False) -> None:
        self.version = version
        if gate is not None:
            gate.enter()
        if fails:
            raise RuntimeError("this version does not start")

    async def __call__(self) -> str:
        await asyncio.sleep(0.002)
        return self.version

    async def pid(self) -> int:
        return os.getpid()


def controller() -> Any:
    client = connect()
    assert client is not None
    return client.actor


def kill_controller() -> None:
    os.kill(skate.get(controller().get_pid.remote()), signal.SIGKILL)


def process_of(handle: Any) -> int:
    """Return the process of a replica; one that was asked in the moment of its death is not meant."""
    while True:
        try:
            pid: int = handle.pid.remote().result(timeout_s=60)
        except RayActorError:
            continue
        return pid


def overview(deployment: str = "Mortal", app: str = "default") -> Any:
    return serve.status().applications[app].deployments[deployment]


def replicas(deployment: str = "Mortal", app: str = "default") -> set[str]:
    client = connect()
    assert client is not None
    found = client.details().applications[app].deployments[deployment].replicas
    return {each.replica_id for each in found if each.state == "RUNNING"}


def serving_actors() -> set[str]:
    rows = skate.util.list_named_actors(all_namespaces=True)
    return {row["name"] for row in rows if isinstance(row, dict) and row["namespace"] == NAMESPACE}


def text(url: str) -> str:
    with urlopen(url, timeout=60) as response:
        found: str = response.read().decode()
    return found


def test_another_controller_goes_on_with_the_replicas_and_the_proxy_that_there_are(
    run: Callable[..., Any], url: str
) -> None:
    handle = run(Mortal.options(num_replicas=2).bind())
    before, actors = replicas(), serving_actors()
    kill_controller()
    assert serve.status().applications["default"].status is ApplicationStatus.RUNNING
    assert replicas() == before
    assert serving_actors() == actors
    assert handle.remote().result(timeout_s=60) == text(url) == "1"


def test_a_replica_that_dies_afterwards_is_replaced(run: Callable[..., Any]) -> None:
    handle = run(Mortal.bind())
    kill_controller()
    pid = handle.pid.remote().result(timeout_s=60)
    os.kill(pid, signal.SIGKILL)
    assert process_of(handle) != pid


def test_a_replica_that_dies_with_the_controller_is_replaced(run: Callable[..., Any]) -> None:
    handle = run(Mortal.bind())
    pid = handle.pid.remote().result()
    kill_controller()
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(replicas()) == 1 and process_of(handle) != pid)


def test_a_proxy_that_dies_with_the_controller_listens_again_where_it_did(
    run: Callable[..., Any], url: str
) -> None:
    run(Mortal.bind())
    proxy = skate.get(controller().start_proxy.remote())["pid"]
    kill_controller()
    os.kill(proxy, signal.SIGKILL)

    def answers() -> bool:
        try:
            return text(url) == "1"
        except OSError:
            return False

    until(answers)
    assert skate.get(controller().start_proxy.remote())["pid"] != proxy


def test_no_request_fails_while_the_controller_is_gone(run: Callable[..., Any], url: str) -> None:
    run(Mortal.options(num_replicas=2).bind())
    with Load(url) as load:
        for _ in range(3):
            load.wait_for_more(10)
            kill_controller()
            load.wait_for_more(10)
        serve.status()
        load.wait_for_more(30)
    assert load.failures == []


def test_what_is_deployed_while_it_is_gone_runs_and_has_its_route(run: Callable[..., Any], url: str) -> None:
    run(Mortal.bind())
    kill_controller()
    run(Mortal.bind("2"), name="other", route_prefix="/other")
    assert text(f"{url}/other") == "2"
    kill_controller()
    serve.delete("other")
    assert set(serve.status().applications) == {"default"}


def test_an_update_goes_on_with_the_replica_that_was_being_started(
    run: Callable[..., Any], url: str, tmp_path: Path
) -> None:
    run(Mortal.options(num_replicas=2).bind("1"))
    gate = Gate(tmp_path)
    with Load(url) as load, ThreadPoolExecutor(1) as threads:
        updating = threads.submit(run, Mortal.options(num_replicas=2).bind("2", gate))
        until(lambda: gate.came == 1)
        kill_controller()
        serve.status()
        load.wait_for_more(10)
        assert gate.came == 1  # it is the same one that is waited for
        gate.open()
        updating.result(timeout=60)
        load.wait_for("2", 10)
        before = load.answers["1"]
        load.wait_for_more(20)
        assert load.answers["1"] <= before + 4  # those that were under way
    assert load.failures == []
    assert gate.came == 2


def test_an_update_that_fails_afterwards_is_taken_back(
    run: Callable[..., Any], url: str, tmp_path: Path
) -> None:
    run(Mortal.bind("1"))
    gate = Gate(tmp_path)
    with Load(url) as load, ThreadPoolExecutor(1) as threads:
        updating = threads.submit(run, Mortal.bind("2", gate, fails=True))
        until(lambda: gate.came == 1)
        kill_controller()
        gate.open()
        with pytest.raises(RuntimeError, match="does not start"):
            updating.result(timeout=60)
        load.wait_for_more(10)
    assert load.failures == []
    assert set(load.answers) == {"1"}


def test_a_delete_goes_on(run: Callable[..., Any], tmp_path: Path) -> None:
    @light
    class Slow:
        def __call__(self, gate: Gate) -> str:
            gate.enter()
            return "done"

    gate = Gate(tmp_path)
    response = run(Slow.bind()).remote(gate)
    until(lambda: gate.came == 1)
    with ThreadPoolExecutor(1) as threads:
        deleting = threads.submit(serve.delete, "default")
        until(lambda: serve.status().applications["default"].status is ApplicationStatus.DELETING)
        kill_controller()
        assert serve.status().applications["default"].status is ApplicationStatus.DELETING
        gate.open()
        deleting.result(timeout=60)
    assert response.result(timeout_s=60) == "done"
    assert serve.status().applications == {}
    assert not any(name.startswith(REPLICA_PREFIX) for name in serving_actors())


def test_scaling_goes_on(run: Callable[..., Any], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    threads = ThreadPoolExecutor(1)
    with threads:
        deployed = threads.submit(run, Mortal.bind("1", gate), external_scaler_enabled=True)
        until(lambda: gate.came == 1)
        client = connect()
        assert client is not None
        client.scale("default", "Mortal", 3)
        until(lambda: gate.came == 3)
        kill_controller()
        assert overview().replica_states == {"STARTING": 3}
        gate.open()
        deployed.result(timeout=60)
    assert overview().replica_states == {"RUNNING": 3}
    assert gate.came == 3
    client.scale("default", "Mortal", 1)
    kill_controller()
    until(lambda: overview().replica_states == {"RUNNING": 1})


def test_a_number_that_the_load_asked_for_is_kept(run: Callable[..., Any], tmp_path: Path) -> None:
    @light(
        max_ongoing_requests=1,
        autoscaling_config={
            "min_replicas": 0,
            "max_replicas": 2,
            "target_ongoing_requests": 1,
            "upscale_delay_s": 0.0,
            "downscale_delay_s": 0.0,
            "metrics_interval_s": 0.05,
            "look_back_period_s": 0.1,
        },
    )
    class Busy:
        def __call__(self, gate: Gate) -> str:
            gate.enter()
            return "done"

    gate = Gate(tmp_path)
    handle = run(Busy.bind())
    responses = [handle.remote(gate) for _ in range(2)]
    until(lambda: gate.came == 2)
    before = replicas("Busy")
    kill_controller()
    last = handle.remote(
        gate
    )  # its load is told to the new controller, which knows nothing of the others before
    assert replicas("Busy") == before
    gate.open()
    assert [each.result(timeout_s=60) for each in (*responses, last)] == ["done"] * 3
    until(lambda: not replicas("Busy"))


def test_a_change_of_user_config_reaches_all_replicas(run: Callable[..., Any], tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    (tmp_path / "configured_app.py").write_text(
        "from skate import serve\n"
        "from tests.serve.controller.test_kills import Gate\n"
        f"gate = Gate({gate.folder!r})\n"
        f"@serve.deployment(num_replicas=2, ray_actor_options={LIGHT!r})\n"
        "class Configured:\n"
        "    def reconfigure(self, config):\n"
        "        self.value = config['value']\n"
        "        if self.value == 2:\n"
        "            gate.enter()\n"
        "    def __call__(self) -> int:\n"
        "        return self.value\n"
        "app = Configured.bind()\n"
    )

    def file(value: int) -> ServeDeploySchema:
        deployment = {"name": "Configured", "user_config": {"value": value}}
        app = {"name": "configured", "import_path": "configured_app:app", "deployments": [deployment]}
        return ServeDeploySchema.model_validate({"applications": [app]})

    client = connect()
    assert client is not None
    client.deploy_config(file(1), folder=str(tmp_path), wait=True)
    before = replicas("Configured", "configured")
    client.deploy_config(file(2), folder=str(tmp_path))
    until(lambda: gate.came >= 1)
    kill_controller()
    gate.open()
    assert client.wait("configured") is None
    assert replicas("Configured", "configured") == before
    handle = serve.get_app_handle("configured")
    assert {handle.remote().result(timeout_s=60) for _ in range(20)} == {2}


def test_actors_that_replicas_share_stay(run: Callable[..., Any]) -> None:
    @skate.remote(num_cpus=0)
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self) -> int:
            self.count += 1
            return self.count

    @light(deployment_actors=[DeploymentActorConfig(name="counter", actor_class=Counter)])
    class Counts:
        async def __call__(self) -> int:
            number: int = await serve.get_deployment_actor("counter").add.remote()
            return number

    handle = run(Counts.bind())
    assert handle.remote().result() == 1
    kill_controller()
    assert serve.status().applications["default"].status is ApplicationStatus.RUNNING
    assert handle.remote().result(timeout_s=60) == 2
    serve.delete("default")
    assert not any("counter" in name for name in serving_actors())


def test_resources_of_a_replica_are_given_back_afterwards(run: Callable[..., Any]) -> None:
    def groups() -> list[str]:
        rows = placement_group_table().values()
        return [row["name"] for row in rows if row["state"] != "REMOVED" and "Grouped" in row["name"]]

    handle = run(
        Mortal.options(
            name="Grouped", ray_actor_options={"num_cpus": 0}, placement_group_bundles=[{"CPU": 0.1}]
        ).bind()
    )
    assert len(groups()) == 1
    kill_controller()
    assert handle.remote().result(timeout_s=60) == "1"
    serve.delete("default")
    until(lambda: not groups())


def test_what_belongs_to_nothing_is_ended(run: Callable[..., Any]) -> None:
    @skate.remote(num_cpus=0)
    class Left:
        def ready(self) -> bool:
            return True

    run(Mortal.bind())
    name = f"{REPLICA_PREFIX}default#Mortal#left"
    left = Left.options(name=name, namespace=NAMESPACE, lifetime="detached").remote()
    assert skate.get(left.ready.remote())
    kill_controller()
    until(lambda: name not in serving_actors())
    assert len(replicas()) == 1


def test_an_application_of_a_file_is_built_after_all(
    run: Callable[..., Any], url: str, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    (tmp_path / "declared_app.py").write_text(
        "import os, time\n"
        "from skate import serve\n"
        f"open(os.path.join({gate.folder!r}, f'came-{{os.getpid()}}'), 'x').close()\n"
        f"while not os.path.exists(os.path.join({gate.folder!r}, 'open')):\n"
        "    time.sleep(0.01)\n"
        f"@serve.deployment(ray_actor_options={LIGHT!r})\n"
        "def answer(request) -> str:\n"
        "    return 'built'\n"
        "app = answer.bind()\n"
    )
    file = ServeDeploySchema.model_validate(
        {"applications": [{"name": "declared", "route_prefix": "/d", "import_path": "declared_app:app"}]}
    )
    client = connect()
    assert client is not None
    client.deploy_config(file, folder=str(tmp_path))
    until(lambda: gate.came == 1)
    kill_controller()
    assert serve.status().applications["declared"].status is ApplicationStatus.DEPLOYING
    gate.open()
    assert client.wait("declared") is None
    assert text(f"{url}/d") == "built"


def test_more_kills_than_a_replica_has_threads(run: Callable[..., Any]) -> None:
    handle = run(Mortal.options(health_check_period_s=0.1).bind())
    pid = handle.pid.remote().result()
    for _ in range(20):
        kill_controller()
        serve.status()
    assert handle.pid.remote().result(timeout_s=60) == pid
    os.kill(pid, signal.SIGKILL)
    assert process_of(handle) != pid


def test_shutdown_after_a_kill_ends_all_of_it(run: Callable[..., Any]) -> None:
    run(Mortal.options(num_replicas=2).bind())
    waiting = threading.Thread(target=connect().wait_for_shutdown)  # type: ignore[union-attr]  # it runs
    waiting.start()
    kill_controller()
    serve.shutdown()
    waiting.join(60)
    assert not waiting.is_alive()
    until(lambda: not serving_actors(), serving_actors)
    assert serve.status().applications == {}
    serve.start(http_options={"port": 0})
    assert serve.status().applications == {}


def test_several_may_shut_it_down_at_once(run: Callable[..., Any]) -> None:
    run(Mortal.bind())
    clients = [connect() for _ in range(4)]
    with ThreadPoolExecutor(len(clients)) as threads:
        for ending in [threads.submit(client.shutdown) for client in clients if client is not None]:
            ending.result(timeout=60)
    until(lambda: not serving_actors(), serving_actors)
    serve.start(http_options={"port": 0})
    assert serve.status().applications == {}
