"""User code that blocks the event loop of its replica: finished responses are sent, and the controller gets answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from starlette.requests import Request
from starlette.responses import StreamingResponse

import skate
from skate import serve
from skate.serve._controller.client import connect
from tests.serve.conftest import light
from tests.serve.sockets import RawClient

pytestmark = pytest.mark.usefixtures("engine")

Run = Callable[..., Any]
app = FastAPI()


def block_until(gate: Path) -> None:
    """Block the thread, and with it the loop, until a file exists; not for ever, so that a failed test ends."""
    end = time.monotonic() + 20
    while not gate.exists() and time.monotonic() < end:
        time.sleep(0.01)


@light
@serve.ingress(app)
class Blocking:
    """Yields a part, then blocks until the client reports that it has read the part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def parts(self) -> AsyncIterator[str]:
        for number in range(3):
            yield f"part {number};"
            block_until(self.folder / str(number))

    @app.get("/")
    async def stream(self, request: Request) -> StreamingResponse:
        return StreamingResponse(self.parts())

    @app.websocket("/socket")
    async def talk(self, socket: WebSocket) -> None:
        await socket.accept()
        async for part in self.parts():
            await socket.send_text(part)
        await socket.close()

    async def large(self) -> bytes:
        return bytes(10_000_000)


def test_parts_of_a_response_arrive_as_they_are_made(run: Run, url: str, tmp_path: Path) -> None:
    run(Blocking.bind(tmp_path))
    with RawClient(url) as client:
        client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        for number in range(3):
            assert client.read_until(b";").endswith(b"part %d;" % number)
            assert not (tmp_path / str(number)).exists()
            (tmp_path / str(number)).touch()


def test_messages_of_a_websocket_arrive_as_they_are_made(run: Run, url: str, tmp_path: Path) -> None:
    from websockets.sync.client import connect as open_socket

    run(Blocking.bind(tmp_path))
    with open_socket(url.replace("http", "ws") + "/socket") as client:
        for number in range(3):
            assert client.recv(timeout=10) == f"part {number};"
            (tmp_path / str(number)).touch()


def test_items_of_a_handle_arrive_as_they_are_made(run: Run, tmp_path: Path) -> None:
    handle = run(Blocking.bind(tmp_path))
    for number, part in enumerate(handle.options(stream=True).parts.remote()):
        assert part == f"part {number};"
        (tmp_path / str(number)).touch()


def test_the_controller_is_answered_while_the_loop_is_blocked(run: Run, tmp_path: Path) -> None:
    handle = run(Blocking.bind(tmp_path))
    done = handle.large.remote()
    done._result.wait(30)  # answered, but not collected yet: the value waits at the replica
    items = iter(handle.options(stream=True).parts.remote())
    assert next(items) == "part 0;"  # it blocks now
    (replica,) = _replicas("Blocking")
    skate.get(replica.check_health.remote(), timeout=10)
    assert skate.get(replica.stats.remote(), timeout=10)["running"] == 1
    assert len(done.result(timeout_s=10)) == 10_000_000
    for number in range(3):
        (tmp_path / str(number)).touch()
    assert list(items) == ["part 1;", "part 2;"]


def _replicas(deployment: str) -> list[Any]:
    client = connect()
    assert client is not None
    found = client.details().applications["default"].deployments[deployment].replicas
    return [skate.get_actor(each.actor_name, "serve") for each in found]
