"""The actor of the proxy."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import msgspec

from skate.serve._ending import Ending
from skate.serve._loop import ServeLoop
from skate.serve._process import adopt
from skate.serve._proxy.grpc import GrpcServer
from skate.serve._proxy.http import HttpApp
from skate.serve._proxy.limits import Limits
from skate.serve._proxy.server import HttpServer, bind
from skate.serve._router.runtime import Runtime, close_runtime, current_runtime, set_loop
from skate.serve._routes import Route
from skate.serve._watch.options import WatchOptions
from skate.serve._watch.process import ProcessWatch

__all__ = ["Proxy"]


class Proxy:
    """Takes requests from outside and gives them to replicas."""

    def __init__(
        self,
        http: dict[str, Any] | None,
        grpc: dict[str, Any] | None = None,
        watch: WatchOptions | None = None,
    ) -> None:
        self._http = http
        self._grpc = grpc
        self._watch = ProcessWatch("proxy", watch or WatchOptions())
        self._loop = ServeLoop("skate-serve-proxy")
        adopt(self._loop)
        set_loop(self._loop)
        self._ending = Ending()
        self._turn = threading.Lock()
        self._listening: dict[str, Any] | None = None
        self._app: HttpApp | None = None
        self._server: HttpServer | None = None
        self._grpc_server: GrpcServer | None = None

    def start(self) -> dict[str, Any]:
        """Listen, and return where; a controller that took the place of another one may ask again."""
        with self._turn:
            if self._listening is None:
                self._listening = self._listen()
        return self._listening

    def _listen(self) -> dict[str, Any]:
        found: dict[str, Any] = {"pid": os.getpid()}
        if self._http is not None:
            listening = bind(self._http["host"], self._http["port"])
            found["http"] = listening.getsockname()[:2]
            runtime, limits = current_runtime(), Limits.of(self._http)
            app = HttpApp(runtime, limits, self._http.get("root_path", ""))
            app.tracer = self._watch.tracer
            if self._grpc is not None:
                self._grpc_server = GrpcServer(runtime, self._http["host"], self._grpc, limits)
                port = self._loop.wait(self._grpc_server.start())
                found["grpc"] = (self._http["host"], port)
            self._app = app
            self._server = HttpServer(app, listening, self._http, limits, edge=app)
            self._loop.wait(_start(runtime, app, self._server, self._grpc_server))
        return found

    def stop(self) -> None:
        """Stop when the requests under way have been answered."""
        if self._server is not None:
            self._loop.wait(self._server.stop())
        if self._app is not None:
            self._loop.call(self._app.measures.close)
        if self._grpc_server is not None:
            self._loop.wait(self._grpc_server.stop())
        close_runtime()
        self._watch.close()
        self._loop.stop()
        self._ending.set()

    def until_stopped(self) -> bool:
        """Return when the proxy has been stopped; whoever waits for it learns at once if the process dies."""
        return self._ending.wait()


async def _start(runtime: Runtime, app: HttpApp, server: HttpServer, grpc: GrpcServer | None) -> None:
    told = asyncio.Event()

    def update(data: bytes) -> None:
        routes = msgspec.msgpack.decode(data, type=list[Route])
        app.routes.update(routes)
        if grpc is not None:
            grpc.update(routes)
        told.set()

    runtime.listen("routes", update, confirms=True)
    await told.wait()
    await server.start()
