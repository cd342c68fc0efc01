"""Starting Serve: options, actors, and errors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.requests import Request

import skate
from skate import serve
from skate.serve._controller.client import connect
from skate.serve.exceptions import ListenError
from skate.util.state import list_actors
from tests.serve.conftest import LIGHT, light
from tests.serve.waiting import until


@pytest.fixture
def start(engine: str) -> Iterator[Callable[..., str]]:
    """Start Serve with options on a free port, and return where it is; it is shut down after the test."""

    def go(*, http_options: dict[str, Any] | None = None, **options: Any) -> str:
        serve.start(http_options={"port": 0, **(http_options or {})}, **options)
        host, port = serve.address()
        return f"http://{host}:{port}"

    yield go
    serve.shutdown()


def text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: str = answer.read().decode()
    return found


@light
def whereabouts(request: Request) -> list[str]:
    return [request.url.path, request.scope["root_path"]]


@pytest.mark.parametrize("sent", ["/serve/app/x", "/app/x"], ids=["left in the path", "taken off"])
def test_a_root_path_is_part_of_every_address(start: Callable[..., str], sent: str) -> None:
    url = start(http_options={"root_path": "/serve"})
    serve.run(whereabouts.bind(), route_prefix="/app")
    assert json.loads(text(url + sent)) == ["/serve/app/x", "/serve/app"]
    assert json.loads(text(f"{url}/serve/-/routes")) == {"/app": "default"}


def test_the_proxy_knows_of_an_application_when_serve_run_returns(start: Callable[..., str]) -> None:
    url = start()
    for number in range(3):
        serve.run(whereabouts.bind(), name=f"app{number}", route_prefix=f"/{number}")
        assert json.loads(text(f"{url}/{number}")) == [f"/{number}", f"/{number}"]
    serve.delete("app0")
    assert json.loads(text(f"{url}/-/routes")) == {"/1": "app1", "/2": "app2"}


def test_actors_of_serve_are_listed_under_names_that_say_what_they_are(start: Callable[..., str]) -> None:
    start()
    serve.run(whereabouts.bind(), name="app")
    rows = list_actors(filters=[("ray_namespace", "=", "serve"), ("state", "=", "ALIVE")])
    assert {row.class_name for row in rows} == {
        "ServeController",
        "ProxyActor",
        "ServeReplica:app:whereabouts",
    }


def test_the_controller_gets_the_environment_that_it_is_given(start: Callable[..., str]) -> None:
    start(controller_options={"runtime_env": {"env_vars": {"SKATE_TEST_OF_CONTROLLER": "here"}}})
    client = connect()
    assert client is not None
    read = client.actor.__ray_call__.remote(lambda _: os.environ.get("SKATE_TEST_OF_CONTROLLER"))
    assert skate.get(read) == "here"


def test_the_controller_takes_no_other_surroundings(engine: str) -> None:
    with pytest.raises(ValueError, match=r"only supports \['env_vars'\], got \['pip'\]"):
        serve.start(controller_options={"runtime_env": {"pip": ["numpy"]}})
    assert connect() is None


def test_an_address_that_cannot_be_had_is_an_error_that_leaves_nothing(engine: str) -> None:
    with pytest.raises(ListenError, match=r"cannot listen on 203\.0\.113\.1:0"):
        serve.start(http_options={"host": "203.0.113.1", "port": 0})
    assert connect() is None


def test_a_port_in_use_is_told_at_once_also_when_a_replica_takes_long_to_start(engine: str) -> None:
    @serve.deployment(ray_actor_options=LIGHT)
    class Endless:
        def __init__(self) -> None:
            threading.Event().wait()

    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ListenError, match=f"the port is in use by process {os.getpid()}"),
    ):
        serve.run(Endless.bind(), port=other.getsockname()[1])
    assert connect() is None
    assert list_actors(filters=[("state", "=", "ALIVE"), ("ray_namespace", "=", "serve")]) == []


def test_a_replica_tells_which_deployments_it_has_handles_to(start: Callable[..., str]) -> None:
    start()

    @serve.deployment(ray_actor_options=LIGHT)
    class Holder:
        def __init__(self, given: dict[str, list[Any]]) -> None:
            self.given = given

        def __call__(self) -> None:
            serve.get_app_handle("other")

    def held() -> list[str]:
        (name,) = [row.name for row in list_actors(filters=[("class_name", "=", "ServeReplica:app:Holder")])]
        replica = skate.get_actor(name, "serve")
        return [f"{id.app_name}.{id.name}" for id in skate.get(replica.list_outbound_deployments.remote())]

    serve.run(whereabouts.bind(), name="other", route_prefix="/other")
    handle = serve.run(Holder.bind({"all": [whereabouts.bind()]}), name="app")
    assert held() == ["app.whereabouts"]
    handle.remote().result()
    assert held() == ["app.whereabouts", "other.whereabouts"]


def test_a_program_that_blocks_serves_until_ctrl_c() -> None:
    code = """
import threading, types
import skate
from skate import serve
from skate.serve import api

class Noted(threading.Event):
    def wait(self, timeout=None):
        print("blocks", flush=True)
        return super().wait(timeout)

api.threading = types.SimpleNamespace(Event=Noted)

@serve.deployment
def hello() -> str:
    return "hello"

skate.init(num_cpus=1)
serve.start(http_options={"port": 0})
print(*serve.address(), flush=True)
serve.run(hello.bind(), blocking=True)
print("over")
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        host, port = program.stdout.readline().split()

        def answers() -> bool:
            with contextlib.suppress(urllib.error.HTTPError):
                return text(f"http://{host}:{port}/") == "hello"
            return False  # not deployed yet

        until(answers)
        assert program.stdout.readline() == "blocks\n"  # it is not deploying any more
        assert program.poll() is None
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
    assert (program.returncode, out) == (0, "over\n"), err
    assert "shutting down" in err


def test_a_program_shows_what_its_replicas_print_and_nothing_of_clients_that_leave() -> None:
    code = """
import asyncio, urllib.request
import skate
from skate import serve
from starlette.responses import StreamingResponse

@serve.deployment
class Hello:
    def __init__(self) -> None:
        print("printed by the constructor")

        self.has_left = asyncio.Event()

    async def __call__(self, request):
        print("printed by a request")
        return StreamingResponse(self.parts())

    async def parts(self):
        try:
            yield "hello"
            await asyncio.Event().wait()
        finally:
            self.has_left.set()

    async def wait(self):
        await self.has_left.wait()

skate.init(num_cpus=1)
serve.start(http_options={"port": 0})
handle = serve.run(Hello.bind())
with urllib.request.urlopen("http://%s:%d/" % serve.address()) as answer:
    print(answer.read(5).decode())
handle.wait.remote().result()
"""
    program = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (program.returncode, program.stderr) == (0, "")
    for words in ("printed by the constructor", "printed by a request", "hello"):
        assert words in program.stdout
