"""A dashboard in the process of the test, and a client that reads its streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from skate._api import observer
from skate.dashboard._app import Dashboard
from skate.dashboard._node import Node

TOKEN = "secret-token"
HOST, PORT = "127.0.0.1", 8265
INTERVAL_S = 0.05  # so that tests do not wait for a second
EVENT_TIMEOUT_S = 30.0


def client_of(app: Any, **headers: str) -> httpx.AsyncClient:
    """Return a client without a token, with these headers."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=f"http://{HOST}:{PORT}", headers=headers
    )


class Page:
    """A dashboard of the session of this process, and a client with its token."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.client = client_of(dashboard.app, Authorization=f"Bearer {TOKEN}")

    async def get(self, path: str, status: int = 200) -> Any:
        """Return the JSON at a path."""
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        return response.json()

    async def post(self, path: str, status: int = 200, **arguments: Any) -> Any:
        """Return the JSON that answers a POST request."""
        response = await self.client.post(path, **arguments)
        assert response.status_code == status, response.text
        return response.json()

    async def eventually(self, path: str, holds: Any) -> Any:
        """Read a path until a condition holds; answers are shared for a second, so it takes a while."""
        async with asyncio.timeout(EVENT_TIMEOUT_S):
            while not holds(found := await self.get(path)):  # noqa: ASYNC110 - it asks again
                await asyncio.sleep(INTERVAL_S)
            return found

    def stream(self, path: str) -> Stream:
        """Open a stream of events."""
        return Stream(self.dashboard.app, path)

    def live(self, *paths: str) -> Stream:
        """Subscribe to paths."""
        return self.stream("/live?" + "&".join(f"path={quote(path, safe='')}" for path in paths))


class Stream:
    """An open response, whose client reads only when it is told to."""

    def __init__(self, app: Any, path: str) -> None:
        self._app = app
        self._path, _, self._query = path.partition("?")
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)  # as a socket with a small buffer
        self._left = asyncio.Event()
        self._buffer = b""
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __aenter__(self) -> Stream:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left.set()
        if not self._task.done():
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": self._query.encode(),
            "headers": [
                (b"host", f"{HOST}:{PORT}".encode()),
                (b"authorization", f"Bearer {TOKEN}".encode()),
            ],
            "http_version": "1.1",
            "scheme": "http",
            "server": (HOST, PORT),
            "client": (HOST, 1),
        }

        async def receive() -> dict[str, Any]:
            await self._left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
            elif message["body"]:
                await self._chunks.put(message["body"])

        await self._app(scope, receive, send)

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended the response."""
        return self._task.done()

    async def ended(self) -> None:
        """Wait until the server ends the response."""
        async with asyncio.timeout(EVENT_TIMEOUT_S):
            await asyncio.shield(self._task)

    async def next(self) -> tuple[str, Any]:
        """Return the name and the data of the next event."""
        async with asyncio.timeout(EVENT_TIMEOUT_S):
            while b"\n\n" not in self._buffer:
                self._buffer += await self._chunks.get()
        block, _, self._buffer = self._buffer.partition(b"\n\n")
        if block.startswith(b":"):
            return "comment", None
        name, data = block.split(b"\n", 1)
        return name.removeprefix(b"event: ").decode(), json.loads(data.removeprefix(b"data: "))

    async def text_with(self, end: str) -> str:
        """Return the text of a response that is not of events, up to what ends so; it may go on."""
        async with asyncio.timeout(EVENT_TIMEOUT_S):
            while not self._buffer.decode().endswith(end):
                self._buffer += await self._chunks.get()
        return self._buffer.decode()

    async def until(self, holds: Any) -> Any:
        """Return the data of the first event for which the condition holds."""
        while True:
            name, data = await self.next()
            if name != "comment" and holds(name, data):
                return data


@asynccontextmanager
async def dashboard(connect: Any = observer.of_this_process) -> AsyncIterator[Page]:
    """Run a dashboard of the session of this process, without a socket."""
    made = Dashboard(Node(connect), TOKEN, HOST, PORT, interval_s=INTERVAL_S)
    await made.start()
    page = Page(made)
    try:
        yield page
    finally:
        await page.client.aclose()
        await made.close()
