"""The ASGI application of the proxy, which routes requests and forwards them to replicas."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from skate.serve._observability.metrics import ProxyMetrics
from skate.serve._proxy.fast_path import FastPathRequest
from skate.serve._proxy.http_request import ClientMonitor, HttpRequest, Receive, time_out
from skate.serve._proxy.limits import BodyTooLargeError, Limits
from skate.serve._router.router import Router
from skate.serve._router.runtime import Runtime
from skate.serve._runtime.ids import DeploymentID, new_request_id
from skate.serve._wire.frames import Context, Headers, Scope
from skate.serve._wire.updates import Route
from skate.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    RequestCancelledError,
    retry_after,
)

if TYPE_CHECKING:
    from skate.serve._observability.tracing import Tracer
    from skate.serve._proxy.http_protocol_httptools import HttpTools

__all__ = ["HttpApp", "RouteTable"]

logger = logging.getLogger("skate.serve")

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

# A request with one of these methods may run twice: RFC 9110, 9.2.2.
_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))
_REQUEST_ID = b"x-request-id"
_MODEL = b"serve_multiplexed_model_id"
_SESSION = b"x-session-id"
_CONTEXT_HEADERS = frozenset((_REQUEST_ID, _MODEL, _SESSION, b"idempotency-key"))
_CLIENT_GONE = 499  # for logs and metrics only


class HttpApp:
    """Forward each request to the application with the matching route prefix."""

    def __init__(self, runtime: Runtime, limits: Limits, root_path: str = "") -> None:
        self.routes = RouteTable()
        self.ongoing = 0
        self.metrics = ProxyMetrics("http", lambda: self.ongoing)
        self.tracer: Tracer | None = None
        self._runtime = runtime
        self._limits = limits
        self._root_path = root_path.rstrip("/")
        self._routers: dict[tuple[str, str], Router] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request or a websocket."""
        kind = scope["type"]
        if kind == "lifespan":
            return
        path: str = scope["path"]
        if self._root_path:
            path = _strip_root_path(scope, self._root_path)
        if path.startswith("/-/"):
            await self._answer_internal(path, send)
            return
        began = time.perf_counter()
        route = self.routes.match(path)
        if route is None:
            self.metrics.ended("", "", "", scope.get("method", "WEBSOCKET"), 404, 0.0)
            await self._send_text(
                kind, send, 404, f"Path '{path}' not found. See /-/routes for the routes of all applications."
            )
            return
        self.ongoing += 1
        self.metrics.began()
        status = 500
        forward = self._forward_request if kind == "http" else self._forward_websocket
        try:
            if self.tracer is None:
                status = await forward(scope, receive, send, route)
            else:
                with self.tracer.proxy_span(route, scope) as span:
                    status = await forward(scope, receive, send, route)
                    span.ended(status)
        finally:
            self._ended(route, scope.get("method", "WEBSOCKET"), status, began)

    def _ended(self, route: Route, method: str, status: int, began: float) -> None:
        self.ongoing -= 1
        self.metrics.ended(
            route.app, route.deployment, route.prefix, method, status, time.perf_counter() - began
        )

    def _router(self, route: Route) -> Router:
        key = route.app, route.deployment
        router = self._routers.get(key)
        if router is None:
            router = self._routers[key] = self._runtime.router(DeploymentID(route.deployment, route.app))
        return router

    # ------------------------------------------------------------ the fast path

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
        """Forward a complete request on the fast path. Return False, without side effects, if that is not possible."""
        if self.tracer is not None or self._root_path or path.startswith("/-/"):
            return False
        route = self.routes.match(path)
        if route is None:
            return False
        scheme = protocol.scheme or "http"
        request = FastPathRequest(
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
        self.ongoing += 1
        request.router.submit(request)
        self.metrics.began()
        if self._limits.timeout_s and not request.is_done:
            loop = asyncio.get_running_loop()
            request.timer = loop.call_later(self._limits.timeout_s, time_out, request.router, request)
        return True

    def answered(self, request: FastPathRequest, status: int) -> None:
        """Record the end of a request."""
        if request.timer is not None:
            request.timer.cancel()
        if request.replica_time_s:
            self._record_overhead(request, request.route)
        self._ended(request.route, request.scope.method, status, request.began)

    def respond_in_task(self, request: FastPathRequest) -> None:
        """Answer a request in a task, because it failed or its response needs more than one write."""
        if request.timer is not None:
            request.timer.cancel()

        async def respond(_: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            status = 500
            try:
                status = await self._respond_to(request, request.router, request.route, receive, send)
            finally:
                self._ended(request.route, request.scope.method, status, request.began)

        request.protocol.start_cycle(request, respond)

    # ------------------------------------------------------------ all other requests

    async def _forward_request(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, route: Route
    ) -> int:
        """Forward a request, and return the status."""
        context, head = self._head(scope, route)
        body, more = b"", False
        if head.method not in ("GET", "HEAD") or _has_body(head.headers):
            if self._limits.is_too_long(head.headers):
                await self._send_text("http", send, 413, "The request's body is too large.")
                return 413
            message = await receive()
            if message["type"] == "http.disconnect":
                return _CLIENT_GONE
            body, more = message.get("body", b""), message.get("more_body", False)
            # Read a short body here, so that a slow client does not occupy a replica.
            is_short = more and self._limits.is_short(head.headers)
            while more and is_short:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return _CLIENT_GONE
                body += message.get("body", b"")
                more = message.get("more_body", False)
            if len(body) > self._limits.body_bytes:
                await self._send_text("http", send, 413, "The request's body is too large.")
                return 413
        request = HttpRequest(context, head, body, more)
        router = self._router(route)
        router.submit(request)
        return await self._respond_to(request, router, route, receive, send)

    async def _respond_to(
        self, request: HttpRequest, router: Router, route: Route, receive: Receive, send: Send
    ) -> int:
        """Send the answer of a forwarded request to the client, and return the status."""
        monitor = ClientMonitor(request, router, receive, self._limits)
        try:
            status = await self._respond(request, send, monitor)
            if request.replica_time_s:
                self._record_overhead(request, route)
            return status
        except asyncio.CancelledError:
            router.cancel(request)
            raise
        finally:
            monitor.end()
            if not request.is_done:
                router.cancel(request)  # the client disconnected, or reads no further

    def _record_overhead(self, request: HttpRequest, route: Route) -> None:
        """Record the overhead of Serve for a request."""
        took = time.perf_counter() - request.began
        self.metrics.record_overhead(
            route.app, route.prefix, took - request.queue_time_s - request.replica_time_s
        )

    def _head(self, scope: MutableMapping[str, Any], route: Route) -> tuple[Context, Scope]:
        """Return the context and the head of a request."""
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

    async def _respond(self, request: HttpRequest, send: Send, monitor: ClientMonitor) -> int:
        try:
            part = await request.part()
        except BaseException as error:
            if monitor.is_disconnected:
                return _CLIENT_GONE  # the client does not receive it
            response = self._error_response(error, request)
            await self._send_text("http", send, *response)
            return response[0]
        status = part.status
        headers = [*part.headers, (_REQUEST_ID, request.context.request_id.encode("latin-1"))]
        await send({"type": "http.response.start", "status": part.status, "headers": headers})
        try:
            while True:
                await send({"type": "http.response.body", "body": part.body, "more_body": part.more})
                if not part.more:
                    return status
                part = await request.part()
        except Exception as error:
            if monitor.is_disconnected:
                return _CLIENT_GONE
            # The head has been sent, so the only way to report the error is to close the connection.
            logger.warning(
                "The response to request %s was interrupted: %s", request.context.request_id, error
            )
            raise

    def _error_response(self, error: BaseException, request: HttpRequest) -> tuple[int, str, Headers]:
        """Return the status, text and headers for an error."""
        match error:
            case BackPressureError():
                return error.status_code, error.message, [(b"retry-after", b"%d" % retry_after(error))]
            case DeploymentUnavailableError():
                return 503, error.message, []
            case TimeoutError():
                return (
                    408,
                    f"Request {request.context.request_id} timed out after {self._limits.timeout_s} s.",
                    [],
                )
            case BodyTooLargeError():
                return 413, "The request's body is too large.", [(b"connection", b"close")]
            case RequestCancelledError():
                return 499, "Request was cancelled.", []
            case asyncio.CancelledError():
                raise error
        return 500, "Internal Server Error", []

    async def _forward_websocket(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send, route: Route
    ) -> int:
        """Forward a websocket, and return its closing code."""
        context, head = self._head(scope, route)
        await receive()  # "websocket.connect", which the request itself conveys to the replica
        request = HttpRequest(context, head, b"", True)
        router = self._router(route)
        router.submit(request)

        async def listen() -> None:
            while True:
                event = dict(await receive())
                await request.feed(b"", True, event)
                if event["type"] == "websocket.disconnect":
                    return

        listening = asyncio.ensure_future(listen())
        code = 1000
        try:
            while True:
                part = await request.part()
                if part.event is not None:
                    code = part.event.get("code", code)
                    await send(part.event)
                if not part.more:
                    return code
        except Exception as error:
            logger.warning("The websocket of request %s was interrupted: %s", context.request_id, error)
            await send({"type": "websocket.close", "code": 1011})
            return 1011
        finally:
            listening.cancel()
            if not request.is_done:
                router.cancel(request)

    async def _answer_internal(self, path: str, send: Send) -> None:
        """Answer a request for the proxy itself."""
        if path == "/-/healthz":
            status, text = (
                (200, "success") if self.routes.is_known else (503, "Route table is not populated yet.")
            )
            await self._send_text("http", send, status, text)
        elif path == "/-/routes":
            body = self.routes.as_json()
            await self._send_text("http", send, 200, body, [(b"content-type", b"application/json")])
        else:
            await self._send_text("http", send, 404, f"Path '{path}' not found.")

    async def _send_text(
        self, kind: str, send: Send, status: int, text: str, headers: Headers | None = None
    ) -> None:
        """Send a response that does not come from a replica."""
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


def _context(route: Route, method: str, headers: Headers) -> Context:
    """Return the context of a request."""
    request_id, model, session, retry = "", "", "", False
    for name, value in headers:
        if name not in _CONTEXT_HEADERS:
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


def _strip_root_path(scope: MutableMapping[str, Any], root: str) -> str:
    """Return the path without the root path; the scope keeps the whole path.

    A reverse proxy in front of Serve may keep the root path in the request, or remove it.
    """
    path: str = scope["path"]
    if path == root or path.startswith(root + "/"):
        return path[len(root) :] or "/"
    scope["path"] = root + path
    scope["raw_path"] = root.encode() + (scope.get("raw_path") or b"")
    return path


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


class RouteTable:
    """Find the application with the longest prefix of a path, at a slash.

    >>> table = RouteTable()
    >>> table.update([Route("/", "all", "A"), Route("/v1", "new", "B")])
    >>> table.match("/v1/chat").app, table.match("/v1x").app
    ('new', 'all')
    """

    def __init__(self) -> None:
        self._routes: list[Route] = []
        self._only: Route | None = None  # the route "/", if it is the only one

    def update(self, routes: Sequence[Route]) -> None:
        """Replace the routes."""
        self._routes = sorted(routes, key=lambda route: len(route.prefix), reverse=True)
        self._only = self._routes[0] if len(self._routes) == 1 and self._routes[0].prefix == "/" else None

    @property
    def is_known(self) -> bool:
        """Whether the table has a route."""
        return bool(self._routes)

    def match(self, path: str) -> Route | None:
        """Return the route of a path, or None."""
        if self._only is not None:
            return self._only
        for route in self._routes:
            prefix = route.prefix
            if prefix == "/" or path == prefix or path.startswith(prefix + "/"):
                return route
        return None

    def as_json(self) -> str:
        """Return the applications by route prefix."""
        return json.dumps(
            {route.prefix: route.app for route in sorted(self._routes, key=lambda each: each.prefix)}
        )
