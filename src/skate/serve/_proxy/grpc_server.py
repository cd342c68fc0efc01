"""The gRPC server of the proxy: replicas answer the calls of the user's services."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from skate.air._optional import load
from skate.serve._config import import_paths
from skate.serve._config.http import gRPCOptions
from skate.serve._observability.metrics import ProxyMetrics
from skate.serve._proxy.grpc_request import GrpcRequest
from skate.serve._proxy.http_server import bind
from skate.serve._proxy.limits import Limits
from skate.serve._router.runtime import Runtime
from skate.serve._runtime.ids import DeploymentID
from skate.serve._wire import grpc_status as status
from skate.serve._wire.frames import Context, Metadata, Rpc
from skate.serve._wire.updates import Route

__all__ = ["GrpcServer"]

logger = logging.getLogger("skate.serve")

_STOP_GRACE_S = 1.0


class GrpcServer:
    """Accept gRPC calls and forward them to replicas. All methods except the constructor run on the Serve event loop.

    Args:
        runtime: Provides the routers.
        host: The address to listen on.
        options: The fields of `gRPCOptions`.
        limits: The limits of requests, shared with HTTP.
    """

    def __init__(self, runtime: Runtime, host: str, options: dict[str, Any], limits: Limits) -> None:
        self._grpc = load("grpc", "Serve over gRPC", "'skate[serve-grpc]'")
        self._codes = {code.value[0]: code for code in self._grpc.StatusCode}
        self._runtime = runtime
        self._host = host
        self._options = options
        self._limits = limits
        self._timeout_s: float | None = options.get("request_timeout_s")
        self._routes: dict[str, Route] = {}
        self._ongoing = 0
        self._metrics = ProxyMetrics("grpc", lambda: self._ongoing)
        self._server: Any = None

    def update(self, routes: Sequence[Route]) -> None:
        """Replace the routes."""
        self._routes = {route.app: route for route in routes}

    async def start(self) -> int:
        """Start to accept calls, and return the port.

        Raises:
            ModuleNotFoundError: If a servicer function cannot be imported.
            OSError: If the port is in use.
        """
        from skate.serve._proxy.grpc_services import InternalServices, UserServices

        own, others = InternalServices(self), UserServices(self)
        named = gRPCOptions(grpc_servicer_functions=self._options.get("grpc_servicer_functions", []))
        for function in named.grpc_servicer_func_callable:
            others.add(function)
        self._server = self._grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", min(self._limits.body_bytes, 2**31 - 1)),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", self._limits.header_bytes),
                ("grpc.so_reuseport", 0),  # a port in use is an error, not shared
            ],
            maximum_concurrent_rpcs=self._limits.connections,
        )
        self._server.add_generic_rpc_handlers((own, others))
        if self._options.get("enable_reflection", True):
            others.add_reflection(self._server, own)
        port = self._listen()
        await self._server.start()
        return port

    def _listen(self) -> int:
        port: int = self._options["port"]
        bind(
            self._host, port
        ).close()  # raises an error that names the process with the port, which grpc does not
        address = f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"
        credentials = self._credentials()
        if credentials is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, credentials))

    def _credentials(self) -> Any:
        options = self._options
        if not options.get("ssl_keyfile"):
            return None
        if options.get("ssl_keyfile_password"):
            raise ValueError(
                "gRPC does not support encrypted keys: pass gRPCOptions(ssl_keyfile=...) a key without a password."
            )
        key, certificate = (Path(options[name]).read_bytes() for name in ("ssl_keyfile", "ssl_certfile"))
        authorities = options.get("ssl_ca_certs")
        return self._grpc.ssl_server_credentials(
            [(key, certificate)],
            root_certificates=Path(authorities).read_bytes() if authorities else None,
            require_client_auth=bool(authorities),
        )

    async def stop(self) -> None:
        """Stop accepting calls, and grant the ongoing ones a short time."""
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)
        self._metrics.close()

    @property
    def applications(self) -> list[str]:
        """The names of all applications."""
        return list(self._routes)

    def codec(self, handler: Any) -> bytes:
        """Return the packed deserializer and serializer of a method's messages, for replicas."""
        plain = (handler.request_deserializer or bytes, handler.response_serializer or bytes)
        return import_paths.pack(plain)

    async def answer(self, path: str, codec: bytes, handler: Any, request: Any, context: Any) -> bytes:
        """Answer a call of any kind, and return the message of a unary answer."""
        began = time.perf_counter()
        metadata: Metadata = [(key, value) for key, value in context.invocation_metadata() or ()]
        sent = dict(metadata)
        request_id = _text(sent, "request_id") or str(uuid.uuid4())
        method = path.rpartition("/")[2]
        route, problem = self._route(_text(sent, "application"))
        self._ongoing += 1
        self._metrics.began()
        code, details, body = status.CANCELLED, "", b""
        trailing: Metadata = []
        try:
            if route is None:
                code, details = status.NOT_FOUND, problem
            else:
                frame = Rpc(
                    0,
                    _context(sent, request_id, route, method),
                    method,
                    codec,
                    metadata,
                    context.peer() or "",
                    _authentication(context),
                    b"" if handler.request_streaming else request,
                    handler.request_streaming,
                    handler.response_streaming,
                )
                code, details, trailing, body = await self._forward(route, frame, request, context)
        finally:
            self._ongoing -= 1
            app, deployment, prefix = (
                ("", "", "") if route is None else (route.app, route.deployment, route.prefix)
            )
            name = self._code(code).name
            self._metrics.ended(app, deployment, prefix, path, name, time.perf_counter() - began)
        trailing = [("request_id", request_id), *(pair for pair in trailing if pair[0] != "request_id")]
        if code != status.OK:
            await context.abort(self._code(code), details, tuple(trailing))
        context.set_trailing_metadata(tuple(trailing))
        if details:
            context.set_details(details)
        return body

    async def _forward(
        self, route: Route, frame: Rpc, request: Any, context: Any
    ) -> tuple[int, str, Metadata, bytes]:
        """Forward messages in both directions. Return the status, and the message of a unary answer."""
        router = self._runtime.router(DeploymentID(route.deployment, route.app))
        call = GrpcRequest(frame)
        router.submit(call)
        feeding = asyncio.ensure_future(_feed(call, request)) if frame.more else None
        timer = None
        if self._timeout_s:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._timeout_s, call.failed, TimeoutError())
        try:
            while (message := await call.message()) is not None:
                await context.write(message)
        except TimeoutError:
            return (
                status.DEADLINE_EXCEEDED,
                f"Request {frame.context.request_id} timed out after {self._timeout_s}s.",
                [],
                b"",
            )
        except Exception as error:
            return *status.status_of(error), [], b""
        finally:
            if timer is not None:
                timer.cancel()
            if feeding is not None:
                feeding.cancel()
            if not call.is_done:
                router.cancel(call)  # the client disconnected, or the time-out expired
        end = call.end
        assert end is not None
        if end.compression is not None and not frame.stream:
            context.set_compression(self._grpc.Compression(end.compression))
        return end.code, end.details, end.metadata, end.body

    def _route(self, app: str) -> tuple[Route | None, str]:
        """Return the route of an application, or an error message for the client."""
        if app:
            ask = "Ping /ray.serve.RayServeAPIService/ListApplications for available applications."
            return self._routes.get(app), f"Application '{app}' not found. {ask}"
        if len(self._routes) == 1:
            return next(iter(self._routes.values())), ""
        return None, (
            "Application metadata not set: send ('application', name) with the call. "
            f"There are {len(self._routes)} applications."
        )

    def _code(self, number: int) -> Any:
        return self._codes.get(number, self._grpc.StatusCode.UNKNOWN)


async def _feed(call: GrpcRequest, messages: AsyncIterator[bytes]) -> None:
    async for message in messages:
        await call.feed(message)
    await call.feed(b"", more=False)


def _context(sent: dict[str, Any], request_id: str, route: Route, method: str) -> Context:
    trace = {name: value for name in ("traceparent", "tracestate") if (value := _text(sent, name))}
    return Context(
        request_id,
        route.app,
        route.prefix,
        _text(sent, "multiplexed_model_id"),
        _text(sent, "session_id"),
        bool(route.retry_lost),
        trace or None,
        method,
    )


def _text(sent: dict[str, Any], name: str) -> str:
    value = sent.get(name, "")
    return value if isinstance(value, str) else ""


def _authentication(context: Any) -> dict[str, Any]:
    """Return the client's authentication; empty if clients do not authenticate."""
    found = context.auth_context()
    if not found:
        return {}
    plain = {key: list(value) if isinstance(value, (list, tuple)) else value for key, value in found.items()}
    identities = context.peer_identities()
    return {
        "context": plain,
        "identities": None if identities is None else list(itertools.chain(identities)),
        "identity_key": context.peer_identity_key(),
    }
