"""The application: all paths of the dashboard, and the parts that answer them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp

from skate.dashboard._actions import Actions
from skate.dashboard._cluster_api import ClusterApi
from skate.dashboard._jobs import Jobs
from skate.dashboard._live import INTERVAL_S, Live, encode
from skate.dashboard._llm import LLM
from skate.dashboard._logs import Logs
from skate.dashboard._memory import Memory
from skate.dashboard._metrics import Metrics
from skate.dashboard._node import Node
from skate.dashboard._packages import Packages
from skate.dashboard._rest import envelope
from skate.dashboard._runs import Runs
from skate.dashboard._sampler import Sampler
from skate.dashboard._security import Gate
from skate.dashboard._serve import Serve
from skate.dashboard._serve_api import ServeApi
from skate.dashboard._state_api import StateApi
from skate.dashboard._state_logs import StateLogs
from skate.dashboard._tables import TABLES, Tables
from skate.dashboard._tasks import TaskHistory
from skate.dashboard._timeline import Timeline
from skate.dashboard._topics import Problem, Topics

__all__ = ["Dashboard"]

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
STATIC: Final = Path(__file__).parent / "static"
_NOT_BUILT: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Skate dashboard</title></head>
<body><h1>Skate dashboard</h1><p>The page is not part of this installation. The data is: see
<a href="/state/overview">/state/overview</a>.</p></body></html>
"""


class Dashboard:
    """The dashboard of one node.

    Args:
        node: The connection to the node.
        token: The token that requests need.
        host: The address that the server is bound to.
        port: Its port.
        interval_s: Seconds between two computations of a topic.
    """

    def __init__(
        self, node: Node, token: str, host: str, port: int, *, interval_s: float = INTERVAL_S
    ) -> None:
        self.node = node
        self.topics = Topics()
        self._closing = asyncio.Event()
        self.live = Live(self.topics, interval_s, self._closing)
        self.sampler = Sampler(node)
        self._logs = Logs(node, self._closing)
        self._metrics = Metrics(node)
        self._actions = Actions(node)
        self._serve = Serve(node, self._metrics)
        self._llm = LLM(node, self._serve, self._metrics)
        self._add_topics()
        self.app: ASGIApp = Gate(self._application(), token, host, port)

    async def start(self) -> None:
        """Connect to the node, and begin to sample.

        Raises:
            ConnectionError: There is no node.
        """
        await self.node.start()
        self.sampler.start()

    def end_streams(self) -> None:
        """End all streams of events, because the server is about to end."""
        self._closing.set()

    async def close(self) -> None:
        """Stop all computations, and end the connection."""
        self.live.close()
        await self.sampler.close()
        await self.node.close()

    def _add_topics(self) -> None:
        add, node = self.topics.add, self.node
        history = TaskHistory(node)
        add("/state/session", self._session)
        add("/state/overview", self.sampler.overview)
        tables = Tables(node, history)
        for name in TABLES:
            add(f"/state/{name}", tables.table(name))
            add(f"/state/{name}/{{id:path}}", tables.row(name))
        add("/state/why/{id:path}", self._why)
        add("/state/timeline", Timeline(node, history).handle)
        add("/state/memory", Memory(node).handle)
        add("/state/serve", self._serve.handle)
        add("/state/llm", self._llm.handle)
        add("/state/logs", self._logs.list)
        add("/state/logs/{name:path}", self._logs.read)
        runs = Runs(node)
        add("/state/runs", runs.list)
        add("/state/runs/{id:path}", runs.read)

    def _application(self) -> ASGIApp:
        node, packages = self.node, Packages(self.node)
        routes: list[BaseRoute] = [
            Route("/state/logs/{name:path}/follow", self._logs.follow, methods=["GET"]),
            Route("/state/{path:path}", self._state, methods=["GET"]),
            Route("/live", self.live.respond, methods=["GET"]),
            Route("/metrics", self._metrics.respond, methods=["GET"]),
            *self._actions.routes(),
            Route("/actions/llm/chat", self._llm.chat, methods=["POST"]),
            *packages.routes(),
            *Jobs(node, packages).routes(),
            *StateApi(node).routes(),
            *StateLogs(node, self._logs, self._closing).routes(),
            *ServeApi(node, packages).routes(),
            *ClusterApi(node, self.sampler).routes(),
        ]
        others = [
            Route("/api/{path:path}", _unknown(routes), methods=_METHODS),
            Route("/{path:path}", _page, methods=["GET"]),
        ]
        return Starlette(routes=[*routes, *others], exception_handlers={Problem: _explain})

    async def _state(self, request: Request) -> Response:
        # Not `request.url.path`, which ends at a question mark in an id.
        data = await self.topics.answer(request.scope["path"], request.query_params)
        return Response(encode(data), media_type="application/json")

    async def _session(self, _: Mapping[str, str], __: QueryParams) -> dict[str, Any]:
        return self.node.describe()

    async def _why(self, path: Mapping[str, str], _: QueryParams) -> dict[str, Any]:
        try:
            lines = await self.node.ask(lambda node: node.why(path["id"]))
        except ValueError as error:
            raise Problem(400, str(error)) from error
        return {"id": path["id"], "lines": lines or ["The node does not know what this waits for."]}


def _unknown(routes: Sequence[BaseRoute]) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of paths below /api that these routes do not have, or not for the method of the request."""

    async def respond(request: Request) -> Response:
        path, method = request.url.path, request.method
        if any(route.matches(request.scope)[0] is Match.PARTIAL for route in routes):
            return envelope(f"{path} does not accept {method}.", {"result": None}, status=405)
        return envelope(f"There is no {path}.", {"result": None}, status=404)

    return respond


async def _explain(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return Response(encode({"detail": error.detail}), error.status, media_type="application/json")


async def _page(request: Request) -> Response:
    """Answer with a file of the page; a path below one of its pages ends with an id, which may look like a file."""
    path = request.path_params["path"]
    folder, _, rest = path.partition("/")
    if folder in ("state", "actions", "api", "live", "metrics"):
        raise Problem(404, f"There is no /{path}.")
    if folder == "assets" or ("." in path and not rest):
        file = (STATIC / path).resolve()
        if not file.is_relative_to(STATIC.resolve()) or not file.is_file():
            raise Problem(404, f"There is no /{path}.")
        # The names of these files have a digest of their content.
        cache = "public, max-age=31536000, immutable" if path.startswith("assets/") else "no-cache"
        return FileResponse(file, headers={"Cache-Control": cache})
    if not (STATIC / "index.html").is_file():
        return HTMLResponse(_NOT_BUILT)
    return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})
