"""Logs over HTTP: Ray's paths /api/v0/logs, with which `ray logs` lists, reads and follows logs."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from typing import IO, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from skate.dashboard._live import EventStream
from skate.dashboard._logs import CHUNK, POLL_INTERVAL_S, Logs, is_gone
from skate.dashboard._node import Node
from skate.dashboard._rest import as_envelope, envelope
from skate.dashboard._state_api import boolean, timeout_of
from skate.dashboard._topics import Problem, integer, number
from skate.util.node import LOOPBACK
from skate.util.state._logs import log_files, log_name
from skate.util.state.exception import InvalidQueryError

__all__ = ["StateLogs"]

DEFAULT_LINES: Final = 1000
MOST_LINES: Final = 1 << 31
LEAST_INTERVAL_S: Final = 0.05
_SELECTORS: Final = ("filename", "actor_id", "task_id", "pid", "submission_id")
_ANSI: Final = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BEGUN_ANSI: Final = re.compile(rb"\x1b(\[[0-9;?]*[ -/]*)?\Z")
_UNSAFE: Final = re.compile(r"[^\w.-]", re.ASCII)  # in the name of a download
_ELSEWHERE: Final = "The logs of a Ray cluster are in Ray's own dashboard."


class StateLogs:
    """The paths /api/v0/logs, /api/v0/logs/file and /api/v0/logs/stream.

    Args:
        node: The node.
        logs: Its logs.
        closing: Set at the end of the server, which ends all streams.
    """

    def __init__(self, node: Node, logs: Logs, closing: asyncio.Event | None = None) -> None:
        self._node = node
        self._logs = logs
        self._closing = closing

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/api/v0/logs", as_envelope(self._list), methods=["GET"]),
            Route("/api/v0/logs/{kind}", as_envelope(self._read), methods=["GET"]),
        ]

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        self._check_node(query)
        timeout_of(query)
        pattern = query.get("glob") or "*"
        return envelope("", {"result": await self._node.ask(lambda node: log_files(node.engine, pattern))})

    async def _read(self, request: Request) -> Response:
        kind, query = request.path_params["kind"], request.query_params
        if kind not in ("file", "stream"):
            raise Problem(400, f"Logs are read as 'file' or 'stream', not as {kind!r}.")
        self._check_node(query)
        timeout_of(query)
        if query.get("suffix", "out") not in ("out", "err"):
            raise Problem(400, f"suffix must be 'out' or 'err', got {query['suffix']!r}.")
        lines = integer(query, "lines", DEFAULT_LINES, at_least=-1, at_most=MOST_LINES)
        interval = number(query, "interval", POLL_INTERVAL_S)
        if not interval > 0:
            raise Problem(400, f"interval must be a positive number of seconds, got {query['interval']!r}.")
        plain = boolean(query, "filter_ansi_code", default=False)
        follows = kind == "stream"
        path = await self._find(query, follows)
        content = self._content(path, lines, max(interval, LEAST_INTERVAL_S) if follows else None)
        name = _UNSAFE.sub("_", query.get("download_filename") or "file.txt")
        return EventStream(
            _without_ansi(content) if plain else content,
            self._closing,
            media_type="text/plain",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    def _check_node(self, query: QueryParams) -> None:
        """Raise a problem if the query asks for another node than this one."""
        self._node.local_session(_ELSEWHERE)
        id, address = query.get("node_id"), query.get("node_ip")
        if id and address:
            raise Problem(400, "Pass node_id or node_ip, not both.")
        if id and id != self._node.observer.node_id:
            raise Problem(404, f"There is no node with the id {id}.")
        if address and address != LOOPBACK:
            raise Problem(404, f"There is no node with the address {address}: this one has {LOOPBACK}.")

    async def _find(self, query: QueryParams, follows: bool) -> str:
        """Return the path of the log that a query selects; it may not exist yet if it is that of a worker."""
        given = [name for name in _SELECTORS if query.get(name)]
        if len(given) != 1:
            raise Problem(
                400, f"Select one log by one of {', '.join(_SELECTORS)}; got {', '.join(given) or 'none'}."
            )
        filename = query.get("filename")
        if filename and os.path.basename(filename) != filename:
            raise Problem(400, f"{filename!r} is a path; pass the name of a log in the session's folder.")
        pid = integer(query, "pid", 0, at_least=0, at_most=1 << 31) if query.get("pid") else None
        try:
            name = await self._node.ask(
                lambda node: log_name(
                    node.engine,
                    filename=filename,
                    actor=query.get("actor_id"),
                    task=query.get("task_id"),
                    pid=pid,
                    submission=query.get("submission_id"),
                )
            )
        except InvalidQueryError as error:
            raise Problem(404, str(error)) from error
        # The log of a worker is created with its first line of output.
        is_expected = given[0] in ("actor_id", "task_id", "pid")
        return self._logs.path(name, is_expected=is_expected)

    async def _content(self, path: str, lines: int, interval: float | None) -> AsyncGenerator[bytes, None]:
        """Yield the last lines of a log; with an interval, continue as it grows."""
        run = self._node.run
        while not os.path.exists(path):  # noqa: ASYNC240 - a local file
            if interval is None or not os.path.isdir(os.path.dirname(path)):  # noqa: ASYNC240 - the same
                return
            await asyncio.sleep(interval)
        with open(path, "rb") as file:  # noqa: ASYNC230 - a local file, which is open at once
            if lines >= 0:
                await run(_seek_last_lines, file, lines)
            while True:
                while data := await run(file.read, CHUNK):
                    yield data
                if interval is None or await run(is_gone, file, path):
                    return
                await asyncio.sleep(interval)


def _seek_last_lines(file: IO[bytes], lines: int) -> None:
    """Move to the beginning of the last lines of a file."""
    end = file.seek(0, os.SEEK_END)
    if lines == 0:
        return
    left, position = lines, end
    while position > 0:
        start = max(0, position - CHUNK)
        file.seek(start)
        data = file.read(position - start)
        at = len(data) - 1 if position == end and data.endswith(b"\n") else len(data)
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            left -= 1
            if left == 0:
                file.seek(start + at + 1)
                return
        position = start
    file.seek(0)


async def _without_ansi(content: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the content without ANSI color codes, including those that are split between two pieces."""
    kept = b""
    try:
        async for data in content:
            whole = kept + data
            begun = _BEGUN_ANSI.search(whole)
            kept = whole[begun.start() :] if begun else b""
            if shown := _ANSI.sub(b"", whole[: begun.start()] if begun else whole):
                yield shown
        if kept:
            yield kept
    finally:
        await content.aclose()
