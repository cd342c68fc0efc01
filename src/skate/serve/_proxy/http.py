"""The ASGI application that the HTTP server runs: finds the way, and passes requests on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from skate.serve._proxy.calls import HttpCall
from skate.serve._proxy.limits import BodyTooLargeError, Limits
from skate.serve._proxy.routes import RouteTable
from skate.serve._proxy.whole import WholeRequest
from skate.serve._router.router import Router
from skate.serve._router.runtime import Runtime
from skate.serve._routes import Route
from skate.serve._runtime.ids import DeploymentID, new_request_id
from skate.serve._watch.proxy import ProxyMeasures
from skate.serve._wire.frames import Context, Headers, Scope
from skate.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RequestCancelledError,
    retry_after,
)

if TYPE_CHECKING:
    from skate.serve._proxy.protocol_httptools import HttpTools
    from skate.serve._watch.tracing import Tracer

__all__ = ["HttpApp"]

logger = logging.getLogger("skate.serve")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# A request with one of these may be run twice: RFC 9110, 9.2.2.
_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))
_REQUEST_ID = b"x-request-id"
_MODEL = b"serve_multiplexed_model_id"
_SESSION = b"x-session-id"
_NOTED = frozenset((_REQUEST_ID, _MODEL, _SESSION, b"idempotency-key"))
_CLIENT_GONE = 499  # for logs and metrics; nobody hears it
_WATCH_AFTER_S = 0.05  # requests that take longer are watched for clients that go away


class HttpApp:
    """Passes each request to the application whose prefix its path starts with."""

    def __init__(self, runtime: Runtime, limits: Limits, root_path: str = "") -> None:
        self.routes = RouteTable()
        self.under_way = 0
        self.measures = ProxyMeasures("http", lambda: self.under_way)
        self.tracer: Tracer | None = None
        self._runtime = runtime
        self._limits = limits
        self._root_path = root_path.rstrip("/")
        self._routers: dict[tuple[str, str], Router] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, or hold one conversation."""
        kind = scope["type"]
        if kind == "lifespan":
            return
        path: str = scope["path"]
        if self._root_path:
            path = _enter_root(scope, self._root_path)
        if path.startswith("/-/"):
            await self._answer_own(path, send)
            return
        began = time.perf_counter()
        route = self.routes.match(path)
        if route is None:
            self.measures.ended("", "", "", scope.get("method", "WEBSOCKET"), 404, 0.0)
            await self._refuse(
                kind, send, 404, f"Path '{path}' not found. Ping http://.../-/routes for available routes."
            )
            return
        self.under_way += 1
        self.measures.began()
        status = 500
        pass_on = self._pass_request if kind == "http" else self._pass_socket
        try:
            if self.tracer is None:
                status = await pass_on(scope, receive, send, route)
            else:
                with self.tracer.at_proxy(route, scope) as span:
                    status = await pass_on(scope, receive, send, route)
                    span.ended(status)
        finally:
            self._ended(route, scope.get("method", "WEBSOCKET"), status, began)

    def _ended(self, route: Route, method: str, status: int, began: float) -> None:
        self.under_way -= 1
        self.measures.ended(
            route.app, route.deployment, route.prefix, method, status, time.perf_counter() - began
        )

    def _router(self, route: Route) -> Router:
        key = route.app, route.deployment
        router = self._routers.get(key)
        if router is None:
            router = self._routers[key] = self._runtime.router(DeploymentID(route.deployment, route.app))
        return router

    # ------------------------------------------------------------ requests that have come whole

    def begin(
        self,
        protocol: HttpTools,
        method: str,
        path: str,
        raw_path: bytes,
        query: bytes,
        headers: Headers,
        body: bytes,
    ) -> bool:
        """Pass a request on at once; returns False, with nothing done, if there is more to it than that."""
        if self.tracer is not None or self._root_path or path.startswith("/-/"):
            return False
        route = self.routes.match(path)
        if route is None:
            return False
        scheme = protocol.scheme or "http"
        request = WholeRequest(
            protocol,
            self._router(route),
            route,
            _context(route, method, headers),
            Scope(
                "http",
                method,
                path,
                raw_path,
                query,
                headers,
                route.root,
                scheme,
                "1.1",
                protocol.client,
                protocol.server,
            ),
            body,
        )
        protocol.cycle = request
        self.under_way += 1
        request.router.submit(request)
        self.measures.began()
        if self._limits.timeout_s and not request.is_done:
            loop = asyncio.get_running_loop()
            request.timer = loop.call_later(self._limits.timeout_s, _time_out, request.router, request)
        return True

    def answered(self, request: WholeRequest, status: int) -> None:
        """Note how a request ended."""
        if request.timer is not None:
            request.timer.cancel()
        if request.spent:
            self._note_share(request, request.route)
        self._ended(request.route, request.scope.method, status, request.began)

    def see_through(self, request: WholeRequest) -> None:
        """Answer a request by a task: there is more to say than a head and a body, or it failed."""
        if request.timer is not None:
            request.timer.cancel()

        async def respond(_: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            status = 500
            try:
                status = await self._see_through(request, request.router, request.route, receive, send)
            finally:
                self._ended(request.route, request.scope.method, status, request.began)

        request.protocol.start_cycle(request, respond)

    # ------------------------------------------------------------ all others

    async def _pass_request(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, route: Route
    ) -> int:
        """Have a request answered; returns the status."""
        context, head = self._head(scope, route)
        body, more = b"", False
        if head.method not in ("GET", "HEAD") or _has_body(head.headers):
            if self._limits.is_too_long(head.headers):
                await self._refuse("http", send, 413, "The request's body is too large.")
                return 413
            message = await receive()
            if message["type"] == "http.disconnect":
                return _CLIENT_GONE
            body, more = message.get("body", b""), message.get("more_body", False)
            # A short body is waited for here: a client that takes its time over it takes up no replica.
            is_short = more and self._limits.is_short(head.headers)
            while more and is_short:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return _CLIENT_GONE
                body += message.get("body", b"")
                more = message.get("more_body", False)
            if len(body) > self._limits.body_bytes:
                await self._refuse("http", send, 413, "The request's body is too large.")
                return 413
        call = HttpCall(context, head, body, more)
        router = self._router(route)
        router.submit(call)
        return await self._see_through(call, router, route, receive, send)

    async def _see_through(
        self, call: HttpCall, router: Router, route: Route, receive: Receive, send: Send
    ) -> int:
        """Answer a request that has been passed on; returns the status."""
        conversation = _Conversation(call, router, receive, self._limits)
        try:
            status = await self._respond(call, send, conversation)
            if call.spent:
                self._note_share(call, route)
            return status
        except asyncio.CancelledError:
            router.cancel(call)
            raise
        finally:
            conversation.end()
            if not call.is_done:
                router.cancel(call)  # the client has gone, or takes nothing further

    def _note_share(self, call: HttpCall, route: Route) -> None:
        """Note how much of a request's time was Serve's."""
        took = time.perf_counter() - call.began
        self.measures.passed_on(route.app, route.prefix, took - call.waited - call.spent)

    def _head(self, scope: MutableMapping[str, Any], route: Route) -> tuple[Context, Scope]:
        """Return what the replica has to know of a request, without its body."""
        method = scope.get("method", "GET")
        headers: Headers = scope["headers"]
        return _context(route, method, headers), Scope(
            scope["type"],
            method,
            scope["path"],
            scope.get("raw_path") or b"",
            scope["query_string"],
            headers,
            self._root_path + route.root,
            scope["scheme"],
            scope["http_version"],
            scope["client"],
            scope["server"],
            scope.get("subprotocols") or [],
        )

    async def _respond(self, call: HttpCall, send: Send, conversation: _Conversation) -> int:
        try:
            part = await call.part()
        except BaseException as error:
            if conversation.is_gone:
                return _CLIENT_GONE  # nobody is there to hear it
            verdict = self._verdict(error, call)
            await self._refuse("http", send, *verdict)
            return verdict[0]
        status = part.status
        headers = [*part.headers, (_REQUEST_ID, call.context.request_id.encode("latin-1"))]
        await send({"type": "http.response.start", "status": part.status, "headers": headers})
        try:
            while True:
                await send({"type": "http.response.body", "body": part.body, "more_body": part.more})
                if not part.more:
                    return status
                part = await call.part()
        except Exception as error:
            if conversation.is_gone:
                return _CLIENT_GONE
            # The head has gone out: all that can be done is to break off, which the client sees.
            logger.warning("The response to request %s broke off: %s", call.context.request_id, error)
            raise

    def _verdict(self, error: BaseException, call: HttpCall) -> tuple[int, str, Headers]:
        """Return status, text and headers for a request that failed."""
        match error:
            case BackPressureError():
                return error.status_code, error.message, [(b"retry-after", b"%d" % retry_after(error))]
            case DeploymentUnavailableError():
                return 503, error.message, []
            case TimeoutError():
                return (
                    408,
                    f"Request {call.context.request_id} timed out after {self._limits.timeout_s} s.",
                    [],
                )
            case BodyTooLargeError():
                return 413, "The request's body is too large.", [(b"connection", b"close")]
            case RequestCancelledError():
                return 499, "Request was cancelled.", []
            case asyncio.CancelledError():
                raise error
        return 500, "Internal Server Error", []

    async def _pass_socket(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, route: Route
    ) -> int:
        """Hold a conversation; returns the code that it was closed with."""
        context, head = self._head(scope, route)
        await receive()  # "websocket.connect", which the replica is told by the request itself
        call = HttpCall(context, head, b"", True)
        router = self._router(route)
        router.submit(call)

        async def listen() -> None:
            while True:
                event = dict(await receive())
                await call.feed(b"", True, event)
                if event["type"] == "websocket.disconnect":
                    return

        listening = asyncio.ensure_future(listen())
        code = 1000
        try:
            while True:
                part = await call.part()
                if part.event is not None:
                    code = part.event.get("code", code)
                    await send(part.event)
                if not part.more:
                    return code
        except Exception as error:
            logger.warning("The websocket of request %s broke off: %s", context.request_id, error)
            await send({"type": "websocket.close", "code": 1011})
            return 1011
        finally:
            listening.cancel()
            if not call.is_done:
                router.cancel(call)

    async def _answer_own(self, path: str, send: Send) -> None:
        """Answer what the proxy itself is asked."""
        if path == "/-/healthz":
            status, text = (
                (200, "success") if self.routes.is_known else (503, "Route table is not populated yet.")
            )
            await self._refuse("http", send, status, text)
        elif path == "/-/routes":
            body = self.routes.as_json()
            await self._refuse("http", send, 200, body, [(b"content-type", b"application/json")])
        else:
            await self._refuse("http", send, 404, f"Path '{path}' not found.")

    async def _refuse(
        self, kind: str, send: Send, status: int, text: str, headers: Headers | None = None
    ) -> None:
        """Answer without a replica."""
        if kind == "websocket":
            await send({"type": "websocket.close", "code": 1000, "reason": text})
            return
        body = text.encode()
        given = headers or []
        if not any(name == b"content-type" for name, _ in given):
            given = [*given, (b"content-type", b"text/plain; charset=utf-8")]
        sent = [*given, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": body})


class _Conversation:
    """What the client still says while its request is answered: further parts of the body, or that it has gone."""

    __slots__ = ("_call", "_late", "_limits", "_out_of_time", "_receive", "_router", "_task", "is_gone")

    def __init__(self, call: HttpCall, router: Router, receive: Receive, limits: Limits) -> None:
        self._call = call
        self._router = router
        self._receive = receive
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        self._out_of_time: asyncio.TimerHandle | None = None
        self.is_gone = False
        loop = asyncio.get_running_loop()
        # Most requests are answered before it is worth a task to watch their clients.
        self._late = loop.call_later(0 if call.more else _WATCH_AFTER_S, self._watch)
        if limits.timeout_s:
            left = limits.timeout_s - (time.perf_counter() - call.began)
            self._out_of_time = loop.call_later(max(0.0, left), _time_out, router, call)

    def _watch(self) -> None:
        self._task = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        read = len(self._call.body)
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.is_gone = True
                self._router.cancel(self._call)
                self._call.failed(RequestCancelledError(self._call.context.request_id))
                return
            data = message.get("body", b"")
            read += len(data)
            if read > self._limits.body_bytes:
                self._router.cancel(self._call)
                self._call.failed(BodyTooLargeError())
                return
            if self._call.more:  # otherwise the replica has all of it
                await self._call.feed(data, message.get("more_body", False))

    def end(self) -> None:
        """Stop listening."""
        self._late.cancel()
        if self._out_of_time is not None:
            self._out_of_time.cancel()
        if self._task is not None:
            self._task.cancel()


def _time_out(router: Router, call: HttpCall) -> None:
    router.cancel(call)
    call.failed(TimeoutError())


def _context(route: Route, method: str, headers: Headers) -> Context:
    """Return what follows a request wherever it goes."""
    request_id, model, session, retry = "", "", "", False
    for name, value in headers:
        if name not in _NOTED:
            continue
        if name == _REQUEST_ID:
            request_id = value.decode("latin-1")
        elif name == _MODEL:
            model = value.decode("latin-1")
        elif name == _SESSION:
            session = value.decode("latin-1")
        else:
            retry = True
    retry = route.retry_lost if route.retry_lost is not None else retry or method in _IDEMPOTENT
    return Context(
        request_id or new_request_id(), route.app, route.prefix, model, session, retry, None, method
    )


def _enter_root(scope: MutableMapping[str, Any], root: str) -> str:
    """Return a path below the root path that Serve has for its clients; the scope gets the whole path.

    What stands before Serve may leave the root path in the request, or take it off.
    """
    path: str = scope["path"]
    if path == root or path.startswith(root + "/"):
        return path[len(root) :] or "/"
    scope["path"] = root + path
    scope["raw_path"] = root.encode() + (scope.get("raw_path") or b"")
    return path


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
