"""The logs of a session: their names, their last lines, search, and following them as they grow."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import IO, Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from skate.dashboard._live import KEEP_ALIVE_S, EventStream, encode, event
from skate.dashboard._node import Node
from skate.dashboard._topics import Problem, integer

__all__ = ["LineSplitter", "Logs", "is_gone"]

LONGEST_LINE: Final = 10_000  # characters
MOST_LINES: Final = 10_000
DEFAULT_TAIL: Final = 1000
CHUNK: Final = 1 << 18
MOST_READ: Final = 64 << 20  # bytes from the end of a log that are read for one request
POLL_INTERVAL_S: Final = 0.25  # of a followed log: there is no event to wait for
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_WORKER: Final = re.compile(r"worker-(\d+)\.")


class LineSplitter:
    """Splits bytes into lines of text, of which only the beginning is kept if they are very long."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that end in the data."""
        *ended, rest = data.split(b"\n")
        lines = []
        for piece in ended:
            self._add(piece)
            lines.append(self.end())
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        # A character has at most four bytes.
        room = 4 * LONGEST_LINE - len(self._kept)
        if room > 0:
            self._kept += piece[:room]

    @property
    def has_rest(self) -> bool:
        """Whether there is a line without an end."""
        return self._size > 0

    def end(self) -> str:
        """Return the line so far, and begin a new one."""
        text = _ANSI.sub("", self._kept.decode("utf-8", "replace").removesuffix("\r"))
        if len(text) > LONGEST_LINE or self._size > len(self._kept):
            text = f"{text[:LONGEST_LINE]}… (cut: the line has {self._size:,} bytes)"
        self._kept.clear()
        self._size = 0
        return text


class Logs:
    """The topics /state/logs and /state/logs/NAME, and the stream /state/logs/NAME/follow.

    Args:
        node: The node.
        closing: Set at the end of the server, which ends all streams.
    """

    def __init__(self, node: Node, closing: asyncio.Event | None = None) -> None:
        self._node = node
        self._closing = closing

    def _folder(self) -> str:
        session = self._node.local_session("The logs of a Ray cluster are in Ray's own dashboard.")
        return os.path.join(session, "logs")

    def path(self, name: str, *, is_expected: bool = False) -> str:
        """Return the path of a log.

        Args:
            name: The name of the log.
            is_expected: Whether it may not exist yet.

        Raises:
            Problem: There is no log with this name, or it would not be in the folder of the logs.
        """
        folder = os.path.realpath(self._folder())
        path = os.path.realpath(os.path.join(folder, name)) if "\0" not in name else folder
        is_there = os.path.isfile(path) or (is_expected and not os.path.exists(path))
        if not path.startswith(folder + os.sep) or not is_there:
            raise Problem(404, f"There is no log {name!r}.")
        return path

    async def list(self, _: Mapping[str, str], __: QueryParams) -> dict[str, Any]:
        """Return the names of the logs, the latest first."""
        folder = self._folder()
        processes = await self._node.share("processes", lambda: self._node.ask(lambda node: node.processes()))
        files = await self._node.run(_list_files, folder)
        for file in files:
            match = _WORKER.match(file["name"])
            process = processes.get(int(match[1])) if match else None
            file["pid"] = process["pid"] if process else None
            file["title"] = process["title"] if process else _title(file["name"])
        return {"files": files}

    async def read(self, path: Mapping[str, str], query: QueryParams) -> dict[str, Any]:
        """Return the last lines of a log, or the last lines that contain a text."""
        tail = integer(query, "tail", DEFAULT_TAIL, at_least=1, at_most=MOST_LINES)
        search = query.get("search", "")
        file = self.path(path["name"])
        try:
            size, lines, truncated = await self._node.run(_tail, file, tail, search.lower())
        except FileNotFoundError:
            raise Problem(404, f"There is no log {path['name']!r}.") from None
        return {"name": path["name"], "size": size, "lines": lines, "truncated": truncated}

    async def follow(self, request: Request) -> Response:
        """Stream the lines that are added to a log."""
        file = self.path(request.path_params["name"])
        return EventStream(self._new_lines(file), self._closing)

    async def _new_lines(self, path: str) -> AsyncGenerator[bytes, None]:
        with open(path, "rb") as file:  # noqa: ASYNC230 - a local file, which is open at once
            file.seek(0, os.SEEK_END)
            splitter = LineSplitter()
            yield event("lines", encode({"lines": []}))  # the client knows that it follows from here on
            quiet = 0.0
            while True:
                lines = splitter.feed(await self._node.run(file.read, CHUNK))
                if lines:
                    quiet = 0.0
                    yield event("lines", encode({"lines": lines}))
                    continue
                if await self._node.run(is_gone, file, path):
                    return
                await asyncio.sleep(POLL_INTERVAL_S)
                quiet += POLL_INTERVAL_S
                if quiet >= KEEP_ALIVE_S:
                    quiet = 0.0
                    yield b": keep-alive\n\n"


def is_gone(file: IO[bytes], path: str) -> bool:
    """Return whether the file at the path is no longer this one; begin again at the start if it was truncated."""
    try:
        if os.stat(path).st_ino != os.fstat(file.fileno()).st_ino:
            return True
    except FileNotFoundError:
        return True
    if os.fstat(file.fileno()).st_size < file.tell():
        file.seek(0)
    return False


def _list_files(folder: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                facts = os.lstat(path)
            except FileNotFoundError:
                continue  # it has just been removed
            if os.path.isfile(path):
                relative = os.path.relpath(path, folder)
                found.append({"name": relative, "size": facts.st_size, "modified": facts.st_mtime})
    return sorted(found, key=lambda file: -float(file["modified"]))


def _title(name: str) -> str:
    if name == "node.log":
        return "node"
    if name.startswith("job-driver-"):
        return f"job {name.removeprefix('job-driver-').removesuffix('.log')}"
    return "worker" if _WORKER.match(name) else ""


def _tail(path: str, tail: int, search: str) -> tuple[int, list[str], bool]:
    """Return the size of a file, its last lines, and whether there are earlier ones."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Without a search only the end of the file is read, in steps until it has enough lines.
        span = MOST_READ if search else CHUNK
        while True:
            start = max(0, size - span)
            lines, left_out = _last_lines(file, start, size, tail, search)
            if start == 0 or len(lines) >= tail or span >= MOST_READ:
                return size, lines, left_out or start > 0
            span *= 4


def _last_lines(file: IO[bytes], start: int, end: int, tail: int, search: str) -> tuple[list[str], bool]:
    """Return the last lines of a part of a file, and whether lines before them were left out."""
    lines: deque[str] = deque(maxlen=tail)
    left_out = False
    for line in _lines(file, start, end):
        if search and search not in line.lower():
            continue
        left_out = left_out or len(lines) == tail
        lines.append(line)
    return list(lines), left_out


def _lines(file: IO[bytes], start: int, end: int) -> Iterator[str]:
    file.seek(start)
    splitter = LineSplitter()
    skips_first = start > 0  # it begins before the part
    while file.tell() < end:
        data = file.read(min(CHUNK, end - file.tell()))
        if not data:
            break
        for line in splitter.feed(data):
            if skips_first:
                skips_first = False
            else:
                yield line
    if splitter.has_rest and not skips_first:
        yield splitter.end()
