"""A server that answers every path of the dashboard with made-up data, for tests of the page.

It shows the page in states that are rare or slow to reach with a real session. Run it to look at the page:

    python -m tests.dashboard.fake_server --port 8266
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.dashboard import fake_data

STATIC = Path(__file__).parents[2] / "src/skate/dashboard/static"
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
MILLION = 1_000_000  # of events that are no longer kept, in the scene "many"
SCENES = ("busy", "empty", "ended", "restarted", "unauthorized", "many", "written", "cut")


class NotFoundError(Exception):
    """There is no such topic."""


class Server:
    """The state of the server: which scene it plays, and what it was asked to do."""

    def __init__(self) -> None:
        self.scene = "busy"
        self.changed = asyncio.Event()
        self.actions: list[dict[str, Any]] = []
        self.extra_lines: list[str] = []

    def set_scene(self, scene: str) -> None:
        """Play another scene, and end all streams."""
        self.scene = scene
        self.changed.set()
        self.changed = asyncio.Event()

    def answer(self, url: str) -> Any:
        """Return the data of a topic."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        names = [unquote(name) for name in parts.path.removeprefix("/state/").split("/")]
        if names == ["session"]:
            data = fake_data.session()
            if self.scene == "ended":
                data |= {"connected": False, "problem": "The node (PID 41207) has ended."}
            if self.scene == "restarted":
                data |= {"address": "/tmp/skate/session_of_another_node"}
            return data
        if self.scene in ("empty", "restarted"):
            return fake_data.empty(names[0])
        return self._full(names, query)

    def _full(self, names: list[str], query: dict[str, list[str]]) -> Any:
        match names:
            case ["logs"] if self.scene == "written":
                return fake_data.logs_after_a_write()
            case ["overview" | "memory" | "serve" | "llm" | "logs" as name]:
                return getattr(fake_data, name)()
            case ["timeline"]:
                since, limit = (float(query.get(key, ["0"])[0]) for key in ("since", "limit"))
                per_worker = 3333 if self.scene == "many" else 60
                found = fake_data.timeline(since, int(limit) or 5000, per_worker)
                return found | {"dropped": MILLION} if self.scene == "many" else found
            case ["why", id]:
                return fake_data.why(id)
            case ["runs"]:
                return {"runs": fake_data.runs()}
            case ["runs", id]:
                return _found(fake_data.run(id), id)
            case ["logs", *rest]:
                return self._log("/".join(rest), query)
            case [table] if table in fake_data.TABLES:
                found = _list(table, query)
                return found | {"dropped": MILLION} if self.scene == "many" else found
            case [table, id] if table in fake_data.TABLES:
                column, rows = fake_data.TABLES[table]
                return _found(
                    next((row for row in rows() if id in (row[column], row.get("job_id"))), None), id
                )
        raise NotFoundError(f"There is nothing at {'/'.join(names)}.")

    def _log(self, name: str, query: dict[str, list[str]]) -> Any:
        search = query.get("search", [""])[0].lower()
        lines = [line for line in fake_data.log_lines(name) + self.extra_lines if search in line.lower()]
        return {"name": name, "size": 48_211, "lines": lines, "truncated": True}


def _found(row: Any, id: str) -> Any:
    if row is None:
        raise NotFoundError(f"There is nothing with the ID {id}.")
    return row


def _list(table: str, query: dict[str, list[str]]) -> Any:
    rows = fake_data.TABLES[table][1]()
    for condition in query.get("filter", []):
        column, value = condition.replace("!=", "=").split("=")
        rows = [row for row in rows if (str(row.get(column)) == value) != ("!=" in condition)]
    search = query.get("search", [""])[0].lower()
    rows = [row for row in rows if search in json.dumps(row).lower()]
    limit = int(query.get("limit", ["100"])[0])
    columns = list(rows[0]) if rows else []
    return {
        "columns": columns,
        "rows": rows[:limit],
        "total": len(rows),
        "dropped": 12 if table == "tasks" else 0,
    }


def make_app() -> Starlette:
    """Return the application."""
    server = Server()

    async def state(request: Request) -> Response:
        if server.scene == "unauthorized":
            return JSONResponse({"detail": "The token is missing."}, 401)
        try:
            return JSONResponse(server.answer(str(request.url.path) + "?" + request.url.query))
        except NotFoundError as error:
            return JSONResponse({"detail": str(error)}, 404)

    async def live(request: Request) -> Response:
        if server.scene == "unauthorized":
            return Response(status_code=401)
        return _stream(_updates(server, request.query_params.getlist("path")))

    async def follow(_: Request) -> Response:
        return _stream(_new_lines(server))

    async def chat(request: Request) -> Response:
        asked = await request.json()
        if "refuse" in asked["messages"][-1]["content"]:
            return JSONResponse(
                {"error": {"message": "The prompt has 9,000 tokens; the model takes 2,048."}}, 400
            )
        return _stream(_answer(asked["messages"][-1]["content"]))

    async def act(request: Request) -> Response:
        server.actions.append({"path": request.url.path})
        return JSONResponse({})

    async def actions(_: Request) -> Response:
        return JSONResponse(server.actions)

    async def scene(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in SCENES:
            return JSONResponse({"detail": f"The scenes are {', '.join(SCENES)}."}, 404)
        server.set_scene(name)
        return JSONResponse({})

    async def page(request: Request) -> Response:
        name = request.path_params["path"]
        if not name.startswith("assets/"):
            name = "index.html"
        if not (STATIC / name).is_file():
            return Response(status_code=404)
        return FileResponse(STATIC / name, headers={"Content-Security-Policy": POLICY})

    return Starlette(
        routes=[
            Route("/state/logs/{name:path}/follow", follow),
            Route("/state/{path:path}", state),
            Route("/live", live),
            Route("/actions/llm/chat", chat, methods=["POST"]),
            Route("/actions/{path:path}", act, methods=["POST"]),
            Route("/api/jobs/{id}/stop", act, methods=["POST"]),
            Route("/fake/actions", actions),
            Route("/fake/scene/{name}", scene, methods=["POST"]),
            Route("/{path:path}", page),
        ]
    )


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream")


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def _updates(server: Server, paths: list[str]) -> AsyncIterator[str]:
    changed = server.changed
    sent: dict[str, str] = {}
    while not changed.is_set() and server.scene != "cut":
        for path in paths:
            try:
                event = _event("update", {"path": path, "data": server.answer(path)})
            except NotFoundError as error:
                event = _event("gone", {"path": path, "status": 404, "detail": str(error)})
            if sent.get(path) != event:
                sent[path] = event
                yield event
        try:
            await asyncio.wait_for(changed.wait(), 1.0)
        except TimeoutError:
            pass  # the usual case: a second has passed


async def _new_lines(server: Server) -> AsyncIterator[str]:
    changed = server.changed
    yield _event("lines", {"lines": []})
    while not changed.is_set():
        try:
            await asyncio.wait_for(changed.wait(), 0.4)
        except TimeoutError:
            yield _event("lines", {"lines": [f"{time.strftime('%F %T')} INFO a new line"]})


async def _answer(question: str) -> AsyncIterator[str]:
    for piece in ["You ", "said: ", *(f"{word} " for word in question.split()), "<b>bold</b>"]:
        await asyncio.sleep(0.03)
        yield f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n"
    yield "data: [DONE]\n\n"


def main() -> None:
    """Serve until interrupted, and print the address."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    config = uvicorn.Config(make_app(), port=options.port, log_level="warning", timeout_graceful_shutdown=1)
    with config.bind_socket() as listener:
        listener.listen()  # a page that is opened at once waits until the server runs
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
