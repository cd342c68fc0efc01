"""Live updates: topics that clients have subscribed to, recomputed at most once a second for all of them.

A client gets the newest data of each of its topics as server-sent events. For a client that reads slowly only the
newest data of each topic is kept, and a client that does not read for a minute is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from skate.dashboard._topics import Problem, Topics

__all__ = ["EventStream", "Live", "encode", "event"]

INTERVAL_S: Final = 1.0  # between two computations of a topic
MOST_SHARE: Final = 0.25  # of the time that the computation of one topic may take
KEEP_ALIVE_S: Final = 15.0
SEND_TIMEOUT_S: Final = 60.0  # after which a client that does not read is disconnected
MOST_PATHS: Final = 32  # of one client
PERMANENT: Final = (400, 405, 422)  # statuses of requests that never succeed

logger = logging.getLogger(__name__)


def encode(data: Any) -> bytes:
    """Return data as JSON; numbers that JSON does not have become null."""
    return msgspec.json.encode(data)


def event(name: str, data: bytes) -> bytes:
    """Return a server-sent event; JSON has no line breaks."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class Live:
    """The subscribed topics.

    Args:
        topics: Computes them.
        interval_s: Seconds between two computations of a topic.
        closing: Set at the end of the server, which ends all streams.
    """

    def __init__(
        self, topics: Topics, interval_s: float = INTERVAL_S, closing: asyncio.Event | None = None
    ) -> None:
        self._topics = topics
        self._closing = closing
        self._interval_s = interval_s
        self._running: dict[str, _Topic] = {}

    async def respond(self, request: Request) -> Response:
        """Answer a subscription: `GET /live?path=…&path=…`."""
        paths = list(dict.fromkeys(request.query_params.getlist("path")))
        if not paths or len(paths) > MOST_PATHS:
            raise Problem(400, f"Subscribe to 1 to {MOST_PATHS} topics, like /live?path=/state/overview.")
        return EventStream(self._events(paths), self._closing)

    async def _events(self, paths: list[str]) -> AsyncGenerator[bytes, None]:
        client = _Client()
        for path in paths:
            self._subscribe(path, client)
        try:
            while True:
                yield await client.next()
        finally:
            for path in paths:
                self._unsubscribe(path, client)

    def _subscribe(self, path: str, client: _Client) -> None:
        topic = self._running.get(path)
        if topic is None:
            topic = self._running[path] = _Topic(path, self._topics.answer_url, self._interval_s)
        topic.add(client)

    def _unsubscribe(self, path: str, client: _Client) -> None:
        topic = self._running[path]
        topic.clients.discard(client)
        if not topic.clients:
            topic.stop()
            del self._running[path]

    @property
    def subscribed(self) -> list[str]:
        """The paths that clients have subscribed to."""
        return list(self._running)

    def close(self) -> None:
        """Stop all computations."""
        for topic in self._running.values():
            topic.stop()


class _Topic:
    """One path that is computed for all its clients."""

    def __init__(self, path: str, compute: Callable[[str], Awaitable[Any]], interval_s: float) -> None:
        self.path = path
        self.clients: set[_Client] = set()
        self._compute = compute
        self._interval_s = interval_s
        self._latest: bytes | None = None
        self._task = asyncio.create_task(self._run(), name=f"dashboard {path}")

    def add(self, client: _Client) -> None:
        """Send the latest data to a new client, and all later ones."""
        self.clients.add(client)
        if self._latest is not None:
            client.put(self.path, self._latest)

    def stop(self) -> None:
        """Stop the computation."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            started = time.monotonic()
            message, is_final = await self._message()
            if message != self._latest:
                self._latest = message
                for client in self.clients:
                    client.put(self.path, message)
            if is_final:
                return
            took = time.monotonic() - started
            # A computation that takes long is repeated less often.
            await asyncio.sleep(max(self._interval_s, took / MOST_SHARE) - took)

    async def _message(self) -> tuple[bytes, bool]:
        path = encode(self.path)
        try:
            data = await self._compute(self.path)
        except Problem as problem:
            about = encode({"path": self.path, "status": problem.status, "detail": problem.detail})
            return event("gone", about), problem.status in PERMANENT
        except Exception as error:
            logger.exception("The topic %s could not be computed", self.path)
            about = encode({"path": self.path, "status": 500, "detail": f"{type(error).__name__}: {error}"})
            return event("gone", about), False
        return event("update", b'{"path":' + path + b',"data":' + encode(data) + b"}"), False


class _Client:
    """What one client has not received: the newest message of each topic."""

    def __init__(self) -> None:
        self._pending: dict[str, bytes] = {}
        self._has_pending = asyncio.Event()

    def put(self, path: str, message: bytes) -> None:
        """Replace the pending message of a topic."""
        self._pending[path] = message
        self._has_pending.set()

    async def next(self) -> bytes:
        """Return the pending messages; a comment if there are none for a while."""
        try:
            await asyncio.wait_for(self._has_pending.wait(), KEEP_ALIVE_S)
        except TimeoutError:
            return b": keep-alive\n\n"
        self._has_pending.clear()
        messages, self._pending = self._pending, {}
        return b"".join(messages.values())


class EventStream(Response):
    """A response of server-sent events, or of other pieces, which ends when the client leaves or stops reading.

    Args:
        events: The events; the generator is closed at the end.
        closing: Set at the end of the server, which ends the stream.
        send_timeout_s: Seconds that the client may take to read an event.
        media_type: The type of the content.
        headers: Further headers.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        closing: asyncio.Event | None = None,
        send_timeout_s: float = SEND_TIMEOUT_S,
        *,
        media_type: str = "text/event-stream",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(media_type=media_type, headers=headers)
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"
        self._events = events
        self._closing = closing or asyncio.Event()
        self._send_timeout_s = send_timeout_s
        self._is_stalled = True  # until the first event is sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait((sending, leaving, closing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving, closing):
                task.cancel()
            results = await asyncio.gather(sending, leaving, closing, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        if self._closing.is_set() and not self._is_stalled:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        events = self._events
        try:
            async for chunk in events:
                self._is_stalled = True
                async with asyncio.timeout(self._send_timeout_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                self._is_stalled = False
        except (TimeoutError, OSError):
            return  # the connection is closed with the end of the response
        finally:
            await events.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
