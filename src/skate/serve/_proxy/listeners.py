"""The servers of the proxy: HTTP, and optionally gRPC."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from skate.serve._proxy.http_app import HttpApp
from skate.serve._proxy.http_server import HttpServer, bind
from skate.serve._proxy.limits import Limits
from skate.serve._router.runtime import current_runtime
from skate.serve._wire.updates import Route

if TYPE_CHECKING:
    from skate.serve._proxy.grpc_server import GrpcServer

__all__ = ["Listeners"]


class Listeners:
    """The servers of the proxy. They start together, after the first update of the routes.

    Args:
        http: The HTTP options.
        grpc: The gRPC options; None without gRPC.
        tracer: The tracer of requests; None without tracing.
    """

    def __init__(self, http: dict[str, Any], grpc: dict[str, Any] | None, tracer: Any) -> None:
        self._host: str = http["host"]
        self._listening = bind(self._host, http["port"])
        self._runtime, limits = current_runtime(), Limits.of(http)
        self._app = HttpApp(self._runtime, limits, http.get("root_path", ""))
        self._app.tracer = tracer
        self._http = HttpServer(self._app, self._listening, http, limits, fast_path=self._app)
        self._grpc: GrpcServer | None = None
        if grpc is not None:
            from skate.serve._proxy.grpc_server import (
                GrpcServer,  # needs pydantic, and most proxies do not serve gRPC
            )

            self._grpc = GrpcServer(self._runtime, self._host, grpc, limits)

    async def open(self) -> dict[str, Any]:
        """Start to accept requests, and return the host and port of each protocol."""
        addresses: dict[str, Any] = {"http": self._listening.getsockname()[:2]}
        if self._grpc is not None:
            addresses["grpc"] = (self._host, await self._grpc.start())
        has_routes = asyncio.Event()

        def update(data: bytes) -> None:
            routes = msgspec.msgpack.decode(data, type=list[Route])
            self._app.routes.update(routes)
            if self._grpc is not None:
                self._grpc.update(routes)
            has_routes.set()

        self._runtime.subscribe("routes", update, acknowledge=True)
        await has_routes.wait()
        await self._http.start()
        return addresses

    async def close(self) -> None:
        """Stop accepting requests, and answer the ongoing ones."""
        await self._http.stop()
        self._app.metrics.close()
        if self._grpc is not None:
            await self._grpc.stop()
