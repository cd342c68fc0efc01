"""HTTP requests and websockets in a replica: frames to ASGI events, and back."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from skate.serve._replica.encoding import encode_response, stream_response
from skate.serve._replica.user_code import ThreadLimit, UserCode
from skate.serve._wire.frames import Headers, Http, ResponsePart, Scope

if TYPE_CHECKING:
    from skate.serve._replica.running_request import RunningRequest

__all__ = ["HttpHandler", "Lifespan"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Callable[[Message], Awaitable[None]]], Awaitable[None]]

_ASGI = {"version": "3.0", "spec_version": "2.3"}


class HttpHandler:
    """Answer HTTP requests with an ASGI application, or with the deployment's `__call__(request)`."""

    def __init__(self, code: UserCode, threads: ThreadLimit, app: ASGIApp | None = None) -> None:
        self._code = code
        self._threads = threads
        self.app = app
        self._function: _CallFunction | None = None

    async def answer(self, running: RunningRequest, frame: Http, load: Callable[[], int]) -> None:
        """Answer a request or a websocket."""
        running.context.is_http_request = True
        scope = _asgi_scope(frame.scope)
        receive = _receiver(running, frame)
        if self.app is not None:
            context = running.context
            context.scope = scope
            self._threads.apply()
            send = _Sender(running, load)
            try:
                await self.app(scope, receive, send)
                send.end()
            finally:
                context.route = context.full_route
                context.scope = None
            return
        if frame.scope.type == "websocket":
            # Other deployments do not support websockets: reject the handshake.
            send = _Sender(running, load)
            await send({"type": "websocket.close", "code": 1000})
            send.end()
            return
        plain = self._function or self._inspect_call()
        given = (plain.request(scope, receive),) if plain.takes_request else ()
        if plain.is_direct:
            result = plain.function(*given)
            if inspect.iscoroutine(result):
                result = await result
        else:
            result = await self._code.in_thread(plain.function, *given)
        ready = encode_response(result)
        if ready is not None:
            running.is_answered = True
            running.status = ready[0]
            replica_time_s = time.perf_counter() - running.began
            others = load()
            running.link.send(
                ResponsePart(frame.id, others, *ready, False, replica_time_s=replica_time_s), now=not others
            )
            background = getattr(result, "background", None)
            if background is not None:
                self._threads.apply()
                await background()
            return
        self._threads.apply()
        send = _Sender(running, load)
        await stream_response(result, self._code)(scope, receive, send)
        send.end()

    def _inspect_call(self) -> _CallFunction:
        from starlette.requests import Request

        function, is_direct = self._code.method("__call__")
        self._function = _CallFunction(function, is_direct, _takes_an_argument(function), Request)
        return self._function


class _CallFunction(NamedTuple):
    """A deployment's `__call__`, and how to call it."""

    function: Callable[..., Any]
    is_direct: bool  # called on the event loop
    takes_request: bool
    request: type  # the class of its argument


def _takes_an_argument(function: Callable[..., Any]) -> bool:
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


def _asgi_scope(scope: Scope) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": scope.type,
        "asgi": _ASGI,
        "http_version": scope.http_version,
        "path": scope.path,
        "raw_path": scope.raw_path,
        "query_string": scope.query,
        "headers": scope.headers,
        "root_path": scope.root_path,
        "scheme": scope.scheme,
        "client": scope.client,
        "server": scope.server,
    }
    if scope.type == "http":
        made["method"] = scope.method
    else:
        made["subprotocols"] = scope.subprotocols
    return made


def _receiver(running: RunningRequest, frame: Http) -> Receive:
    is_socket = frame.scope.type == "websocket"
    state = "connect" if is_socket else "body"

    async def receive() -> Message:
        nonlocal state
        if state == "connect":
            state = "open"
            return {"type": "websocket.connect"}
        if state == "body":
            state = "more" if frame.more else "done"
            return {"type": "http.request", "body": frame.body, "more_body": frame.more}
        # After the complete body, only a disconnect can follow.
        chunk = await running.next_chunk()
        if chunk.event is not None:
            return chunk.event
        return {"type": "http.request", "body": chunk.data, "more_body": chunk.more}

    return receive


class _Sender:
    """Send the answers of an application. The head of a response is sent with the first part of the body."""

    __slots__ = ("_headers", "_is_over", "_load", "_running", "_status")

    def __init__(self, running: RunningRequest, load: Callable[[], int]) -> None:
        self._running = running
        self._load = load
        self._status = 0
        self._headers: Headers = []
        self._is_over = False

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        running = self._running
        if kind == "http.response.start":
            self._status = running.status = message["status"]
            self._headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        elif kind == "http.response.body":
            more = message.get("more_body", False)
            # A response of one part needs no permission.
            if (more or not self._status) and not running.window.try_take():
                await running.window.take()
            self._part(bytes(message.get("body", b"")), more)
            if running.link.is_congested:
                await running.link.drain()
        elif kind.startswith("websocket."):
            await running.window.take()
            running.is_answered = True
            over = kind in ("websocket.close", "websocket.http.response.body")
            running.link.send_unbuffered(
                ResponsePart(running.id, self._load(), 0, [], b"", not over, dict(message))
            )
            self._is_over = self._is_over or over

    def _part(self, body: bytes, more: bool) -> None:
        running = self._running
        if self._is_over:
            return
        running.is_answered = True
        replica_time_s = time.perf_counter() - running.began if self._status and not more else 0.0
        others = self._load()
        part = ResponsePart(
            running.id, others, self._status, self._headers, body, more, replica_time_s=replica_time_s
        )
        if more:
            running.send_part(part)
        else:
            running.link.send(part, now=not others)
        self._status, self._headers = 0, []
        self._is_over = not more

    def end(self) -> None:
        """End the response if the application did not.

        Raises:
            RuntimeError: If the application has not sent a response.
        """
        if self._is_over:
            return
        if not self._running.is_answered and not self._status:
            raise RuntimeError("The application returned without sending a response.")
        self._part(b"", False)


class Lifespan:
    """Send lifespan events to an ASGI application, if it supports them."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._state: dict[str, Any] = {}

    async def start(self) -> None:
        """Start the application.

        Raises:
            RuntimeError: If the application reports a failure.
        """
        self._task = asyncio.ensure_future(self._run())
        answer = await self._ask("startup")
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            raise RuntimeError(f"The application failed to start: {answer.get('message', '')}")

    async def end(self) -> None:
        """Shut down the application."""
        if self._task is not None and not self._task.done():
            await self._ask("shutdown")
            await asyncio.wait([self._task], timeout=1)

    async def _ask(self, what: str) -> dict[str, Any] | None:
        """Send an event and return the answer, or None if the application does not support lifespan events."""
        assert self._task is not None
        self._events.put_nowait({"type": f"lifespan.{what}"})
        answer = asyncio.ensure_future(self._answers.get())
        await asyncio.wait([answer, self._task], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        answer.cancel()
        return None

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._app(scope, self._events.get, self._answers.put)
        except Exception:
            # Applications without lifespan support raise; those with support report a failure first.
            return
